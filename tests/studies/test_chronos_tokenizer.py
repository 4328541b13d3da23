"""The tokenizer of series: the round trip within half a bin, missing values, scales, and what was released."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.chronos.tokenizer import EOS, NUM_SPECIAL, PAD, ChronosTokenizer

from fourier_head import FourierHead

NAN = math.nan
ONE = torch.tensor(1.0)
KINDS = ["mixed", "uniform"]


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return ChronosTokenizer(request.param)


# --- the round trip


def test_every_id_comes_back_as_itself(tokenizer):
    ids = torch.arange(NUM_SPECIAL, tokenizer.num_ids)
    assert tokenizer.num_ids == 4096
    assert torch.equal(tokenizer.encode(tokenizer.decode(ids), ONE).ids, ids)


def test_no_value_moves_further_than_half_its_bin(tokenizer):
    edges = tokenizer.bins.edges
    generator = torch.Generator().manual_seed(0)
    inside = torch.rand(20000, generator=generator, dtype=torch.float64) * 30 - 15
    # Edges and their neighbours in floating point are where an error of one bin would show.
    for dtype in (torch.float64, torch.float32):
        up, down = (torch.nextafter(edges.to(dtype), torch.tensor(end, dtype=dtype)) for end in (99.0, -99.0))
        x = torch.cat([inside.to(dtype), edges.to(dtype), up, down]).clamp(-15, 15)
        tokens = tokenizer.encode(x, ONE)
        widths = tokenizer.bins.widths[tokens.ids - NUM_SPECIAL]
        error = (tokenizer.decode(tokens.ids) - x.double()).abs()
        assert bool((error <= widths / 2 * (1 + 1e-12)).all())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=40), st.sampled_from(KINDS))
def test_the_bound_holds_for_any_series_under_its_own_scale(values, kind):
    tokenizer = TOKENIZERS[kind]
    x = torch.tensor([values], dtype=torch.float64)
    tokens = tokenizer.encode(x)
    scaled = x / tokens.scale[:, None]
    inside = scaled.abs() <= 15
    widths = tokenizer.bins.widths[tokens.ids - NUM_SPECIAL]
    error = (tokenizer.decode(tokens.ids, tokens.scale) - x).abs() / tokens.scale[:, None]
    assert bool((error <= widths / 2 + 1e-9)[inside].all())


TOKENIZERS = {kind: ChronosTokenizer(kind) for kind in KINDS}


def test_mixed_bins_are_fine_where_the_data_is():
    bins = ChronosTokenizer("mixed").bins
    dense = (bins.centers > -1) & (bins.centers < 10)
    assert bins.num_bins == 4094
    assert int((~dense).sum()) == math.floor(0.2 * 4094)
    assert bins.widths[dense].max() < ChronosTokenizer("uniform").bins.widths.min() < bins.widths[~dense].min()


# --- scales, missing values, ends


def test_the_scale_is_the_mean_absolute_value_of_what_is_there(tokenizer):
    series = [[-1.0, 3.0, NAN, NAN], [0.0, 0.0, 0.0, 0.0], [NAN] * 4, [1e38] * 4, [1e-30, -3e-30, 2e-30, NAN]]
    scale = tokenizer.scale_of(torch.tensor(series))
    torch.testing.assert_close(scale, torch.tensor([2.0, 1.0, 1.0, 1e38, 2e-30], dtype=torch.float64))
    # In float32 the sum of four values of 1e38 would be infinite.
    assert tokenizer.decode(*tokenizer.encode(torch.tensor(series))[::2]).isfinite().sum() == 2 + 4 + 0 + 4 + 3


def test_missing_values_are_padding_and_are_masked(tokenizer):
    x = torch.tensor([[NAN, 1.0, math.inf, -2.0]])
    tokens = tokenizer.encode(x)
    assert tokens.mask.tolist() == [[False, True, False, True]]
    assert tokens.ids[0, 0] == tokens.ids[0, 2] == PAD
    assert tokens.scale.item() == 1.5
    assert tokenizer.decode(tokens.ids, tokens.scale).isnan().tolist() == [[True, False, True, False]]


def test_values_outside_go_to_the_ends(tokenizer):
    x = torch.tensor([-1e30, -16.0, 0.0, 16.0, 1e30, NAN])
    ids = tokenizer.encode(x, ONE).ids.tolist()
    assert ids[:2] == [NUM_SPECIAL] * 2
    assert ids[3:] == [tokenizer.num_ids - 1] * 2 + [PAD]


def test_contexts_end_with_eos_and_labels_ignore_what_is_missing(tokenizer):
    series = torch.arange(1.0, 601.0)[None].repeat(2, 1)
    series[1, :300] = NAN
    context, target = series[:, :-3], series[:, -3:].clone()
    target[0, 1] = NAN
    tokens = tokenizer.encode_context(context)
    assert tokens.ids.shape == tokens.mask.shape == (2, 513)
    assert tokens.ids[:, -1].tolist() == [EOS, EOS]
    assert bool(tokens.mask[:, -1].all())
    torch.testing.assert_close(tokens.scale, tokenizer.scale_of(context[:, -512:]))
    labels = tokenizer.labels(target, tokens.scale)
    assert labels.shape == (2, 4)
    assert labels[0, 1] == -100
    assert labels[:, -1].tolist() == [EOS, EOS]
    assert torch.equal(labels[1, :3], tokenizer.encode(target[1], tokens.scale[1]).ids)


def test_sample_paths_decode_under_the_scale_of_their_series(tokenizer):
    scale = torch.tensor([1.0, 100.0])
    ids = tokenizer.encode(torch.full((2, 5, 7), 0.5), torch.ones(2, 5)).ids
    paths = tokenizer.decode(ids, scale)
    assert paths.shape == (2, 5, 7)
    torch.testing.assert_close(paths[1], 100 * paths[0])


def test_special_tokens_are_the_atoms_of_a_head(tokenizer):
    head = FourierHead(4, domain=tokenizer.bins, num_frequencies=8, num_atoms=NUM_SPECIAL)
    assert head.out_features == tokenizer.num_ids
    labels = tokenizer.labels(torch.tensor([[0.3, NAN, -4.0]]), torch.ones(1))
    x = torch.randn(1, 4, 4)
    wanted = torch.nn.functional.cross_entropy(head(x).flatten(0, 1), labels.flatten())
    torch.testing.assert_close(head.loss(x, labels), wanted)


def test_settings_survive_json_and_bad_ones_get_one_sentence(tokenizer):
    for one in (tokenizer, ChronosTokenizer(tokenizer.kind, num_ids=300, released=True)):
        again = ChronosTokenizer(**json.loads(json.dumps(asdict(one))))
        assert torch.equal(again.values, one.values) or torch.allclose(again.values, one.values, equal_nan=True)
        assert repr(again) == repr(one)
    with pytest.raises(ValueError, match="kind must be"):
        ChronosTokenizer("even")
    with pytest.raises(ValueError, match="num_ids must be"):
        ChronosTokenizer(num_ids=2)
    with pytest.raises(ValueError, match="two bins for every range"):
        ChronosTokenizer(num_ids=10, released=True)


# --- what was released


def released_by_hand(x):
    """Return ids and decoded values of mixed bins, range by range, after the description of the released code."""
    left, dense, right = 603, 3278, 215  # 20 % of 4096 ids, shared 14 : 5 between the sparse ranges
    table = torch.cat(
        [
            torch.linspace(-15, -1, left - 3, dtype=torch.float64),
            torch.linspace(-1, 10, dense - 1, dtype=torch.float64)[1:],
            torch.linspace(10, 15, right - 1, dtype=torch.float64)[1:],
        ]
    )
    ids = torch.zeros_like(x, dtype=torch.long)
    for low, high, count, first, chosen in (
        (-15, -1, left - 3, 3, x < -1),
        (-1, 10, dense - 1, left + 1, (x >= -1) & (x < 10)),
        (10, 15, right - 1, left + dense + 1, x >= 10),
    ):
        nearest = (x - low) * (count - 1) / (high - low) + 0.5
        ids = torch.where(chosen, first + nearest.floor().clamp(0, count - 1).long(), ids)
    return ids, table[(ids - 3).clamp(0, len(table) - 1)]


def test_the_released_mixed_tokenizer_is_reproduced_with_its_slip():
    tokenizer = ChronosTokenizer("mixed", released=True)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50000, generator=generator, dtype=torch.float64) * 32 - 16
    ids, decoded = released_by_hand(x)
    tokens = tokenizer.encode(x, ONE)
    assert torch.equal(tokens.ids, ids)
    torch.testing.assert_close(tokenizer.decode(tokens.ids), decoded)
    # Away from the ends of the ranges the error is that of the bin plus 0, 2 or 4 bins.
    for low, high, width, bins_high in ((-15, -1.1, 14 / 599, 0), (-1, 9.9, 11 / 3276, 2), (10.1, 14.8, 5 / 213, 4)):
        chosen = (x > low) & (x < high)
        error = (tokenizer.decode(tokens.ids) - x)[chosen] / width
        assert bins_high - 0.5001 < error.min() < error.max() < bins_high + 0.5001
    assert tokenizer.bins is None
    assert tokenizer.num_bins == 4094


def test_released_uniform_bins_are_those_of_chronos():
    tokenizer = ChronosTokenizer("uniform", released=True)
    centers = torch.linspace(-15, 15, 4093, dtype=torch.float64)
    ids = torch.arange(3, 4096)
    torch.testing.assert_close(tokenizer.decode(ids), centers)
    assert torch.equal(tokenizer.encode(centers, ONE).ids, ids)
    # Special tokens decode to the lowest value there, and id 2 is never used.
    assert tokenizer.decode(torch.arange(3)).tolist() == [-15.0] * 3


@pytest.mark.gpu
def test_ids_are_the_same_on_every_device(tokenizer):
    x = 5 * torch.randn(100, 64)
    here, there = tokenizer.encode(x, eos=True), tokenizer.encode(x.cuda(), eos=True)
    assert torch.equal(here.ids, there.ids.cpu())
    torch.testing.assert_close(
        tokenizer.decode(here.ids, here.scale), tokenizer.decode(there.ids, there.scale).cpu(), equal_nan=True
    )
