"""Finished runs kept on disk while others go on, as strict JSON; and the machine they ran on."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import write_atomically
from fourier_head.version import __version__

PARTIAL = ".partial"
"""Folder of finished runs beside results that are not complete yet."""


def hardware(gpu: bool = False) -> str:
    """Return the processor and its cores in words, and the graphics card where one was used."""
    name = platform.processor() or platform.machine()
    try:  # /proc/cpuinfo names the model on some architectures only; lscpu knows it on all
        for line in subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.splitlines():
            if line.startswith("Model name"):
                name = f"{line.partition(':')[2].strip()} ({platform.machine()})"
                break
    except (OSError, subprocess.CalledProcessError):
        pass
    text = f"{name}, {os.cpu_count()} cores"
    return f"{torch.cuda.get_device_name()}; {text}" if gpu and torch.cuda.is_available() else text


def versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    known = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    return known | {"fourier-head": __version__}


def to_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON: tensors and arrays as lists, NaN and infinities as null."""
    return json.dumps(plain_values(value), indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def plain_values(value: Any) -> Any:
    """Return tensors and arrays as lists, NaN and infinities as None, throughout."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return plain_values(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class RunStore:
    """Finished runs of a study under way, one JSON file each in `<output>/.partial/`.

    A run is known by its settings and the version of the library: the same ones find it again after an interruption,
    any change makes it a different run.
    """

    def __init__(self, output: Path):
        self.folder = output / PARTIAL

    def path(self, label: str, settings: Mapping[str, Any]) -> Path:
        """Return where a run with these settings is kept."""
        text = json.dumps([label, __version__, plain_values(settings)], sort_keys=True)
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40]
        return self.folder / f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def get(self, label: str, settings: Mapping[str, Any]) -> Any | None:
        """Return the result of a finished run, or None; a file that cannot be read counts as none."""
        try:
            return json.loads(self.path(label, settings).read_text(encoding="utf-8"))["result"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, label: str, settings: Mapping[str, Any], result: Any) -> Any:
        """Keep the result of a run; return it as it will be read back."""
        text = to_json({"label": label, "settings": settings, "result": result})
        write_atomically(self.path(label, settings), text)
        return json.loads(text)["result"]

    def clear(self) -> None:
        """Forget all runs."""
        shutil.rmtree(self.folder, ignore_errors=True)
