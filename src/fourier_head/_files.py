"""Write files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from fourier_head.errors import UserError


def write_atomically(path: Path, content: str | bytes | Callable[[Path], None]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a half."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
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
