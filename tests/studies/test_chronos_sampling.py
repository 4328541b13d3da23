"""Sample paths that share out what may happen: each as random as by itself, together closer to the truth."""

import pytest
import torch
from studies.chronos.t5 import T5Config, T5Forecaster, T5Predictor
from studies.chronos.t5.predict import spread_levels
from studies.chronos.tokenizer import ChronosTokenizer

from fourier_head import FourierHead


@pytest.mark.parametrize("paths", [1, 2, 7, 20])
def test_levels_fill_every_part_once_and_are_uniform_and_independent_for_one_path(paths):
    generator = torch.Generator().manual_seed(0)
    before, rounds = torch.randint(50, (4000, paths), generator=generator), []
    for _ in range(2):
        levels = spread_levels(before, generator)
        parts = (levels * paths).long().sort(dim=-1).values
        assert torch.equal(parts, torch.arange(paths).expand_as(parts))
        rounds.append(levels[:, 0])
        before = (levels * 50).long()
    for one in rounds:  # the moments of a uniform number, within four standard errors
        assert abs(one.mean() - 0.5) < 4 * 12**-0.5 / 4000**0.5
        assert abs(one.var() - 1 / 12) < 4 * 0.0745 / 4000**0.5
    assert abs(torch.corrcoef(torch.stack(rounds))[0, 1]) < 4 / 4000**0.5


def test_means_of_a_random_walk_are_less_noisy_with_spread_levels():
    generator = torch.Generator().manual_seed(0)
    walks = {}
    for spread in (False, True):
        place = torch.zeros(2000, 20)
        for _ in range(8):
            level = spread_levels(place, generator) if spread else torch.rand(place.shape, generator=generator)
            place = place + level - 0.5
        walks[spread] = place
    # Every path is as wide as before, and means of twenty vary far less.
    assert abs(walks[True].var() / walks[False].var() - 1) < 0.05
    assert walks[True].mean(1).var() < 0.1 * walks[False].mean(1).var()


def test_a_forecaster_draws_spread_paths():
    tokenizer = ChronosTokenizer(num_ids=66)
    config = T5Config.named("test", vocabulary=66, context=16, horizon=4)
    model = T5Forecaster(config, FourierHead(config.width, None, 8, num_atoms=2, domain=tokenizer.bins))
    contexts = [torch.arange(9.0).numpy()] * 200
    first = {
        spread: torch.from_numpy(T5Predictor(model, tokenizer, paths=20, spread=spread).samples(contexts, 4))[:, :, 0]
        for spread in (False, True)
    }
    assert abs(first[True].mean() / first[False].mean() - 1) < 0.2
    # All series are the same, so their medians differ by the noise of sampling alone.
    assert first[True].median(1).values.var() < 0.2 * first[False].median(1).values.var()


def test_tails_are_left_out_of_what_is_drawn():
    tokenizer = ChronosTokenizer(num_ids=66)
    config = T5Config.named("test", vocabulary=66, context=16, horizon=4)
    model = T5Forecaster(config, FourierHead(config.width, None, 8, num_atoms=2, domain=tokenizer.bins))
    context = torch.arange(9.0).numpy()
    at, probabilities = T5Predictor(model, tokenizer).next_probabilities(context)
    scale = abs(context).mean()
    for tails in (0.0, 0.1, 0.4):
        predictor = T5Predictor(model, tokenizer, paths=500, tails=tails)
        drawn = torch.from_numpy(predictor.samples([context] * 8, 1)).flatten() / scale
        # Ids between the quantiles of either end, and all of them where nothing is cut.
        inside = (probabilities.cumsum() > tails) & (probabilities[::-1].cumsum()[::-1] > tails)
        low, high = at[inside].min(), at[inside].max()
        assert low - 1e-3 <= drawn.min()
        assert drawn.max() <= high + 1e-3
        cut = probabilities[inside].copy()
        assert abs(drawn.mean() - (at[inside] * cut).sum() / cut.sum()) < 0.5
    for bad in (-0.1, 0.5):
        with pytest.raises(ValueError, match="tails must be"):
            T5Predictor(model, tokenizer, tails=bad)
