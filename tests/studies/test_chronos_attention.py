"""The attention of the T5 equals attention written out in float64, and so do its gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from studies.chronos.t5 import T5Config, build_forecaster
from studies.chronos.t5.attention import HIDDEN, PositionBias, attend, position_buckets
from studies.chronos.tokenizer import ChronosTokenizer


def written_out(query, key, value, mask):
    """Return attention as a formula: a softmax between two products of matrices, scores not scaled."""
    return torch.softmax(query @ key.transpose(-1, -2) + mask, dim=-1) @ value


def hidden_keys(keys):
    """Hide a beginning that spans whole blocks, a middle and an end, and nothing."""
    hide = torch.zeros(3, keys)
    hide[0, : keys // 2 + 3] = HIDDEN
    hide[1, 3:7] = HIDDEN
    hide[1, -2:] = HIDDEN
    return hide


def drawn(case, dtype, device="cpu"):
    """Return queries, keys, values, the table of the bias (None without one), what hides keys, and what comes back."""
    queries, keys, width, two_sided, some_hidden = case
    generator = torch.Generator().manual_seed(0)

    def draw(length):  # heads lie behind time, as a projection writes them
        x = torch.randn(3, length, 2, width, generator=generator, dtype=torch.float64).transpose(1, 2)
        return x.to(device, dtype).requires_grad_()

    inputs = [draw(length) for length in (queries, keys, keys)]
    table = None if two_sided is None else torch.randn(8, 2, generator=generator).to(device).requires_grad_()
    hide = hidden_keys(keys).to(device) if some_hidden else None
    return inputs, table, hide, torch.randn(3, 2, queries, width, generator=generator).to(device, dtype)


def results(found_by, case, dtype, device="cpu"):
    """Return what queries find and the gradients of queries, keys, values and the table."""
    (query, key, value), table, hide, upstream = drawn(case, dtype, device)
    mask = torch.zeros(3, 1, 1, case[1], device=device) if hide is None else hide[:, None, None]
    if table is not None:
        position = PositionBias(2, 8, 20, bool(case[3])).to(device)
        mask = mask + torch.func.functional_call(position, {"table": table}, (case[0],))
    out = found_by(query, key, value, mask.to(dtype))
    wanted = [query, key, value] + ([] if table is None else [table])
    return out, *torch.autograd.grad(out, wanted, upstream)


CASES = [
    (70, 70, 16, True, True), (64, 64, 32, True, False), (65, 140, 12, None, True), (5, 100, 16, None, False),
    (65, 65, 16, False, False), (300, 300, 16, True, True),
]  # fmt: skip
"""Queries, keys, features, what the bias sees (both sides, back only, none), whether some keys hide."""
ON_GPU = [
    (512, 512, 64, True, True), (512, 512, 64, True, False), (65, 512, 64, None, True), (65, 65, 64, False, False),
    (300, 300, 128, True, True), (128, 128, 16, True, True),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_the_formula(case):
    found, expected = results(attend, case, torch.float32), results(written_out, case, torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 1e-5 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_GPU)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_they_are_as_exact_as_their_inputs(case, dtype):
    found, expected = results(attend, case, dtype, "cuda"), results(written_out, case, torch.float64, "cuda")
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < (5e-2 if dtype == torch.bfloat16 else 1e-2) * other.norm()


@pytest.mark.parametrize("two_sided", [True, False])
def test_bias_is_a_lookup_by_distance_and_its_last_row_that_of_a_step(two_sided):
    bias = PositionBias(3, 8, 20, two_sided)
    torch.nn.init.normal_(bias.table)
    full = bias(30)
    assert full.shape == (3, 30, 30)
    for q, k in ((0, 0), (29, 0), (7, 4), (11, 11)):
        assert torch.equal(full[:, q, k], bias._lookup(torch.tensor([k - q]))[:, 0])
    assert torch.equal(full[:, 17:18, :18], bias.at(17))
    assert bool((full[:, 3, 4:] == HIDDEN).all()) != two_sided
    full[:, 5:9, :4].sum().backward()
    distances = (torch.arange(4)[None] - torch.arange(5, 9)[:, None]).flatten()
    table = bias.table.detach().clone().requires_grad_()
    table[position_buckets(distances, 8, 20, two_sided)].sum().backward()
    assert torch.allclose(bias.table.grad, table.grad)


@pytest.mark.parametrize("two_sided", [True, False])
def test_attention_may_start_near_by(two_sided):
    position = PositionBias(heads=3, buckets=32, max_distance=128, two_sided=two_sided)
    position.start_near()
    bias = position(40)
    back = bias[:, -1].flip(-1)  # from the last place, the nearest first
    assert (back.diff() <= 0).all()
    torch.testing.assert_close(back[:, 1], torch.tensor([-1.0, -1 / 8, -1 / 64]))
    torch.testing.assert_close(back[0, :8], -torch.arange(8.0))  # places near by have buckets of their own
    if two_sided:
        torch.testing.assert_close(bias, bias.transpose(1, 2))


def test_a_start_near_by_changes_nothing_but_positions():
    tokenizer, config = ChronosTokenizer(num_ids=34), T5Config.named("test", vocabulary=34, context=8, horizon=4)
    plain, near = (
        dict(build_forecaster(tokenizer, replace(config, near=near), seed=0).named_parameters())
        for near in (False, True)
    )
    differ = {name for name in plain if not torch.equal(plain[name], near[name])}
    assert differ == {"encoder.position.table", "decoder.position.table"}
