"""Write files and folders whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fourier_head.errors import UserError

RESULTS = "results.json"
"""File of a command's folder that says which command wrote it, and what."""


def check_writable(output: Path, within: Path | None = None) -> None:
    """Raise unless a folder can be made or written to: better said before the work that it is for than after.

    Args:
        output: the folder.
        within: the one to write to, itself unless given; a folder that is replaced whole needs rights to its parent.
    """
    place = within or output
    nearest = next(one for one in (place, *place.parents) if os.path.exists(one))  # never raises, unlike Path.exists
    if not nearest.is_dir():
        raise UserError(f"--output {output} cannot be written: {nearest} is a file.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"--output {output} cannot be written: there is no permission to write to {nearest.resolve()}.")


def write_atomically(path: Path, content: str | bytes | Callable[[Path], None]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a half."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        reason = f"{path.parent} is a file" if path.parent.is_file() else error.strerror
        raise UserError(f"{path} cannot be written: {reason}.") from None
    os.close(handle)
    beside = Path(name)
    try:
        if callable(content):
            content(beside)
        else:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
        umask = os.umask(0)  # mkstemp makes files for one person's eyes; give this one the usual rights
        os.umask(umask)
        beside.chmod(0o666 & ~umask)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside its place, then put it there: a reader finds the old one or the new one."""
    recover_folder(folder)
    beside, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    beside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Bring the old folder back where ``replace_folder`` was killed between its two renames."""
    old = folder.with_name(folder.name + ".old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def check_replaceable(output: Path, tool: str, what: str) -> None:
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
