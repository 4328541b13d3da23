"""A training step of the forecaster: nothing in it makes the host wait for the device."""

import numpy as np
import pytest
import torch
from benchmarks.stream import Operations

from fourier_head.forecasting.corpora.buckets import BUCKETS, Bucket, BucketStream
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrain import BucketObjective
from fourier_head.training.loop import Training
from fourier_head.training.settings import TrainingSettings


@pytest.mark.parametrize("work", [lambda x: x[x > 0], lambda x: x.sum().item(), lambda x: x.new_tensor((1.0, 2.0))])
def test_what_waits_is_seen(work):
    with Operations() as seen:
        work(torch.randn(5))
    assert sum(seen.waits.values()) >= 1


def test_neither_stream_nor_step_waits():
    # Every part of every bucket, in small: contexts stay long enough for the fine series.
    small = [Bucket(**{**vars(one), "context": max(64, one.context // 16), "horizon": 32}) for one in BUCKETS]
    store = SeriesStore.from_series([np.random.default_rng(i).normal(size=1800) for i in range(3)], period=24)
    stream = BucketStream(store, 64, seed=0, buckets=small, chunk=1)
    model = MultiscaleForecaster(MultiscaleConfig(spans=(64, 640), horizon=32, width=24, layers=1, heads=2))
    settings = TrainingSettings(batch=64, steps=10, optimizer="muon", ema=0.1, precision="bf16")
    training = Training(BucketObjective(model, tuple(small)), lambda process: stream, settings, "cpu")
    training._advance()  # brings what never changes to the device, once
    with Operations() as seen:
        training._advance()
        training.ema.update(training.module, 10, 10)
    assert seen.waits == {}
    assert seen.launches > 1000
