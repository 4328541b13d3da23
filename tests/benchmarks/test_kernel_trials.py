"""Trials of the row kernel: every variant computes the same, and what is compiled is what heads ask for."""

import pytest
import torch

pytest.importorskip("triton")

from benchmarks.arms import Problem
from benchmarks.head import SHAPES

from benchmarks import heads, kernel_trials
from fourier_head.kernels import plan, rowwise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY = (6, 8, 18, 4)


def step(case):
    p = Problem(*TINY, torch.float32, linear=False, device=DEVICE)
    arm = heads.arms(p)[case]()
    arm.head.impl = "fused"

    def both():
        loss = arm.loss(arm.head, p.x, arm.target(p))
        return [loss.detach(), *torch.autograd.grad(loss, [p.x, *arm.head.parameters()])]

    return both


@pytest.mark.parametrize("case", kernel_trials.CASES)
def test_the_scores_that_are_compiled_are_those_of_the_heads(case, monkeypatch):
    asked, forward = [], rowwise.forward
    monkeypatch.setattr(rowwise, "forward", lambda *args: asked.append(args[7]) or forward(*args))
    with kernel_trials.applied(kernel_trials.Variant("row kernel")):
        step(case)()
    assert asked == [kernel_trials.score_of(case, TINY)]


@pytest.mark.parametrize("case", kernel_trials.CASES)
def test_variants_compute_the_same_and_leave_nothing_behind(case):
    before = rowwise.blocks_of, rowwise.FEW_NUMBERS, plan.RESIDENT_WIDTH
    plain = step(case)()
    tried = kernel_trials.variants(case, TINY)
    assert tried[0].name == "as it is"
    for variant in tried[1:]:
        with kernel_trials.applied(variant):
            found = step(case)()
        for a, b in zip(found, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert before == (rowwise.blocks_of, rowwise.FEW_NUMBERS, plan.RESIDENT_WIDTH)


def test_every_shape_has_its_variants_and_the_table_compares_them():
    for shape in SHAPES:
        for case in kernel_trials.CASES:
            names = [variant.name for variant in kernel_trials.variants(case, shape)]
            assert len(set(names)) == len(names)
    known = {"tokens": 6, "n": 8, "m": 18, "N": 4, "loss": "loss", "host_us": 1.0}
    rows = [known | {"variant": "as it is", "graph_us": 10.0, "queued_us": 12.0},
            known | {"variant": "rows 1, warps 1", "graph_us": "", "queued_us": 5.0}]  # fmt: skip
    assert kernel_trials.table(rows) == "(6, 8, 4, 'loss'): rows 1, warps 1 5.0 us (0.50x); as it is 10.0 us (1.00x)"
