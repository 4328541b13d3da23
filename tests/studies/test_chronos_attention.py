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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("keys", [65, 140])
def test_results_and_gradients_are_those_of_the_formula(keys, device):
    """Those of what is added to scores, too, where some keys are hidden."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((65, 16), (keys, 16), (keys, 16), (65, keys))
    given = [torch.randn(3, 2, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    given[3][0, ..., : keys // 2 + 3] = given[3][1, ..., -2:] = HIDDEN
    upstream = torch.randn(3, 2, 65, 16, generator=generator)
    results = []
    for attention, dtype in ((attend, torch.float32), (written_out, torch.float64)):
        own = [one.to(device, dtype).requires_grad_() for one in given]
        out = attention(*own)
        results.append([out, *torch.autograd.grad(out, own, upstream.to(out))])
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() < (1e-5 if device == "cpu" else 1e-2) * other.norm()


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
