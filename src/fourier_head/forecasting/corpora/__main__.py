"""Pack files of series into one: `python -m fourier_head.forecasting.corpora PATH... --output corpus.safetensors`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.readers import read_store


def main(arguments: list[str] | None = None) -> int:
    """Read files and folders, write one packed file and say what is in it."""
    parser = argparse.ArgumentParser(
        prog="python -m fourier_head.forecasting.corpora",
        description="Pack series from parquet and arrow files into one file that loads onto any device.",
    )
    parser.add_argument("paths", nargs="+", type=Path, help="files, or folders of files, one row a series")
    parser.add_argument("--target", default="target", help="the column with the values (default: target)")
    parser.add_argument("--freq", help="the frequency of all series, where the files do not say it")
    parser.add_argument("--output", type=Path, default=Path("corpus.safetensors"), help="the file to write")
    options = parser.parse_args(arguments)
    try:
        store = read_store(options.paths, target=options.target, freq=options.freq)
        path = store.save(options.output)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = path.stat().st_size / 1e6
    print(f"{path}: {len(store):,} series of {len(store.names)} sets, {store.values.numel():,} values, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
