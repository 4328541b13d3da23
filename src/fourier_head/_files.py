"""Write files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from fourier_head.errors import UserError


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
