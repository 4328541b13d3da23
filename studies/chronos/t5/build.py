"""Make a T5 forecaster of any size with any head from plain settings; save it, and load it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from fourier_head.errors import UserError
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import LinearHead
from fourier_head.layout import Regularizer
from studies.chronos.t5.config import T5Config
from studies.chronos.t5.model import T5Forecaster
from studies.chronos.tokenizer import NUM_SPECIAL, ChronosTokenizer

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class HeadSettings:
    """Describe the head of a forecaster.

    Args:
        kind: "fourier" or "linear".
        frequencies, packets, floor, boundary, regularizer: of a Fourier head.
        tied: whether a linear head shares the weight of the embedding, as in Chronos.
    """

    kind: Literal["fourier", "linear"] = "fourier"
    frequencies: int = 550
    packets: int = 0
    floor: float = 1e-4
    boundary: Literal["periodic", "reflect"] = "periodic"
    regularizer: Regularizer = "paper"
    tied: bool = False


def build_head(settings: HeadSettings, width: int, tokenizer: ChronosTokenizer) -> Head:
    """Return a head that predicts the ids of a tokenizer; for a Fourier head, special ids are atoms."""
    if settings.kind == "linear":
        return LinearHead(width, tokenizer.num_ids, bias=False)
    if settings.kind != "fourier":
        raise ValueError(f"kind must be 'fourier' or 'linear', got {settings.kind!r}")
    return FourierHead(
        width,
        tokenizer.num_bins if tokenizer.bins is None else None,
        settings.frequencies,
        floor=settings.floor,
        boundary=settings.boundary,
        packets=settings.packets,
        num_atoms=NUM_SPECIAL,
        regularizer=settings.regularizer,
        domain=tokenizer.bins,
    )


def build_forecaster(
    tokenizer: ChronosTokenizer, config: T5Config, head: HeadSettings | None = None, seed: int | None = None
) -> T5Forecaster:
    """Return a new forecaster; with a seed, encoder and decoder start alike whatever the head.

    >>> tokenizer = ChronosTokenizer()
    >>> model = build_forecaster(tokenizer, T5Config.named("mini"))
    >>> sum(p.numel() for p in model.parameters()) // 100_000
    208
    """
    head = head or HeadSettings()
    with torch.random.fork_rng(devices=()):
        if seed is not None:
            torch.manual_seed(seed)
        # The head draws last: a module's first weights are redrawn by the forecaster in a fixed order.
        made = build_head(head, config.width, tokenizer)
        if seed is not None:
            torch.manual_seed(seed + 1)
        return T5Forecaster(config, made, head.tied)


def save_forecaster(folder: Path, model: T5Forecaster, tokenizer: ChronosTokenizer, head: HeadSettings) -> None:
    """Write a forecaster to a folder: ``config.json`` and ``model.safetensors``."""
    from safetensors.torch import save_model

    from fourier_head._files import replace_folder

    about: dict[str, Any] = {"model": asdict(model.config), "tokenizer": asdict(tokenizer), "head": asdict(head)}

    def write(place: Path) -> None:
        save_model(model, str(place / WEIGHTS))
        (place / CONFIG).write_text(json.dumps(about, indent=1), encoding="utf-8")

    folder.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(folder, write)


def load_forecaster(folder: Path, device: torch.device | str = "cpu") -> tuple[T5Forecaster, ChronosTokenizer]:
    """Read what ``save_forecaster`` wrote."""
    from safetensors.torch import load_model

    try:
        about = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
        tokenizer = ChronosTokenizer(**about["tokenizer"])
        model = build_forecaster(tokenizer, T5Config(**about["model"]), HeadSettings(**about["head"]))
        load_model(model, str(Path(folder) / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no forecaster: {error}.") from None
    except RuntimeError:
        raise UserError(f"the weights in {folder} are of another model than its {CONFIG} says.") from None
    return model.to(device).eval(), tokenizer
