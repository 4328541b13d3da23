"""Kernels around the two matrix products of a backward pass: what arrived from above goes into the small matrices."""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["outputs", "padded", "width", "stride", "groups"])
def combine_kernel(
    weight_ptr, wide_ptr, sums_ptr, bias_gradient_ptr, upstream_ptr, factor_ptr, scale_ptr,
    outputs, padded, width, stride, groups,
    SCALED: tl.constexpr, NEED_BIAS: tl.constexpr, GROUPS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy the weights, times upstream x factor, with rows of zeros after them; add the bias's gradient over groups.

    One program per row of the result and BLOCK features; after those, one per COLUMNS entries of the bias.
    """
    row = tl.program_id(0)
    scale = tl.load(upstream_ptr).to(tl.float32) * tl.load(factor_ptr)
    first = tl.program_id(1) == 0
    if row < padded:
        feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        some = feature < tl.where(row < outputs, width, 0)
        value = tl.load(weight_ptr + row.to(tl.int64) * stride + feature, mask=some, other=0.0)
        if SCALED:
            value = (value.to(tl.float32) * scale).to(wide_ptr.dtype.element_ty)
        tl.store(wide_ptr + row.to(tl.int64) * width + feature, value, mask=feature < width)
        if first & (row == 0):
            tl.store(scale_ptr, scale)
    elif NEED_BIAS:
        if first:
            output = (row - padded) * COLUMNS + tl.arange(0, COLUMNS)
            total = tl.zeros([GROUPS, COLUMNS], tl.float32)
            for start in tl.range(0, groups, GROUPS):
                group = start + tl.arange(0, GROUPS)
                keep = (group < groups)[:, None] & (output < outputs)[None, :]
                total += tl.load(sums_ptr + group.to(tl.int64)[:, None] * padded + output[None, :], mask=keep, other=0.0)
            result = (tl.sum(total, axis=0) * scale).to(bias_gradient_ptr.dtype.element_ty)
            tl.store(bias_gradient_ptr + output, result, mask=output < outputs)
