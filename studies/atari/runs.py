"""Train one arm as a task of the study; arms of one process share the recording on the device."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fourier_head.tasks.engine import Report
from fourier_head.tasks.runs import RunStore, hardware
from studies.atari.recording import Recording, load_recording
from studies.atari.training import ArmSettings, own_device, train_arm
from studies.atari.trajectories import Trajectories
from studies.common.command_line import in_lines

UNFINISHED: dict[str, Any] = {"unfinished": True}


class KeptRuns(RunStore):
    """Finished arms, kept for good and beside the data: they cost a GPU, and a summary is made of all there are."""

    def __init__(self, data: Path):
        super().__init__(data)
        self.folder = data / "runs"

    def put(self, label: str, settings: Mapping[str, Any], result: Any) -> Any:
        """Keep a result, but for that of an arm which ran out of time."""
        return result if result == UNFINISHED else super().put(label, settings, result)

    def every(self) -> list[dict[str, Any]]:
        """Return settings and results of kept runs in one flat object each, in the order of their labels.

        Where a game was recorded anew, those on the recording of its newest run: arms on other data do not compare.
        """
        found, ages = [], []
        for path in sorted(self.folder.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                run = {"label": content["label"], **content["settings"], **content["result"]}
                ages.append((path.stat().st_mtime_ns, run["game"], run["recording"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # of a process that was killed while it wrote, or something else's
            found.append(run)
        newest = {game: recording for _, game, recording in sorted(ages)}
        return [run for run in found if run["recording"] == newest[run["game"]]]


_resident: dict[tuple[Any, ...], tuple[Recording, dict[float, Trajectories]]] = {}


def _load(folder: Path, context: int, share: float, device: str) -> tuple[Recording, Trajectories]:
    key = (str(folder), context, device)
    if key not in _resident:
        _resident.clear()  # one at a time: each is some gigabytes
        _resident[key] = load_recording(folder), {}
    recording, parts = _resident[key]
    if share not in parts:
        frames = next((part.frames for part in parts.values()), None)  # the same for all parts of the data
        parts[share] = Trajectories(recording, context, own_device(device), share, frames=frames)
    return recording, parts[share]


def run_arm(
    game: str,
    recording: str,
    *,
    data: str,
    device: str,
    compile: bool,
    deadline: float | None,
    lines: bool = False,
    workers: int = 1,
    report: Report | None = None,
    **arm: Any,
) -> dict[str, Any]:
    """Train an arm on a game's recording; the deadline is a value of ``time.monotonic``.

    ``workers`` arms share the machine, which is kept beside the rates. With ``lines`` the arm says how far it is in
    lines of its own: bars need a terminal, and a process of its own has none to share.
    """
    if deadline is not None and time.monotonic() > deadline - 1:
        return UNFINISHED
    settings = ArmSettings(**arm)
    loaded, resident = _load(Path(data) / game, settings.context, settings.share, device)
    name = hashlib.sha256(json.dumps([game, recording, arm], sort_keys=True).encode()).hexdigest()[:16]
    folder = Path(data) / "arms" / f"{game}-{name}"
    usual = ArmSettings()
    result = train_arm(
        loaded,
        settings,
        folder,
        data=resident,
        device=device,
        # Models of other sizes are small and soon trained; compiling each of them would take longer.
        compile=compile and (settings.layers, settings.width) == (usual.layers, usual.width),
        deadline=deadline,
        report=in_lines(f"{game}: {settings.label}") if lines else report,
    )
    if result is None:
        return UNFINISHED
    return result | {"hardware": hardware(device.startswith("cuda")), "arms_at_once": workers}
