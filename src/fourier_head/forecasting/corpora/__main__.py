"""Pack files of series into one: `python -m fourier_head.forecasting.corpora PATH... --output corpus.safetensors`.

With `--speed` nothing is written: windows per second of every part of the standard corpus are printed instead.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fourier_head._devices import best_device
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.mix import RECIPES, standard_corpus
from fourier_head.forecasting.corpora.readers import join, read_hub, read_store
from fourier_head.forecasting.corpora.store import SeriesStore


def speed(store: SeriesStore, context: int = 512, horizon: int = 64, rows: int = 8192, seconds: float = 1.0) -> None:
    """Print windows per second of every part and of the whole corpus on the best device here."""
    device = torch.device(best_device())
    rows = rows if device.type == "cuda" else 128
    generator = torch.Generator(device).manual_seed(0)
    store = store.to(device)

    def measure(name: str, made: int, work: Callable[[], object]) -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        start, times = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            work()
            times += 1
            if device.type == "cuda":
                torch.cuda.synchronize()
        print(f"{name:12s} {made * times / (time.perf_counter() - start):12,.0f} per second on {device}", flush=True)

    for name in RECIPES["standard"]:
        part = standard_corpus(store, context, horizon, shares={name: 1.0}, steps=())
        measure(name, rows, functools.partial(part.sample, rows, generator))
    whole = standard_corpus(store, context, horizon)
    measure("all", rows, functools.partial(whole.sample, rows, generator))


def main(arguments: list[str] | None = None) -> int:
    """Read files, folders and hub data sets, write one packed file and say what is in it."""
    parser = argparse.ArgumentParser(
        prog="python -m fourier_head.forecasting.corpora",
        description="Pack series from parquet and arrow files into one file that loads onto any device.",
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files, or folders of files, one row a series")
    parser.add_argument("--hub", action="append", default=[], metavar="NAME", help="a Chronos data set by its name")
    parser.add_argument("--target", default="target", help="the column with the values (default: target)")
    parser.add_argument("--freq", help="the frequency of all series, where the files do not say it")
    parser.add_argument("--output", type=Path, default=Path("corpus.safetensors"), help="the file to write")
    parser.add_argument("--speed", action="store_true", help="measure sampling from the series instead of writing them")
    options = parser.parse_args(arguments)
    try:
        if not options.paths and not options.hub:
            raise UserError("name at least one file or folder, or a data set with --hub.")
        stores = [read_store(options.paths, target=options.target, freq=options.freq)] if options.paths else []
        if options.hub:
            stores.append(read_hub(options.hub, target=options.target, freq=options.freq))
        store = join(stores)
        if options.speed:
            speed(store)
            return 0
        path = store.save(options.output)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = path.stat().st_size / 1e6
    print(f"{path}: {len(store):,} series of {len(store.names)} sets, {store.values.numel():,} values, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
