"""Multiply the gradients of rows by what arrived from above, just before two matrix products take them."""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["total", "blocks", "stride", "outputs", "groups"])
def scale_kernel(
    gradient_ptr, sums_ptr, bias_gradient_ptr, upstream_ptr, factor_ptr, total, blocks, stride, outputs, groups, kept,
    NEED_BIAS: tl.constexpr, GROUPS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scale ``total`` entries in place, a block per program; further programs add the bias's gradient over groups.

    ``kept``: a power of two that stays with the gradients of rows, in types whose smallest numbers are not small.
    """
    program = tl.program_id(0)
    scale = tl.load(upstream_ptr).to(tl.float32) * tl.load(factor_ptr)
    if program < blocks:
        place = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(gradient_ptr + place, mask=place < total, other=0.0).to(tl.float32) * (scale * kept)
        tl.store(gradient_ptr + place, value.to(gradient_ptr.dtype.element_ty), mask=place < total)
    elif NEED_BIAS:
        output = (program - blocks) * COLUMNS + tl.arange(0, COLUMNS)
        sums = tl.zeros([GROUPS, COLUMNS], tl.float32)
        for start in tl.range(0, groups, GROUPS):
            group = start + tl.arange(0, GROUPS)
            keep = (group < groups)[:, None] & (output < outputs)[None, :]
            sums += tl.load(sums_ptr + group.to(tl.int64)[:, None] * stride + output[None, :], mask=keep, other=0.0)
        result = (tl.sum(sums, axis=0) * scale).to(bias_gradient_ptr.dtype.element_ty)
        tl.store(bias_gradient_ptr + output, result, mask=output < outputs)
