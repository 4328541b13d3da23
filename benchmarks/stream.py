"""What a training step of the forecaster asks of host and device: ``python -m benchmarks.stream``.

For every part of the stream of windows and of the step: processor seconds per 1,000 windows here, operations that a GPU
would be sent, memory that they move, and operations that make the host wait for the device. On a GPU the host needs
about 5 us for each operation, and memory moves about 4 GB in a millisecond.

    python -m benchmarks.stream --corpus corpus.safetensors [--batch 256] [--output FILE.csv]
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.files import write
from fourier_head.forecasting.corpora.augment import DEFAULT
from fourier_head.forecasting.corpora.buckets import BUCKETS, BucketStream
from fourier_head.forecasting.corpora.mix import standard_corpus
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.patch.multiscale import SIZES, MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrain import CHUNK, BucketObjective
from fourier_head.training.loop import CHECK_EVERY, Training
from fourier_head.training.settings import TrainingSettings

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "equal", "_unique2", "unique_consecutive")
"""What brings a number to the host, or one from there (``lift_fresh``: ``torch.tensor`` of Python numbers)."""
Row = dict[str, Any]


class Operations(TorchDispatchMode):
    """Count operations other than views, the bytes they read and write, and those that make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.launches, self.bytes, self.waits = 0, 0, dict[str, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        masked = name in ("index", "index_put_") and any(
            isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1]
        )
        if name in WAITS or masked:
            self.waits[name] = self.waits.get(name, 0) + 1
        aliases = [one.alias_info for one in func._schema.returns]
        if not any(alias is not None and not alias.is_write for alias in aliases):
            self.launches += 1
            # What is gathered from is read in part only.
            read = args[1:] if name in ("index", "gather", "index_select") else args
            tensors = [one for one in tree_leaves((read, kwargs, out)) if isinstance(one, Tensor)]
            self.bytes += sum(one.numel() * one.element_size() for one in tensors)
        return out


def measured(part: str, bucket: str, windows: int, work: Callable[[], object], share: float = 1.0) -> Row:
    """Return what one call of ``work`` takes; ``share``: calls per step, where one call serves windows of several."""
    with Operations() as seen:
        work()  # and with it whatever is done once only
    begin = time.process_time()
    work()
    spent = time.process_time() - begin
    return {
        "part": part,
        "bucket": bucket,
        "windows": windows,
        "cpu_seconds_per_1000": round(1000 * spent / windows, 4),
        "operations_per_step": round(share * seen.launches, 1),
        "megabytes_per_step": round(seen.bytes / 1e6, 1),
        "waits_per_step": round(share * sum(seen.waits.values()), 1),
        "waits": " ".join(sorted(seen.waits)),
    }


def of_stream(store: SeriesStore, batch: int) -> Iterator[Row]:
    """Yield a row for every source of every bucket, for its augmentations, and for the stream as a whole."""
    generator, chunk = torch.Generator().manual_seed(0), CHUNK["cuda"]
    for bucket in BUCKETS:
        name, rows = str(bucket.context), max(8, round(batch * bucket.share) // 8 * 8)
        own = store.select((store.lengths >= bucket.shortest).nonzero().flatten())
        for part, share in bucket.shares.items():
            corpus = standard_corpus(own, bucket.context, bucket.horizon, shares={part: 1.0}, steps=())
            count = max(1, round(share * rows))
            yield measured(part, name, count, functools.partial(corpus.sample, count, generator), 1 / chunk)
        corpus = standard_corpus(own, bucket.context, bucket.horizon, shares=bucket.shares, steps=())
        windows = corpus.sample(rows, generator)

        def augmented(windows: Any = windows) -> None:
            for step in DEFAULT:
                windows = step(windows, generator)

        yield measured("augment", name, rows, augmented, 1 / chunk)
    stream = BucketStream(store, batch, 0, chunk=1)
    yield measured("stream", "all", batch, lambda: next(stream), 1 / chunk)


def of_step(store: SeriesStore, batch: int, size: str) -> Iterator[Row]:
    """Yield rows for the loss, its gradients, the optimizer and the average of weights, on a batch of the stream."""
    model = MultiscaleForecaster(MultiscaleConfig(**SIZES[size]))
    stream = BucketStream(store, batch, 0, chunk=1)
    settings = TrainingSettings(batch=batch, steps=1000, optimizer="muon", ema=0.06)
    training = Training(BucketObjective(model), lambda process: stream, settings, "cpu")
    given = next(stream)
    for number, bucket in enumerate(BUCKETS):
        context, _, period = given[3 * number : 3 * number + 3]
        patches = bucket.patches(model.config.patch, context.device)
        layers, model.layers = model.layers, model.layers[-1:]
        features = functools.partial(model.features, context, period, patches)
        yield measured("one layer", str(bucket.context), len(context), features)
        model.layers = layers
    yield measured("loss", "all", batch, lambda: training.module(*given))
    yield measured("loss and gradients", "all", batch, lambda: training._compute(*given))

    def update() -> None:
        training.accelerator.clip_grad_norm_(training.module.parameters(), 1.0)
        training.optimizer.step()

    yield measured("optimizer", "all", batch, update)
    assert training.ema is not None
    average = training.ema
    yield measured("average", "all", batch, lambda: average.update(training.module, 100, 10), 1 / CHECK_EVERY)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description=__doc__)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="packed series, or parquet files")
    parser.add_argument("--batch", type=int, default=256, help="windows per step; the recipe has 2560")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--output", type=Path, help="CSV to write")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    store = read_store(given.corpus)
    rows: list[Row] = []
    for source in (of_stream(store, given.batch), of_step(store, given.batch, given.size)):
        for row in source:
            rows.append(row)
            print("  ".join(f"{value!s:>20}" for value in row.values()), flush=True)
    if given.output is not None:
        write(given.output, list(rows[0]), (row.values() for row in rows))


if __name__ == "__main__":
    main()
