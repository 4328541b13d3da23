"""Both attentions of the T5 equal attention written out in float64, and so do their gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from studies.chronos.t5 import HeadSettings, build_forecaster
from studies.chronos.t5.attention import HIDDEN, PositionBias, attention, visible_blocks
from studies.chronos.tokenizer import ChronosTokenizer
from torch.nn.attention import flex_attention as flex

from tests.studies.test_chronos_t5 import IDS, TINY, batch


def written_out(query, key, value, bias=None, hide=None):
    """Return attention as a formula: a softmax between two products of matrices, scores not scaled."""
    scores = query @ key.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    if hide is not None:
        scores = scores + hide[:, None, None]
    return torch.softmax(scores, dim=-1) @ value


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


def results(kind, case, dtype, device="cpu", compiled=False):
    """Return what queries find and the gradients of queries, keys, values and the table."""
    (query, key, value), table, hide, upstream = drawn(case, dtype, device)

    def found(query, key, value, table):
        bias = None
        if table is not None:
            position = PositionBias(2, 8, 20, bool(case[3])).to(device)
            bias = torch.func.functional_call(position, {"table": table}, (case[0],))
        if kind == "written out":
            return written_out(query, key, value, None if bias is None else bias.to(dtype), hide)
        return attention(kind, bias, hide, queries=case[0])(query, key, value)

    out = (torch.compile(found, dynamic=False) if compiled else found)(query, key, value, table)
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
@pytest.mark.parametrize("kind", ["sdpa", "flex"])
def test_results_and_gradients_are_those_of_the_formula(kind, case, monkeypatch):
    # FlexAttention outside of a compiled region is its own definition, with gradients, which it refuses to give on a
    # CPU for want of a kernel there. Score and mask are the same functions that a GPU's kernel is made of.
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    found, expected = results(kind, case, torch.float32), results("written out", case, torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 1e-5 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_GPU)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_on_a_gpu_they_are_as_exact_as_their_inputs(case, dtype):
    torch._dynamo.reset()
    found = results("flex", case, dtype, "cuda", compiled=True)
    expected = results("written out", case, torch.float64, "cuda")
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < (5e-2 if dtype == torch.bfloat16 else 1e-2) * other.norm()


def test_blocks_are_left_out_where_nothing_is_seen_and_whole_where_everything_is():
    seen = torch.ones(2, 300, dtype=torch.bool)
    seen[0, :130] = False
    blocks = visible_blocks(seen, 65)
    assert blocks.shape == (2, 1, 65, 300)
    assert blocks.kv_num_blocks.flatten().tolist() == [1, 0]  # half a block hides
    assert blocks.full_kv_num_blocks.flatten().tolist() == [1, 3]
    assert blocks.kv_indices[0, 0, 0, 0] == 1
    assert blocks.full_kv_indices[0, 0, 0, 0] == 2
    pairs = flex.create_mask(blocks.mask_mod, 2, 1, 65, 300, "cpu")
    assert torch.equal(pairs[:, 0], seen[:, None].expand(-1, 65, -1))


def test_a_forecaster_finds_the_same_by_both():
    tokenizer = ChronosTokenizer(num_ids=IDS)
    model = build_forecaster(tokenizer, replace(TINY, head_width=16), HeadSettings(frequencies=9), seed=0)
    with torch.no_grad():
        one, other = (model(*batch(), kind) for kind in ("sdpa", "flex"))
    assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.gpu
def test_a_forecaster_trains_the_same_by_both():
    tokenizer = ChronosTokenizer(num_ids=IDS)
    model = build_forecaster(tokenizer, replace(TINY, head_width=16), HeadSettings(frequencies=9), seed=0).cuda()
    ids, mask, labels = (x.cuda() for x in batch())
    parameters = [p for name, p in model.named_parameters() if not name.startswith("head.")]
    gradients = []
    for forward, kind in ((model.forward, "sdpa"), (torch.compile(model.forward, dynamic=False), "flex")):
        states = forward(ids, mask, labels, kind)
        gradients.append((states, *torch.autograd.grad(states.square().sum(), parameters)))
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() < 1e-2 * one.norm()
