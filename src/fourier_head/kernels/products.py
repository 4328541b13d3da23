"""The products of a backward pass with few outputs: both, and what arrives from above, in one kernel."""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _dot(a, b, sums, WIDEN: tl.constexpr):
    """Add a product to sums; WIDEN: in the interpreter, where products of bfloat16 treat its bits as integers."""
    if WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, sums, input_precision="ieee")


@triton.jit(do_not_specialize=["tokens", "outputs"])
def products_kernel(
    gradient_ptr, x_ptr, weight_ptr, upstream_ptr, factor_ptr, x_gradient_ptr, partial_ptr,
    tokens, width, outputs, gradient_stride, x_stride, weight_stride, upstream_stride,
    NEED_X: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr, REDUCED: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """Multiply gradients of STEPS x ROWS rows with the weights and with x, WIDTH features at a time.

    Sums over tokens go to ``partial_ptr``: a matrix (outputs, width + 1) per group of rows, the bias as last column,
    which ``gather_kernel`` adds up.
    """
    group = tl.program_id(0)
    output = tl.arange(0, OUTPUTS)
    real = output < outputs
    feature = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    some = feature < width
    scale = 1.0
    if REDUCED:
        scale = tl.load(upstream_ptr) * tl.load(factor_ptr)
    if NEED_X:
        weights = weight_ptr + output.to(tl.int64)[:, None] * weight_stride + feature[None, :]
        weight = tl.load(weights, mask=real[:, None] & some[None, :], other=0.0)
    sums = tl.zeros([OUTPUTS, WIDTH], tl.float32)
    total = tl.zeros([OUTPUTS], tl.float32)
    for step in tl.range(STEPS, num_stages=STAGES):
        rows = (group * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = rows < tokens
        place = rows.to(tl.int64)[:, None] * gradient_stride + output[None, :]
        gradient = tl.load(gradient_ptr + place, mask=inside[:, None] & real[None, :], other=0.0)
        if not REDUCED:
            upstream = tl.load(upstream_ptr + rows.to(tl.int64) * upstream_stride, mask=inside, other=0.0)
            gradient = (gradient.to(tl.float32) * upstream[:, None]).to(gradient_ptr.dtype.element_ty)
        wanted = inside[:, None] & some[None, :]
        if NEED_X:
            of_x = _dot(gradient, weight, tl.zeros([ROWS, WIDTH], tl.float32), WIDEN) * scale
            of_x = of_x.to(x_gradient_ptr.dtype.element_ty)
            tl.store(x_gradient_ptr + rows.to(tl.int64)[:, None] * width + feature[None, :], of_x, mask=wanted)
        if NEED_WEIGHT:
            x = tl.load(x_ptr + rows.to(tl.int64)[:, None] * x_stride + feature[None, :], mask=wanted, other=0.0)
            sums = _dot(tl.trans(gradient), x, sums, WIDEN)
        if NEED_BIAS:
            total += tl.sum(gradient.to(tl.float32), axis=0)
    matrix = partial_ptr + group.to(tl.int64) * outputs * (width + 1) + output * (width + 1)
    if NEED_WEIGHT:
        tl.store(matrix[:, None] + feature[None, :], sums * scale, mask=real[:, None] & some[None, :])
    if NEED_BIAS:
        tl.store(matrix + width, total * scale, mask=output < tl.where(tl.program_id(1) == 0, outputs, 0))


@triton.jit(do_not_specialize=["size"])
def scale_kernel(source_ptr, result_ptr, upstream_ptr, factor_ptr, size, BLOCK: tl.constexpr):
    """Multiply numbers with what arrives from above and a factor; a library takes two kernels, and slower ones."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(upstream_ptr) * tl.load(factor_ptr)
    value = tl.load(source_ptr + place, mask=place < size).to(tl.float32) * scale
    tl.store(result_ptr + place, value.to(result_ptr.dtype.element_ty), mask=place < size)
