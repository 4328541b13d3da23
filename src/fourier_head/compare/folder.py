"""Write a folder whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
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
    made = [parent for parent in output.parents if not parent.exists()]
    stage, old = (output.with_name(f".{output.name}.{os.getpid()}.{part}") for part in ("new", "old"))
    try:
        stage.mkdir(parents=True)
        yield stage
        # Once more: training takes a while, and somebody may have put something there.
        check_replaceable(output, tool, what)
        if output.exists():
            output.rename(old)
        stage.rename(output)
    except BaseException as error:
        if old.exists() and not output.exists():
            old.rename(output)
        shutil.rmtree(stage, ignore_errors=True)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            raise UserError(f"--output {output} cannot be written: {error.strerror}.") from error
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
