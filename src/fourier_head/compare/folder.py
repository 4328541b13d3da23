"""Write a folder whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fourier_head._files import check_writable
from fourier_head.errors import UserError

RESULTS = "results.json"


def check_replaceable(output: Path, tool: str, what: str = "comparison") -> None:
    """Raise unless ``output`` is free, empty, or a folder that this tool wrote and nobody added to."""
    if output.is_file():
        raise UserError(f"--output must name a folder, but {output} is a file.")
    check_writable(output, output.parent)
    if not output.exists():
        return
    if output == Path.cwd() or output in Path.cwd().parents:
        raise UserError(f"--output must name a folder of its own, got {output}, where this command runs.")
    try:
        present = {entry.name for entry in output.iterdir()}
        if not present:
            return
        written = json.loads((output / RESULTS).read_text())
        ours = set(written["files"]) if written["tool"] == tool else set()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise UserError(f"--output must be new, empty or an earlier {what}, but {output} is none.") from None
        raise UserError(f"--output {output} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        ours = set()
    if not ours:
        raise UserError(f"--output must be new, empty or an earlier {what}, but {output} is none.")
    if present - ours:
        raise UserError(f"--output {output} holds files that no {what} wrote, such as {min(present - ours)}.")


@contextmanager
def replacing(output: Path, tool: str, what: str = "comparison") -> Iterator[Path]:
    """Yield a folder beside ``output`` that takes its place when the block ends well and vanishes when it does not."""
    output = output.resolve()
    check_replaceable(output, tool, what)
    made: list[Path] = []
    try:
        for parent in reversed([output.parent, *output.parent.parents]):
            if not parent.exists():
                parent.mkdir()
                made.append(parent)
        stage = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        _remove_empty(made)
        raise UserError(f"--output {output} cannot be written: {error.strerror}.") from None
    try:
        yield stage
        # mkdtemp makes folders for one person's eyes; give this one the usual rights.
        umask = os.umask(0)
        os.umask(umask)
        stage.chmod(0o777 & ~umask)
        _swap(stage, output, tool, what)
    except BaseException as error:
        shutil.rmtree(stage, ignore_errors=True)
        _remove_empty(made)
        if isinstance(error, OSError):
            raise UserError(f"--output {output} cannot be written: {error.strerror}.") from error
        raise


def _swap(stage: Path, output: Path, tool: str, what: str) -> None:
    # Once more: training takes a while, and somebody may have put something there.
    check_replaceable(output, tool, what)
    if not output.exists():
        stage.rename(output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        output.rename(old / "old")
        try:
            stage.rename(output)
        except OSError:
            (old / "old").rename(output)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
