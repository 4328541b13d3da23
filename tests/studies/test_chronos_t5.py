"""The T5 forecaster: equal to transformers' T5, its cache to full recomputation, its loss to plain cross-entropy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.chronos.t5 import (
    HeadSettings,
    T5Config,
    T5Forecaster,
    T5Objective,
    T5Predictor,
    build_forecaster,
    load_forecaster,
    load_predictor,
    save_forecaster,
)
from studies.chronos.t5.model import shift
from studies.chronos.tokenizer import EOS, ChronosTokenizer
from torch import Tensor
from torch.nn import functional

from fourier_head import FourierHead
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.heads.baselines import LinearHead
from fourier_head.training.loop import Training
from fourier_head.training.settings import TrainingSettings
from tests.studies.t5_weights import config_from_transformers, from_transformers, to_transformers

IDS = 66
TINY = T5Config(
    context=24, horizon=6, vocabulary=IDS, width=16, inner=32, layers=2, heads=2, head_width=12, buckets=8,
    max_distance=20, init=1.0,
)  # fmt: skip


def tiny(head: str = "fourier", seed: int = 0, tied: bool = False) -> tuple[T5Forecaster, ChronosTokenizer]:
    tokenizer = ChronosTokenizer(num_ids=IDS)
    return build_forecaster(tokenizer, TINY, HeadSettings(head, frequencies=9, tied=tied), seed), tokenizer  # type: ignore[arg-type]


def batch(rows: int = 5, length: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, IDS, (rows, length), generator=generator)
    mask = torch.rand(rows, length, generator=generator) < 0.8
    mask[:, -1] = True
    labels = torch.randint(2, IDS, (rows, 7), generator=generator)
    labels[0, 3:] = -100
    return ids, mask, labels


# --- transformers' T5


@pytest.fixture(scope="module")
def theirs():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=IDS, d_model=16, d_kv=12, d_ff=32, num_layers=2, num_heads=2, relative_attention_num_buckets=8,
        relative_attention_max_distance=20, dropout_rate=0.0, feed_forward_proj="relu", pad_token_id=0,
        decoder_start_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(config).eval()


def ours_from(theirs: torch.nn.Module) -> T5Forecaster:
    config = config_from_transformers(theirs.config, context=24, horizon=6)
    model = T5Forecaster(config, LinearHead(config.width, IDS, bias=False))
    model.load_state_dict(from_transformers(theirs.state_dict(), config))
    return model.eval()


def test_logits_equal_transformers(theirs):
    model = ours_from(theirs)
    ids, mask, labels = batch()
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=shift(labels)).logits
        logits = model.head.proj(model(ids, mask, labels))
    assert torch.allclose(logits, expected, atol=1e-4, rtol=1e-4)


def test_greedy_decoding_with_cache_equals_transformers(theirs):
    model = ours_from(theirs)
    ids, mask, _ = batch()
    with torch.no_grad():
        options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "use_cache": True, "num_beams": 1}
        expected = theirs.generate(input_ids=ids, attention_mask=mask.long(), **options)[:, 1:]
        states, hide = model.encode(ids, mask)
        memory = model.decoder.remember(states, hide, 1, 6)
        token, out = torch.zeros(len(ids), 1, dtype=torch.long), []
        for step in range(6):
            logits = model.head.proj(model.next_state(token, memory, step))
            logits[..., EOS] = -torch.inf  # what min_new_tokens does there
            token = logits.argmax(-1)
            out.append(token)
    assert torch.equal(torch.cat(out, 1), expected)


def test_weights_go_to_transformers_and_back(theirs):
    state = theirs.state_dict()
    model = ours_from(theirs)
    back = to_transformers(model.state_dict(), model.config)
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_shapes_we_do_not_have_are_refused():
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="must be 'relu'"):
        config_from_transformers(transformers.T5Config(feed_forward_proj="gated-gelu"))


def test_mini_has_the_size_of_chronos_mini():
    model = build_forecaster(ChronosTokenizer(), T5Config.named("mini"), HeadSettings("linear", tied=True))
    assert round(sum(p.numel() for p in model.parameters()) / 1e6) == 20
    with pytest.raises(UserError, match="did you mean mini"):
        T5Config.named("mimi")


# --- decoding


@pytest.mark.parametrize("head", ["fourier", "linear"])
def test_cached_steps_equal_full_recomputation(head):
    model, _ = tiny(head)
    ids, mask, labels = batch()
    labels = labels.clamp_min(2)
    paths = torch.stack([labels, labels.roll(1, 0)], 1)  # two paths of each series, different ones
    with torch.no_grad():
        states, hide = model.encode(ids, mask)
        memory = model.decoder.remember(states, hide, 2, paths.shape[-1])
        for step in range(paths.shape[-1]):
            token = paths[..., step - 1] if step else torch.zeros_like(paths[..., 0])
            got = model.next_state(token, memory, step)
            for path in (0, 1):
                full = model(ids, mask, paths[:, path])[:, step]
                assert torch.allclose(got[:, path], full, atol=1e-5)


def test_contexts_of_any_length_padding_does_not_matter():
    model, tokenizer = tiny()
    predictor = T5Predictor(model, tokenizer, paths=4, probes=2)
    contexts = [np.arange(1.0, 40), np.array([3.0]), np.full(9, np.nan), np.zeros(5), np.array([np.nan, 2.0, 4.0])]
    samples = predictor.samples(contexts, 5)
    assert samples.shape == (5, 4, 5)
    assert np.isfinite(samples).all()
    assert predictor.smoothness.shape == (2 * 5,)
    assert (predictor.smoothness > 0).all()
    # What stands before a context, missing, changes no probability.
    with torch.no_grad():
        log_probs = []
        for pad in (0, 11):
            values = torch.cat([torch.full((1, pad), math.nan), torch.tensor([[1.0, 5.0, 2.0]])], 1)
            tokens = tokenizer.encode_context(values)
            log_probs.append(model.head(model(tokens.ids, tokens.mask, torch.full((1, 3), 9))))
    assert torch.allclose(*log_probs, atol=1e-5)


def test_samples_follow_the_predicted_probabilities():
    model, tokenizer = tiny("linear")
    predictor = T5Predictor(model, tokenizer, paths=40_000)
    context = np.arange(1.0, 20)
    samples = predictor.samples([context], 1)[0, :, 0]
    tokens = tokenizer.encode_context(torch.from_numpy(context)[None])
    with torch.no_grad():
        log_probs = model.head(model(tokens.ids, tokens.mask, torch.full((1, 1), 9)))[0, 0, 2:]
    expected = torch.softmax(log_probs, -1).double()
    values = tokenizer.decode(torch.arange(2, IDS), tokens.scale.expand(1))
    counts = torch.from_numpy((samples[:, None] == values.numpy()).mean(0))
    assert counts.sum().item() == pytest.approx(1)
    assert (counts - expected).abs().max() < 4 * math.sqrt(0.25 / 40_000)


def test_top_k_narrows_what_is_drawn():
    model, tokenizer = tiny("linear")
    context = [np.arange(1.0, 20)]
    few = T5Predictor(model, tokenizer, paths=500, top_k=3).samples(context, 1)
    assert len(np.unique(few)) <= 3


def test_long_horizons_roll_on_with_the_median():
    model, tokenizer = tiny()
    predictor = T5Predictor(model, tokenizer, paths=3)
    context = np.sin(np.arange(15.0)) + 2
    samples = predictor.samples([context], 10)  # 6 + 4
    assert samples.shape == (1, 3, 10)
    assert np.array_equal(samples, predictor.samples([context], 10))  # every call starts from the seed
    assert np.array_equal(samples[..., :6], predictor.samples([context], 6))
    assert predictor([context], 10, None).quantiles.shape == (1, 10, 13)


# --- the loss


@pytest.mark.parametrize("head", ["fourier", "linear"])
def test_loss_equals_cross_entropy_of_logits(head):
    model, tokenizer = tiny(head)
    objective = T5Objective(model, tokenizer)
    generator = torch.Generator().manual_seed(0)
    context, future = torch.randn(6, 40, generator=generator), torch.randn(6, 9, generator=generator)
    context[0, :30], context[1, 20:25], context[2] = math.nan, math.nan, math.nan
    future[0, 2:], future[1, 3] = math.nan, math.nan
    tokens = tokenizer.encode_context(context, TINY.context - 1)
    assert tokens.ids.shape == (6, TINY.context)
    assert (tokens.ids[:, -1] == EOS).all()
    labels = tokenizer.labels(future[:, :6], tokens.scale)
    assert (labels[0, 2:6] == -100).all()
    assert labels[0, 6] == EOS
    logits = model.head(model(tokens.ids, tokens.mask, labels))
    expected = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert torch.allclose(objective(context, future), expected, atol=1e-5)


def test_groups_by_length_change_nothing_for_rows_that_fit():
    model, tokenizer = tiny()
    generator = torch.Generator().manual_seed(0)
    context, future = torch.rand(6, 23, generator=generator), torch.rand(6, 6, generator=generator)
    for row, length in enumerate((23, 5, 9, 20, 3, 9)):
        context[row, : 23 - length] = math.nan
    whole = T5Objective(model, tokenizer)(context, future)
    grouped = T5Objective(model, tokenizer, lengths=(10, 24))
    assert torch.allclose(grouped(context, future), whole, atol=1e-5)
    short = T5Objective(model, tokenizer, lengths=(4, 24))(context, future)  # now some lose their oldest values
    assert torch.isfinite(short)
    assert not torch.allclose(short, whole, atol=1e-6)
    with pytest.raises(ValueError, match="must ascend"):
        T5Objective(model, tokenizer, lengths=(24, 10))
    with pytest.raises(ValueError, match="must not exceed"):
        T5Objective(model, tokenizer, lengths=(10, 30))


def test_regulariser_is_added_in_training_only():
    tokenizer = ChronosTokenizer(num_ids=IDS)
    model = build_forecaster(tokenizer, TINY, HeadSettings(frequencies=9, regularizer="roughness"), seed=0)
    context, future = torch.rand(8, 20), torch.rand(8, 6)
    plain, strong = T5Objective(model, tokenizer), T5Objective(model, tokenizer, gamma=1e3)
    assert strong.train()(context, future) > plain.train()(context, future)
    assert torch.equal(strong.eval()(context, future), plain.eval()(context, future))
    with pytest.raises(ValueError, match="gamma needs a FourierHead"):
        T5Objective(tiny("linear")[0], tokenizer, gamma=1.0)


def test_states_are_carried_as_products_read_them(monkeypatch):
    model, _ = tiny()
    ids, mask, labels = batch()
    results = []
    for dtype in (torch.bfloat16, torch.float32):
        with torch.autocast("cpu", torch.bfloat16):
            states, hide = model.encode(ids, mask)
            found = model.decode(shift(labels), states, hide)
        assert states.dtype == dtype
        results.append((found, *torch.autograd.grad(found.sum(), list(model.encoder.parameters()))))
        monkeypatch.setattr("studies.chronos.t5.model.narrow", lambda x: x)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_gradients_reach_every_parameter():
    for head, tied in (("fourier", False), ("linear", False), ("linear", True)):
        model, tokenizer = tiny(head, tied=tied)
        T5Objective(model, tokenizer)(torch.rand(4, 20), torch.rand(4, 6)).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_arms_start_from_the_same_weights():
    one, other = tiny("fourier", seed=3)[0], tiny("linear", seed=3)[0]
    for name, parameter in one.named_parameters():
        if not name.startswith("head."):
            assert torch.equal(parameter, other.get_parameter(name)), name


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="must turn 16 features into 66 ids"):
        T5Forecaster(TINY, FourierHead(16, 32, 4))
    with pytest.raises(ValueError, match="tied needs"):
        T5Forecaster(TINY, FourierHead(16, 64, 4, num_atoms=2), tied=True)


# --- files


def test_a_saved_forecaster_predicts_the_same(tmp_path):
    pytest.importorskip("safetensors")
    model, tokenizer = tiny()
    settings = HeadSettings(frequencies=9)
    save_forecaster(tmp_path / "model", model, tokenizer, settings)
    contexts = [np.arange(1.0, 12)]
    assert np.array_equal(
        load_predictor(tmp_path / "model").samples(contexts, 3), T5Predictor(model, tokenizer).samples(contexts, 3)
    )
    with pytest.raises(UserError, match="holds no forecaster"):
        load_forecaster(tmp_path)


# --- training


def stream(rank: int) -> BatchStream:
    corpus = standard_corpus(None, 23, 6, shares={"structural": 1.0})
    return BatchStream(corpus, 8, seed=0, chunk=2, rank=rank)


def train(folder: Path, steps: int, limit: int | None = None, warmup_passes: int = 0) -> Training:
    model, tokenizer = tiny(seed=0)
    settings = TrainingSettings(
        folder, batch=8, steps=steps, learning_rate=3e-3, log_every=2, warmup_passes=warmup_passes
    )
    run = Training(T5Objective(model, tokenizer, gamma=1e-6), stream, settings, device="cpu")
    if limit is not None:  # stop as an interrupted run does: at a step, with a checkpoint
        run._resume()
        while run.step < limit:
            run._advance()
            run.step += 1
        run.save()
    else:
        run.run()
    return run


def test_a_resumed_run_continues_as_if_never_stopped(tmp_path):
    pytest.importorskip("accelerate")
    whole = train(tmp_path / "whole", 12)
    train(tmp_path / "parts", 12, limit=5)
    resumed = train(tmp_path / "parts", 12, warmup_passes=2)  # which move neither weights nor data
    assert resumed.step == whole.step == 12
    for name, parameter in whole.module.named_parameters():
        assert torch.equal(parameter, resumed.module.get_parameter(name)), name


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("head", ["fourier", "linear"])
def test_captured_steps_have_the_losses_of_others(tmp_path, head, compile):
    pytest.importorskip("accelerate")
    losses = []
    for graph in (False, True):
        tokenizer, settings = ChronosTokenizer(num_ids=IDS), HeadSettings(head, frequencies=9)
        model = build_forecaster(tokenizer, replace(TINY, head_width=16), settings, seed=0)
        gamma = 1e-6 if head == "fourier" else 0.0
        objective = T5Objective(model, tokenizer, lengths=(12, 24), gamma=gamma, compile=compile)
        corpus = standard_corpus(None, 23, 6, shares={"structural": 1.0}, device="cuda")
        settings = TrainingSettings(
            tmp_path / str(graph), batch=8, steps=20, learning_rate=3e-3, precision="bf16", warmup_passes=2, graph=graph
        )
        run = Training(objective, lambda rank, c=corpus: BatchStream(c, 8, seed=0, chunk=2, rank=rank), settings)
        run._warm_up()
        assert (run._captured is not None) == graph
        run.module.train()
        losses.append([])
        while run.step < 20:
            losses[-1].append(float(run._advance()))
            run.step += 1
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # sums of bfloat16 numbers in another order
    assert losses[0][:2] == pytest.approx(losses[1][:2], rel=1e-4)
    assert losses[0][-1] < losses[0][0]
