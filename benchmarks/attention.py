"""Measure attention in training on a GPU: ``python -m benchmarks.attention`` prints times, rates and errors.

Shapes are those of the small T5 with full windows in bfloat16: the encoder with a bias by distance, the decoder's look
at the encoder without one, and the decoder's look back. Rates count two products of matrices going forward and five
going back, whatever an implementation does. Pieces of ours are timed in several tilings, the first being the one in
use; cuDNN has no bias and no hidden keys, and so is a bound. ``--limit`` ends the run in time; FlexAttention is last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from studies.chronos.t5 import attention_ops as ops
from studies.chronos.t5.attention import Attention, Contexts, PositionBias, Rules, attend_self, rules
from studies.chronos.t5.attention_ops import Tile
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import Clock
from fourier_head._devices import best_device

DEVICE = best_device()
FORWARD = (ops.STANDARD.forward, Tile(128, 64, 8, 3), Tile(64, 128, 4, 2))
TO_KEYS = (
    ops.STANDARD.to_keys, Tile(64, 64, 4, 2), Tile(32, 64, 4, 2), Tile(32, 64, 4, 3), Tile(32, 128, 8, 2, 128),
)  # fmt: skip
TO_QUERIES = (ops.STANDARD.to_queries, Tile(128, 64, 8, 3), Tile(64, 64, 4, 4))
ROOMS = (2**25, 2**27)
"""Bytes for gradients of scores, beside the standard: the first lets them stay in the second cache of an H200."""


@dataclass
class Case:
    """Inputs of one attention: projections, packed as the model makes them."""

    name: str
    queries: int
    keys: int
    two_sided: bool | None
    batch: int = 256
    heads: int = 8
    width: int = 64

    def __post_init__(self) -> None:
        torch.manual_seed(0)

        def project(length: int, parts: int) -> Tensor:
            shape = (self.batch, length, parts, self.heads, self.width)
            return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)

        self.own = project(self.queries, 3 if self.queries == self.keys else 1)
        self.own[:, :, 0] *= self.width**-0.5
        self.other = None if self.queries == self.keys else project(self.keys, 2).requires_grad_()
        self.own.requires_grad_()
        self.upstream = torch.randn_like(self.own[:, :, 0])
        self.position = PositionBias(self.heads, 32, 128, bool(self.two_sided)).to(DEVICE)
        torch.nn.init.normal_(self.position.table)
        self.hide = torch.zeros(self.batch, self.keys, device=DEVICE) if self.two_sided is not False else None

    @property
    def inputs(self) -> list[Tensor]:
        return [self.own] if self.other is None else [self.own, self.other]

    @property
    def product(self) -> float:
        """Operations of one product of matrices."""
        return 2.0 * self.batch * self.heads * self.queries * self.keys * self.width

    def bias(self, kind: Attention) -> Tensor | None:
        if self.two_sided is None:
            return None
        return self.position(self.queries, kind).detach().requires_grad_()


def found(inputs: list[Tensor], given: Rules) -> Tensor:
    if len(inputs) == 1:
        return attend_self(inputs[0], given)
    return Contexts(inputs[1][:, :, None]).attend(inputs[0], 0, given)


def errors(case: Case, samples: int = 4) -> str:
    """Return relative errors of the output and all gradients of ours, in bfloat16, against plain ones in float32."""
    results = []
    for kind, dtype in (("plain", torch.float32), ("fused", torch.bfloat16)):
        inputs = [x[:samples].detach().to(dtype).requires_grad_() for x in case.inputs]
        hide = None if case.hide is None else case.hide[:samples].clone()
        if hide is not None:
            hide[0, : case.keys // 3] = -1e9
        bias = None if case.two_sided is None else case.position(case.queries, kind)  # type: ignore[arg-type]
        out = found(inputs, rules(kind, bias, hide))  # type: ignore[arg-type]
        wanted = inputs if bias is None else [*inputs, case.position.table]
        results.append((out, *torch.autograd.grad(out, wanted, case.upstream[:samples].to(out))))
    names = ["out", *("own", "other")[: len(case.inputs)], "bias"][: len(results[0])]
    gaps = [((b - a).norm() / a.norm()).item() for a, b in zip(*results, strict=True)]
    return " ".join(f"{name} {gap:.1e}" for name, gap in zip(names, gaps, strict=True))


def whole(case: Case, function: Callable[[list[Tensor]], Tensor], bias: Tensor | None) -> tuple[Callable, Callable]:
    """Return functions that go forward and back."""
    wanted = case.inputs if bias is None else [*case.inputs, bias]
    out = function(case.inputs)
    return (
        lambda: function(case.inputs),
        lambda: torch.autograd.grad(out, wanted, case.upstream, retain_graph=True),
    )


def cudnn(inputs: list[Tensor]) -> Tensor:
    query, key, value = (part for x in inputs for part in x.transpose(1, 3).unbind(2))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return functional.scaled_dot_product_attention(query, key, value, scale=1.0).transpose(1, 2)


def implementations(case: Case, kinds: tuple[str, ...]) -> Iterator[tuple[str, Callable, float]]:
    """Yield whole passes: their name, a function, and how many products of matrices they count for.

    Gradients are those of projections: where an implementation gives parts of one, stacking them counts.
    """
    for kind in kinds:
        bias = None if kind == "cudnn" else case.bias(kind)  # type: ignore[arg-type]
        function = cudnn
        if kind != "cudnn":
            given = rules(kind, bias, case.hide)  # type: ignore[arg-type]
            function = lambda inputs, given=given: found(inputs, given)  # noqa: E731
        if kind == "flex":
            function = torch.compile(function, dynamic=False)
        passes = whole(case, function, bias)
        yield f"{kind} forward", passes[0], 2
        yield f"{kind} back", passes[1], 5


def pieces(case: Case) -> Iterator[tuple[str, Callable, float]]:
    """Yield the kernels of ours one by one, in several tilings."""
    three = ops.cut(case.own.detach(), None if case.other is None else case.other.detach())
    query, key, _ = three
    given = rules("fused", None, case.hide)
    hide, span, table = given.hide, given.span, case.bias("fused")
    table = None if table is None else table.detach()
    upstream = case.upstream.transpose(1, 2)

    def label(what: str, tile: Tile) -> str:
        more = "" if tile.registers is None else f" r{tile.registers}"
        return f"{what} {tile.queries}x{tile.keys} w{tile.warps} s{tile.stages}{more}"

    for tile in FORWARD:
        yield label("forward", tile), lambda t=tile: ops.forward(*three, table, hide, span, t), 2  # type: ignore[misc]
    out, lse = ops.forward(*three, table, hide, span)
    delta = ops.deltas(out, upstream)
    yield "back: delta", lambda: ops.deltas(out, upstream), 0
    dq, dk, dv = (ops.room_like(x) for x in three)
    for tile in TO_KEYS:
        scores = ops.score_room(query, key, ops.Tiles(to_keys=tile))
        yield (
            label("back: to keys", tile),
            lambda t=tile, s=scores: ops.key_gradients(  # type: ignore[misc]
                (*three, upstream), table, hide, span, lse, delta, (dk, dv), s, t
            ),
            4,
        )
    scores = ops.score_room(query, key, ops.STANDARD)
    for tile in TO_QUERIES:
        step = lambda t=tile: ops.query_gradients(scores, key, hide, span, dq, t)  # noqa: E731
        yield label("back: to queries", tile), step, 1
    if table is not None:
        total = ops.empty(query, *scores.shape[1:])
        keys = ops.STANDARD.to_keys.keys
        yield "back: sum over samples", lambda: ops.sum_samples(scores, len(scores), hide, span, total, False, keys), 0
        line = table.shape[1]
        yield "back: diagonals", lambda: ops.table_gradients(total, case.queries, case.keys, line), 0


def in_parts(case: Case) -> Iterator[tuple[str, Callable, float]]:
    """Yield all of the way back with less room for the gradients of scores."""
    bias = case.bias("fused")
    given = rules("fused", bias, case.hide)
    _, back = whole(case, lambda inputs: found(inputs, given), bias)
    standard = ops.SCRATCH
    for room in ROOMS:
        ops.SCRATCH = room
        yield f"fused back, room of {room >> 20} MiB", back, 5
    ops.SCRATCH = standard


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds after which nothing new is begun")
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args(arguments)
    start, clock = time.perf_counter(), Clock(runs=10, warmup=2)
    shapes = (("self", 512, 512, True), ("cross", 65, 512, None), ("causal", 65, 65, False))
    cases = [Case(*shape, batch=given.batch) for shape in shapes]
    for case in cases:
        print(f"{case.name:6} errors {errors(case)}", flush=True)
    plan = [(case, implementations(case, ("fused", "cudnn"))) for case in cases]
    plan += [
        (cases[0], pieces(cases[0])),
        (cases[1], pieces(cases[1])),
        (cases[0], in_parts(cases[0])),
        *((case, implementations(case, ("flex",))) for case in cases),
    ]
    for case, steps in plan:
        try:
            for name, step, products in steps:
                if time.perf_counter() - start > given.limit:
                    print(f"{case.name:6} {name:36} left out, as all after it, for lack of time", flush=True)
                    return
                took = clock.device(step).median * 1e-3
                rate = f"{products * case.product / took * 1e-9:5.0f} TF/s" if products else ""
                print(f"{case.name:6} {name:36} {took:7.3f} ms {rate}", flush=True)
        except Exception as problem:
            print(f"{case.name:6} failed: {type(problem).__name__} {str(problem)[:160]!r}", flush=True)


if __name__ == "__main__":
    main()
