"""Language models from a GGUF file, as ordinary float models that train, take adapters and can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

MAGIC = b"GGUF"


def is_gguf(name: str | Path) -> bool:
    """Tell whether a name means a GGUF file rather than a folder or a model on a hub.

    >>> is_gguf("SmolLM2-135M-Instruct.Q4_1.gguf"), is_gguf("HuggingFaceTB/SmolLM2-135M-Instruct")
    (True, False)
    """
    return str(name).lower().endswith(".gguf")


def load_gguf(path: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Return the causal language model and the tokenizer that a GGUF file holds, weights dequantised to ``dtype``.

    Transformers marks what it reads from GGUF as quantised and refuses to save it. The weights are floats by then, so
    they move into a plain model of the same class, which has no such limits.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if magic != MAGIC:
        raise ValueError(f"{path} is not a GGUF file: it begins with {magic!r}")
    try:
        import gguf  # noqa: F401 - what transformers reads the file with
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        name = (error.name or "gguf").split(".")[0]
        raise ImportError(f'GGUF files need {name}: pip install "fourier-head[transformers]"', name=name) from None
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    read = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=dtype)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    model = type(read)(type(read.config).from_dict(settings))
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = read.generation_config
    model.requires_grad_(True)
    return model.eval(), tokenizer
