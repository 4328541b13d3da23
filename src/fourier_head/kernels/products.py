"""The products of a backward pass with few outputs: both, and what arrives from above, in one kernel."""

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


@triton.jit(do_not_specialize=["rows", "room", "wide_rows"])
def restack_kernel(
    weight_ptr, wide_ptr, sums_ptr, result_ptr, upstream_ptr, factor_ptr,
    rows, room, wide_rows, width, weight_stride, SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy weights with rows of zeros between, and gradients of weights without them, one program per row.

    ``wide_ptr``, of ``wide_rows`` rows, has ``room`` rows for every ``rows`` rows of the weights; ``sums_ptr`` lies
    like it and ``result_ptr`` like the weights. SCALED: both are multiplied with what arrives from above and a factor.
    """
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scale = 1.0
    if SCALED:
        scale = tl.load(upstream_ptr) * tl.load(factor_ptr)
    if row < wide_rows:
        filled = tl.where(row % room < rows, width, 0)
        source = (row // room * rows + row % room).to(tl.int64)
        value = tl.load(weight_ptr + source * weight_stride + column, mask=column < filled, other=0.0)
        value = (value.to(tl.float32) * scale).to(wide_ptr.dtype.element_ty)
        tl.store(wide_ptr + row.to(tl.int64) * width + column, value, mask=column < width)
    else:
        place = row - wide_rows
        source = (place // rows * room + place % rows).to(tl.int64)
        value = tl.load(sums_ptr + source * width + column, mask=column < width, other=0.0)
        value = (value.to(tl.float32) * scale).to(result_ptr.dtype.element_ty)
        tl.store(result_ptr + place.to(tl.int64) * width + column, value, mask=column < width)
