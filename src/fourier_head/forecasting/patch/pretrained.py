"""Trained forecasters on disk: ``config.json`` beside ``model.safetensors``, and those that come with the package."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import torch

from fourier_head._files import replace_folder
from fourier_head.errors import UserError, did_you_mean, needing
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KIND = "multiscale"
"""What ``config.json`` calls the network."""
SHIPPED = Path(__file__).resolve().parents[1] / "weights"


def shipped() -> list[str]:
    """Return the names of the forecasters that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def save_model(model: MultiscaleForecaster, folder: str | Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write a forecaster; bfloat16 halves the file and moves forecasts by less than training for a minute more."""
    with needing("forecasting"):
        from safetensors.torch import save_file
    place = Path(folder).resolve()
    others = sorted({path.name for path in place.iterdir()} - {CONFIG, WEIGHTS}) if place.is_dir() else []
    if others or place.is_file():
        # The folder is replaced whole, and with it whatever else it holds.
        what = f"holds {others[0]}" if others else "is a file"
        raise UserError(f"a forecaster must have a folder of its own, but {folder} {what}.")

    def write(stage: Path) -> None:
        text = json.dumps({"kind": KIND, **asdict(model.config)}, indent=1)
        (stage / CONFIG).write_text(text + "\n", encoding="utf-8")
        weights = {name: value.detach().to(dtype).cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, str(stage / WEIGHTS))
        (stage / WEIGHTS).chmod(0o644)  # safetensors writes for its owner alone

    replace_folder(place, write)
    return Path(folder)


def load_model(name_or_folder: str | Path, device: str | torch.device = "cpu") -> MultiscaleForecaster:
    """Return a forecaster that comes with the package, by its name, or one that ``save_model`` wrote."""
    with needing("forecasting"):
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    folder = Path(name_or_folder)
    if str(name_or_folder) in shipped():
        folder = SHIPPED / str(name_or_folder)
    if not (folder / CONFIG).is_file():
        known = did_you_mean(str(name_or_folder), shipped())
        raise UserError(f"{name_or_folder} is neither a folder with {CONFIG} nor a forecaster of the package: {known}")
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if (kind := settings.pop("kind", None)) != KIND:
            raise ValueError(f"{CONFIG} is that of a network {kind!r}, not {KIND!r}")
        known_keys = {field.name for field in fields(MultiscaleConfig)}
        model = MultiscaleForecaster(MultiscaleConfig(**{k: v for k, v in settings.items() if k in known_keys}))
        model.load_state_dict({name: value.float() for name, value in load_file(str(folder / WEIGHTS)).items()})
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} does not hold a forecaster that can be read: {first}") from None
    return model.to(device).eval()
