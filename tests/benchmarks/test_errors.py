"""Errors against float64: one measure for all, taken in chunks, and next to nothing for what is exact."""

import math

import pytest
import torch
from benchmarks.arms import Problem
from benchmarks.head import SHAPES

from benchmarks import arms, errors, heads

pytestmark = pytest.mark.filterwarnings("ignore:.*lie outside")


def problem(dtype):
    return Problem(20, 16, 18, 6, dtype, device="cpu")


@pytest.mark.parametrize("chunk", [7, 1024])
def test_every_loss_of_float32_is_close_and_that_of_bfloat16_is_not(chunk, monkeypatch):
    monkeypatch.setattr(errors, "CHUNK", chunk)
    wide, narrow = problem(torch.float32), problem(torch.bfloat16)
    ours = [name for name, make in heads.arms(wide).items() if make().exact]
    assert len(ours) == 8
    for of in (errors.of_linear, lambda p: errors.of_formula(arms.plain, p)):
        assert max(of(wide)[:3]) < 1e-5 < of(narrow).gradient
    for name in ours:
        found = errors.of_head(f"FourierHead.{name}", wide)
        # Outputs of float32 are what the loss is computed from, so their share of the error is most of it.
        assert max(found) < 1e-4
        assert errors.of_head(name, narrow).gradient > 1e-3


def test_a_loss_that_is_wrong_is_seen_to_be():
    p = problem(torch.float32)
    exact = p.weight.detach().double().requires_grad_()

    def reference(x, rows):
        return arms.plain_of(x, exact, None, p.target[rows], p)

    found = errors.against(1.5 * arms.plain(p), p.x, p.weight, reference, exact)
    assert all(math.isclose(value, 0.5, rel_tol=1e-4) for value in found[:3])
    assert found.gradient == max(found.x, found.weight)
    assert errors.of_head("nine quantiles, pinball", p) is None


def test_values_at_an_end_of_their_domain_are_put_to_its_middle():
    p = problem(torch.bfloat16)
    head = heads.in_float64(heads.arms(p)["nll, adaptive"]().head)
    outputs = head.proj(p.x.detach().double())[:, -2:].detach()
    domain = head.domain.at_outputs(outputs)
    value = p.value.clone()
    value[3], value[5] = domain.from_unit(torch.ones(20))[3], domain.from_unit(torch.full((20,), 1.001))[5]
    moved = errors.off_the_ends(head, p.x.detach(), value)
    assert moved.dtype == value.dtype
    assert torch.nonzero(moved != value).flatten().tolist() == [3]
    assert math.isclose(moved[3], domain.loc[3], rel_tol=1e-6)
    fixed = heads.in_float64(heads.arms(p)["nll"]().head)
    assert errors.off_the_ends(fixed, p.x.detach(), value) is value


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_in_bfloat16_are_as_exact_as_those_of_a_linear_head(shape):
    """Of the same tokens, each against its own float64; but for what the product in float32 has brought along."""
    p = Problem(*shape)
    linear = errors.of_linear(p).gradient
    for name in heads.arms(p):
        found = errors.of_head(name, p)
        if found is not None:
            assert found.gradient < math.hypot(1.5 * linear, 1.5 * found.product), (name, found, linear)
