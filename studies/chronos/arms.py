"""The arms of the forecasting study: heads, ablations, and where they stand in the paper's tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fourier_head.errors import UserError, did_you_mean
from studies.chronos.t5 import SIZES, HeadSettings

GAMMA = 1e-6
"""Strength of the regulariser in the paper."""

PAPER: Mapping[str, Mapping[str, Any]] = {
    "linear": {"relative_mase": 0.883, "relative_wql": 0.750, "smoothness": 0.1689, "smoothness_std": 0.1087},
    "fourier-64": {"relative_mase": 0.875, "relative_wql": 0.798, "smoothness": 0.0032, "smoothness_std": 0.0012},
    "fourier-128": {"relative_mase": 0.872, "relative_wql": 0.767, "smoothness": 0.0068, "smoothness_std": 0.0035},
    "fourier-256": {"relative_mase": 0.859, "relative_wql": 0.755, "smoothness": 0.0139, "smoothness_std": 0.0087},
    "fourier-550": {"relative_mase": 0.852, "relative_wql": 0.749, "smoothness": 0.0283, "smoothness_std": 0.0224},
    "fourier-550-free": {"relative_mase": 0.861, "relative_wql": 0.753, "smoothness": 0.0286, "smoothness_std": 0.0219},
    "fourier-550-uniform": {
        "relative_mase": 0.873,
        "relative_wql": 0.747,
        "smoothness": 0.0395,
        "smoothness_std": 0.0252,
    },
}
"""Table of appendix D.2: means over its 20 sets relative to seasonal naive, after 48 hours on 8 GPUs."""


@dataclass(frozen=True)
class Arm:
    """Describe one model of the study.

    Args:
        name: of the arm, without size and data.
        head: its head.
        gamma: strength of the regulariser.
        tokenizer: settings of its tokenizer that are not the default.
        size: name of its shape, that of the study unless given.
        data: share of the series it trains on.
    """

    name: str
    head: HeadSettings
    gamma: float = 0.0
    tokenizer: tuple[tuple[str, Any], ...] = ()
    size: str | None = None
    data: float = 1.0

    @property
    def label(self) -> str:
        """The name as it is typed."""
        size = f"@size={self.size}" if self.size else ""
        return self.name + size + (f"@data={self.data:g}" if self.data != 1.0 else "")

    @property
    def about(self) -> dict[str, Any]:
        """What the rows of this arm say of it."""
        fourier = self.head.kind == "fourier"
        return {
            "head": self.head.kind,
            "frequencies": self.head.frequencies if fourier else None,
            "packets": self.head.packets if fourier else None,
            "protocol": next((words for name, (words, *_) in VARIANTS.items() if self.name.endswith(f"-{name}")), None),
            "gamma": self.gamma if fourier else None,
            "size": self.size,
            "data": self.data if self.data != 1.0 else None,
            "paper": dict(PAPER.get(self.label, {})),
        }


VARIANTS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "tied": ("weights tied to the embedding", {"tied": True}, {}),
    "free": ("no regulariser", {}, {"gamma": 0.0}),
    "uniform": ("uniform bins", {}, {"tokenizer": (("kind", "uniform"),)}),
    "released": ("released tokenizer", {}, {"tokenizer": (("released", True),)}),
    "packets": ("4 packets", {"packets": 4}, {}),
    "reflect": ("no wrapping", {"boundary": "reflect"}, {}),
    # The integral of p'^2 is a million times that of a density ten bins wide: the same pull needs far less.
    "rough": ("roughness regulariser", {"regularizer": "roughness"}, {"gamma": 1e-10}),
}
"""What may follow the name of a head, what it means, and what it changes of the head and of the arm."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "paper": ("linear", "fourier-64", "fourier-128", "fourier-256", "fourier-550"),
    "ablations": ("fourier-550-free", "fourier-550-uniform", "fourier-550-released"),
    "ours": ("fourier-550-packets", "fourier-550-reflect", "linear-tied"),
    "sizes": tuple(f"{head}@size={size}" for size in ("1m", "3m", "5m", "tiny") for head in ("linear", "fourier-550")),
    "data": tuple(f"{head}@data={share}" for share in (0.001, 0.01, 0.1) for head in ("linear", "fourier-550")),
}
"""Names for several arms at once."""


def parse_arms(text: str) -> list[Arm]:
    """Return the arms of a list of names and groups, each once.

    >>> [arm.label for arm in parse_arms("linear,fourier-64@size=tiny,linear")]
    ['linear', 'fourier-64@size=tiny']
    >>> len(parse_arms("paper,ablations"))
    8
    """
    arms: dict[str, Arm] = {}
    for name in text.split(","):
        for one in GROUPS.get(name.strip(), (name.strip(),)):
            arm = parse_arm(one)
            arms.setdefault(arm.label, arm)
    return list(arms.values())


def parse_arm(text: str) -> Arm:
    """Return the arm of a name such as ``linear-tied``, ``fourier-256-free`` or ``fourier-550@size=tiny@data=0.1``.

    >>> arm = parse_arm("fourier-550-packets")
    >>> arm.head.packets, arm.gamma
    (4, 1e-06)
    """
    name, *changes = text.split("@")
    match = re.fullmatch(r"(linear|fourier)(?:(?<=fourier)-(\d+))?(?:-([a-z]+))?", name)
    if match is None or (match[1] == "fourier") != bool(match[2]) or (match[3] and match[3] not in VARIANTS):
        known = [*GROUPS, *GROUPS["paper"], *GROUPS["ablations"], *GROUPS["ours"]]
        raise UserError(f"--arms has no arm {text!r}: {did_you_mean(name, known)}")
    words, head, more = VARIANTS[match[3]] if match[3] else ("", {}, {})
    if match[1] == "fourier":
        if match[3] == "tied":
            raise UserError(f"--arms: a Fourier head has no weights to tie, got {text!r}.")
        head, more = {"frequencies": int(match[2]), **head}, {"gamma": GAMMA, **more}
    elif match[3] not in (None, "tied", "uniform", "released"):
        raise UserError(f"--arms: {words} is nothing a linear head has, got {text!r}.")
    arm = Arm(name, HeadSettings(match[1], **head), **more)  # type: ignore[arg-type]
    for change in changes:
        key, _, value = change.partition("=")
        if key == "size" and value in SIZES:
            arm = replace(arm, size=value)
        elif key == "data" and (share := _share(value)) is not None:
            arm = replace(arm, data=share)
        else:
            raise UserError(f"--arms: {change!r} must be size= one of {', '.join(SIZES)}, or data= a share up to 1.")
    return arm


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
