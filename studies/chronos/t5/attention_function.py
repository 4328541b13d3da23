"""Our attention kernels as operators that autograd and ``torch.compile`` know.

A projection makes queries, keys and values side by side. The operators take it whole, (B, T, parts, heads, D), and give
its gradient whole: nobody cuts one or stacks the other. The bias is a table by distance in units of log2(e), see
``PositionBias``, and what hides keys comes with its spans; layers share both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels.launch import INTERPRETED
from studies.chronos.t5 import attention_ops as ops
from studies.chronos.t5.attention import HIDDEN, MARGIN

_RULES = "Tensor? table, Tensor? hide, Tensor? span"
_SAVED = f"{_RULES}, Tensor out, Tensor lse, bool need_table"


def _forward(inputs: ops.Three, table: Any, hide: Any, span: Any) -> tuple[Tensor, Tensor]:
    out, lse = ops.forward(*inputs, table, hide, span)
    return out.transpose(1, 2), lse


def _backward(
    upstream: Tensor, inputs: ops.Three, grads: ops.Three, table: Any, hide: Any, span: Any, out: Any, lse: Any,
    need_table: bool,
) -> Tensor:  # fmt: skip
    """Write gradients; return that of the table."""
    before, after = upstream.transpose(1, 2), out.transpose(1, 2)
    return ops.backward(before, inputs, table, hide, span, after, lse, grads, need_table)


def _results(own: Tensor) -> tuple[Tensor, Tensor]:
    batch, length, _, heads, width = own.shape
    return own.new_empty((batch, length, heads, width)), own.new_empty((batch, heads, length), dtype=torch.float32)


def _table_like(own: Tensor, table: Any, needed: bool) -> Tensor:
    return own.new_empty(table.shape if needed else 0, dtype=torch.float32)


# --- a sequence that attends to itself


@torch.library.custom_op(
    "fourier_head::t5_attention", mutates_args=(), schema=f"(Tensor own, {_RULES}) -> (Tensor, Tensor)"
)
def _attention(own: Any, *given: Any) -> Any:
    return _forward(ops.cut(own), *given)


@_attention.register_fake
def _(own: Any, *_: Any) -> Any:
    return _results(own)


@torch.library.custom_op(
    "fourier_head::t5_attention_backward",
    mutates_args=(),
    schema=f"(Tensor upstream, Tensor own, {_SAVED}) -> (Tensor, Tensor)",
)
def _gradients(upstream: Any, own: Any, *saved: Any) -> Any:
    room = own.new_empty(own.shape)
    return room, _backward(upstream, ops.cut(own), ops.cut(room), *saved)


@_gradients.register_fake
def _(upstream: Any, own: Any, table: Any, *saved: Any) -> Any:
    return own.new_empty(own.shape), _table_like(own, table, saved[-1])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, *output)


def _return(ctx: Any, upstream: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    need_table = ctx.needs_input_grad[1]
    own, table = _gradients(upstream, *ctx.saved_tensors, need_table)
    return own, table if need_table else None, None, None


_attention.register_autograd(_return, setup_context=_keep)


# --- a sequence that attends to another one, layer by layer
#
# Gradients of the layers' keys and values are parts of one tensor. Each operator passes on a link, which holds nothing:
# going back, the tensor that becomes the gradient of the links goes from layer to layer, and each writes its part.


def _link_like(contexts: Tensor) -> Tensor:
    return contexts.new_empty(1).expand(contexts.shape)


@torch.library.custom_op(
    "fourier_head::t5_context_attention",
    mutates_args=(),
    schema=f"(Tensor own, Tensor contexts, Tensor link, {_RULES}, int layer) -> (Tensor, Tensor, Tensor)",
)
def _context_attention(own: Any, contexts: Any, link: Any, table: Any, hide: Any, span: Any, layer: Any) -> Any:
    return *_forward(ops.cut(own, contexts[:, :, layer]), table, hide, span), _link_like(contexts)


@_context_attention.register_fake
def _(own: Any, contexts: Any, *_: Any) -> Any:
    return *_results(own), _link_like(contexts)


@torch.library.custom_op(
    "fourier_head::t5_context_attention_backward",
    mutates_args=("room",),
    schema=f"(Tensor upstream, Tensor own, Tensor contexts, Tensor(a!) room, int layer, {_SAVED}) -> (Tensor, Tensor)",
)
def _context_gradients(upstream: Any, own: Any, contexts: Any, room: Any, layer: Any, *saved: Any) -> Any:
    down = own.new_empty(own.shape)
    inputs, grads = ops.cut(own, contexts[:, :, layer]), ops.cut(down, room[:, :, layer])
    return down, _backward(upstream, inputs, grads, *saved)


@_context_gradients.register_fake
def _(upstream: Any, own: Any, contexts: Any, room: Any, layer: Any, table: Any, *saved: Any) -> Any:
    return own.new_empty(own.shape), _table_like(own, table, saved[-1])


def _keep_context(ctx: Any, inputs: Any, output: Any) -> None:
    own, contexts, _, *given, ctx.layer = inputs
    ctx.save_for_backward(own, contexts, *given, *output[:2])
    ctx.set_materialize_grads(False)


def _return_context(ctx: Any, upstream: Any, _: Any, room: Any) -> tuple[Tensor | None, ...]:
    own, contexts, *saved = ctx.saved_tensors
    if room is None:
        last = ctx.layer == contexts.shape[2] - 1
        room = (contexts.new_empty if last else contexts.new_zeros)(contexts.shape)
    if upstream is None:  # nobody used what was found
        upstream = torch.zeros_like(saved[-2])
    need_table = ctx.needs_input_grad[3]
    down, table = _context_gradients(upstream, own, contexts, room, ctx.layer, *saved, need_table)
    return down, None, room, table if need_table else None, None, None, None


_context_attention.register_autograd(_return_context, setup_context=_keep_context)


# --- what others call


def spans(hide: Tensor) -> Tensor:
    """Return the first visible key of each sample, the one after the last, and whether any between has an addition.

    >>> spans(torch.tensor([[HIDDEN, 0.0, 0.0, HIDDEN], [0.0, HIDDEN, 0.0, 0.0], [HIDDEN] * 4]))
    tensor([[1, 3, 0],
            [0, 4, 1],
            [4, 0, 0]], dtype=torch.int32)
    """
    keys = hide.shape[1]
    place = torch.arange(keys, device=hide.device, dtype=torch.int32)
    seen = hide > HIDDEN / 2
    first = torch.where(seen, place, keys).amin(1)
    last = torch.where(seen, place + 1, 0).amax(1)
    plain = (hide == 0).sum(1, dtype=torch.int32)
    return torch.stack([first, last, (plain < last - first).int()], 1)


def self_attention(own: Tensor, table: Tensor | None, hide: Tensor | None, span: Tensor | None) -> Tensor:
    """Return what queries find, (B, T, heads, D); those that see no key find zeros.

    Args:
        own: queries, keys and values (B, T, 3, heads, D).
        table: the bias by distance in units of log2(e), (heads, 2 x (length + MARGIN)), see ``PositionBias``.
        hide: added to the scores of each key, (B, T); below half of ``HIDDEN`` a key is not there.
        span: ``spans`` of it.
    """
    _check(own, table, own.shape[1])
    out: Tensor = _attention(_readable(own), table, hide, span)[0]
    return out.to(own.dtype)


def context_attention(
    own: Tensor, contexts: Tensor, link: Tensor, table: Tensor | None, hide: Tensor | None, span: Tensor | None,
    layer: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what queries (B, Q, 1, heads, D) find among keys of another sequence, and the link for the next layer.

    Args:
        contexts: keys and values (B, K, layers, 2, heads, D).
        link: the contexts again for the first layer, then what the layer before returned; gradients take this way.
        layer: whose keys and values; layers come one after the other.
        table, hide, span: see ``self_attention``.
    """
    _check(own, table, max(own.shape[1], contexts.shape[1]))
    link = _readable(link) if layer == 0 else link
    out, _, link = _context_attention(_readable(own), _readable(contexts.detach()), link, table, hide, span, layer)
    return out.to(own.dtype), link


def _check(own: Tensor, table: Tensor | None, length: int) -> None:
    if not (own.is_cuda or INTERPRETED):
        raise ValueError(f"fused attention needs a CUDA device, got {own.device}; choose 'sdpa'")
    if own.shape[-1] > 128:
        raise ValueError(f"fused attention takes up to 128 features a head, got {own.shape[-1]}; choose 'sdpa'")
    if table is not None and (table.dim() != 2 or table.shape[1] < 2 * (length + MARGIN)):
        raise ValueError(f"fused attention takes its bias by distance up to {length}, got {tuple(table.shape)}")


def _readable(x: Tensor) -> Tensor:
    """Return x as kernels can read it; the interpreter's products of bfloat16 treat its bits as integers."""
    x = x.float() if INTERPRETED and x.dtype == torch.bfloat16 else x
    return x if x.stride(-1) == 1 else x.contiguous()
