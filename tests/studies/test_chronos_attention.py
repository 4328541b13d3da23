"""Fused attention equals plain attention in float64: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch
from torch.nn import functional

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)
from studies.chronos.t5 import attention_function
from studies.chronos.t5 import attention_ops as ops
from studies.chronos.t5.attention import HIDDEN, MARGIN, Contexts, PositionBias, attend, attend_self, rules

from tests.studies.test_chronos_t5 import batch, tiny

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def attention_results(kind, queries, keys, width, two_sided, hide, dtype):
    """Return the output and the gradients of queries, keys, values and, where there is one, the table of the bias."""
    generator = torch.Generator().manual_seed(0)

    def draw(length):  # heads lie behind time, as a projection writes them
        x = torch.randn(3, length, 2, width, generator=generator).transpose(1, 2)
        return x.to(DEVICE, torch.float64 if kind == "plain" else dtype).requires_grad_()

    inputs = [draw(length) for length in (queries, keys, keys)]
    upstream = torch.randn(3, 2, queries, width, generator=generator)
    bias = None
    if two_sided is not None:
        position = PositionBias(2, 8, 20, two_sided).to(DEVICE)
        with torch.no_grad():
            position.table.copy_(torch.randn(8, 2, generator=generator))
        inputs.append(position.table)
        bias = position(queries, kind)
    out = attend(*inputs[:3], bias, None if hide is None else hide.to(DEVICE), kind)
    return out, *torch.autograd.grad(out, inputs, upstream.to(out))


def fused_and_plain(case, dtype):
    """Return the results of both kinds on a case: queries, keys, features, what the bias sees, whether keys hide."""
    queries, keys, width, two_sided, some_hidden = case
    hide = hidden_keys(keys) if some_hidden else None
    return (attention_results(kind, queries, keys, width, two_sided, hide, dtype) for kind in ("fused", "plain"))


def table_of(lines):
    """Return the bias by distance as fused attention takes it."""
    return functional.pad(lines * math.log2(math.e), (MARGIN, MARGIN))


def hidden_keys(keys):
    """Hide a beginning that spans whole blocks, a middle and an end, and nothing."""
    hide = torch.zeros(3, keys)
    hide[0, : keys // 2 + 3] = HIDDEN
    hide[1, 3:7] = HIDDEN
    hide[1, -2:] = HIDDEN
    return hide


ANYWHERE = [
    (70, 70, 16, True, True), (64, 64, 32, True, False), (65, 40, 12, None, True), (5, 100, 16, None, False),
    (65, 65, 16, False, False), (40, 40, 128, True, True),
]  # fmt: skip
ON_GPU = [
    (512, 512, 64, True, True), (512, 512, 64, True, False), (65, 512, 64, None, True), (65, 65, 64, False, False),
    (300, 300, 128, True, True), (128, 128, 16, True, True),
]  # fmt: skip


@pytest.mark.parametrize("case", ANYWHERE)
def test_fused_attention_has_the_results_and_gradients_of_plain_attention(case):
    found, expected = fused_and_plain(case, torch.float32)
    assert found[0].transpose(1, 2).is_contiguous()  # heads are merged without a copy
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 1e-5 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_GPU)
def test_fused_attention_in_bfloat16_is_as_exact_as_its_inputs(case):
    found, expected = fused_and_plain(case, torch.bfloat16)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 5e-2 * other.norm()


def test_fused_attention_of_parts_of_a_batch_is_that_of_the_whole(monkeypatch):
    arguments = (40, 40, 16, True, hidden_keys(40), torch.float32)
    whole = attention_results("fused", *arguments)
    monkeypatch.setattr(ops, "SCRATCH", 2 * 2 * 64 * 64 * 4)  # two samples of three
    for one, other in zip(attention_results("fused", *arguments), whole, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("two_sided", [True, False])
def test_packed_projections_get_packed_gradients(two_sided):
    position = PositionBias(2, 8, 20, two_sided).to(DEVICE)
    torch.nn.init.normal_(position.table)
    packed = torch.randn(3, 40, 3, 2, 16, device=DEVICE, requires_grad=True)
    # Looking back only, some queries would see nothing, where plain attention finds anything.
    hide = hidden_keys(40).to(DEVICE) if two_sided else None
    results = []
    for kind in ("plain", "fused"):
        found = attend_self(packed, rules(kind, position(40, kind), hide))
        results.append((found, *torch.autograd.grad(found.square().sum(), (packed, position.table))))
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * one.norm()


@pytest.mark.parametrize("used", [(0, 1, 2), (0, 1), (1, 2)])
@pytest.mark.parametrize("compiled", [False, True])
def test_layers_leave_their_gradients_of_contexts_in_one_tensor(used, compiled):
    query = torch.randn(3, 37, 1, 2, 16, device=DEVICE, requires_grad=True)
    packed = torch.randn(3, 40, 3, 2, 2, 16, device=DEVICE, requires_grad=True)
    hide = hidden_keys(40).to(DEVICE)

    def found(kind, query, packed):
        given, contexts, total = rules(kind, None, hide), Contexts(1 * packed), 0.0
        for layer in range(max(used) + 1):
            x = contexts.attend(query, layer, given)
            if layer in used:  # what others find is not used, and has no gradient
                query, total = query + x[:, :, None], total + (layer + 1) * x.square().sum()
        return total

    torch._dynamo.reset()  # what was compiled for other layers may not be used again
    results = []
    for kind in ("plain", "fused"):
        function = torch.compile(found, fullgraph=True, backend="aot_eager") if compiled else found
        total = function(kind, query, packed)
        results.append((total, *torch.autograd.grad(total, (query, packed))))
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() < 1e-5 * one.norm()
    with pytest.raises(ValueError, match=r"layers must .*got 1 instead of 0"):
        Contexts(packed).attend(query, 1, rules("fused"))


def test_queries_that_see_nothing_find_zeros_and_send_no_gradient():
    q, k, v = (torch.randn(2, 2, 40, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    hide = torch.zeros(2, 40, device=DEVICE)
    hide[0] = HIDDEN
    hide[1, 0] = HIDDEN
    lines = torch.zeros(2, 80, device=DEVICE)
    lines[:, 41:] = HIDDEN  # looking back only: the first query of the second sample sees nothing either
    lines.requires_grad_()
    out = attend(q, k, v, table_of(lines), hide, "fused")
    out.square().sum().backward()
    assert (out[0] == 0).all()
    assert (out[1, :, 0] == 0).all()
    assert (out[1, :, 1:] != 0).any(-1).all()
    assert (q.grad[0] == 0).all()
    for tensor in (q, k, v, lines):
        assert torch.isfinite(tensor.grad).all()
        assert tensor.grad.abs().sum() > 0


def test_what_is_not_a_number_stays_so():
    x = torch.randn(1, 1, 20, 16, device=DEVICE)
    x[0, 0, 3] = torch.nan
    out = attend(x, x, x, table_of(torch.zeros(1, 40, device=DEVICE)), hidden_keys(20)[2:].to(DEVICE), "fused")
    assert out.isnan().all()
    out = attend(x, x[:, :, 4:], x[:, :, 4:], None, None, "fused")
    assert out.isnan().any(-1).nonzero().tolist() == [[0, 0, 3]]


def test_a_forecaster_with_fused_attention_trains_as_with_plain_attention():
    model = tiny()[0].to(DEVICE)
    ids, mask, labels = (x.to(DEVICE) for x in batch())
    parameters = [p for name, p in model.named_parameters() if not name.startswith("head.")]
    results = []
    for kind in ("plain", "fused"):
        states = model(ids, mask, labels, kind)
        results.append((states, *torch.autograd.grad(states.square().sum(), parameters)))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_fused_attention_says_what_it_cannot_do(monkeypatch):
    x = torch.randn(1, 2, 6, 16, device=DEVICE)
    with pytest.raises(ValueError, match="dropout must be 0 with fused attention"):
        attend(x, x, x, kind="fused", dropout=0.1)
    with pytest.raises(ValueError, match=r"by distance up to 6, got \(2, 6, 6\)"):
        attend(x, x, x, torch.zeros(2, 6, 6, device=DEVICE), kind="fused")
    wide = torch.randn(1, 2, 6, 130, device=DEVICE)
    with pytest.raises(ValueError, match="up to 128 features"):
        attend(wide, wide, wide, kind="fused")
    monkeypatch.setattr(attention_function, "INTERPRETED", False)
    with pytest.raises(ValueError, match="needs a CUDA device"):
        attend(*(x.cpu() for _ in range(3)), kind="fused")


def test_fused_attention_is_traced_by_compilers():
    q, k, v = (torch.randn(2, 2, 20, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    lines, hide = torch.randn(2, 40 + 2 * MARGIN, device=DEVICE, requires_grad=True), hidden_keys(20)[:2].to(DEVICE)
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    results = []
    for function in (attend, compiled):
        out = function(q, k, v, lines, hide, "fused")
        results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v, lines))))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
