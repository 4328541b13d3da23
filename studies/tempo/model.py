"""The Audio Spectrogram Transformer of transformers under a head of ours."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fourier_head.errors import UserError, needing
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead
from studies.tempo.data import DOMAIN, NUM_BINS

Start = Literal["uniform", "paper"]

# For clips of 398 frames. `small` has patches of 16 x 16 that overlap in time, as the published network has; `tiny` is
# for a look on a processor, where GELU takes longer than the matrices.
_BOTH: dict[str, Any] = {"max_length": 398, "patch_size": 16, "frequency_stride": 16}
_SMALL = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
_TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 1, "intermediate_size": 64}
SIZES = {
    "small": _BOTH | _SMALL | {"num_mel_bins": 128, "time_stride": 10},
    "tiny": _BOTH | _TINY | {"num_mel_bins": 16, "time_stride": 16, "hidden_act": "relu"},
}
HEADS: dict[str, type[Head]] = {"linear": LinearHead, "hl_gauss": HLGaussHead, "fourier": FourierHead}


def build(model: str, head: str, num_frequencies: int | None, seed: int, start: Start = "uniform") -> Any:
    """Return an AST classifier of tempos with one of our heads; its encoder is the same for every head of a seed.

    Args:
        model: a key of ``SIZES``, or the name or path of an AST classifier with weights.
        head: a key of ``HEADS``.
        num_frequencies: of a Fourier head.
        start: how a Fourier head starts; "paper": He-initialised and divided by 1000.
    """
    if head == "fourier" and not 0 < (num_frequencies or 0) < NUM_BINS:
        raise UserError(f"--frequencies must lie between 1 and {NUM_BINS - 1}, got {num_frequencies}.")
    config = configuration(model)
    from transformers import ASTForAudioClassification

    from fourier_head.integrations.transformers import replace_head

    torch.manual_seed(seed)
    if model in SIZES:
        network = ASTForAudioClassification(config)
        positions = network.audio_spectrogram_transformer.embeddings.position_embeddings
        positions.data[0, 2:] = time_waves(*grid(config), config.hidden_size)
    else:
        network = ASTForAudioClassification.from_pretrained(model)
    # Of the classifier only the linear layer goes; the layer norm before it serves every head.
    # For 33 bins a kernel would take longer to compile than it could save.
    options: dict[str, Any] = {"impl": "reference", "boundary": "periodic"} if head == "fourier" else {}
    network = replace_head(
        network, NUM_BINS, num_frequencies, head=HEADS[head], name="classifier.dense", domain=DOMAIN, **options
    )
    # Heads of different size would leave the generator in different states; what follows has its own.
    torch.manual_seed(seed + 1)
    if head != "fourier" or start == "uniform":
        begin_uniform(network.classifier.dense)
    return network


@torch.no_grad()
def begin_uniform(head: Head) -> None:
    """Start a head near the uniform distribution with weights as transformers draws them, for any kind of head.

    A linear head is uniform where its logits vanish, a Fourier head where only the constant coefficient does not.
    """
    nn.init.normal_(head.proj.weight, std=0.02)
    nn.init.zeros_(head.proj.bias)
    if isinstance(head, FourierHead):
        head.proj.bias[0] = 1.0


def grid(config: Any) -> tuple[int, int]:
    """Return how many patches there are in frequency and in time."""
    return (
        (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1,
        (config.max_length - config.patch_size) // config.time_stride + 1,
    )


def time_waves(rows: int, columns: int, size: int) -> Tensor:
    """Return positions (rows * columns, size) to start training from: waves of time, and noise for the frequency.

    transformers leaves positions at zero, for weights to be loaded over them. From there a network has to find out
    which patch follows which before it can hear a beat; waves say so from the start.
    """
    time = torch.arange(columns)[:, None]
    speed = torch.exp(-math.log(4 * columns) * torch.arange(size // 2) / (size // 2))
    waves = torch.cat([torch.sin(time * speed), torch.cos(time * speed)], dim=-1)
    waves = torch.nn.functional.pad(waves, (0, size - waves.shape[-1]))
    return (0.3 * waves + 0.1 * torch.randn(rows, 1, size)).flatten(0, 1)


def configuration(model: str) -> Any:
    """Return the AST configuration of a size of ours, or of weights by name or path."""
    with needing("transformers"):
        from transformers import ASTConfig, AutoConfig
    if model in SIZES:
        return ASTConfig(**SIZES[model])
    try:
        config = AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--model must be {', '.join(SIZES)} or an AST by name or path; {model}: {reason}") from None
    if config.model_type != ASTConfig.model_type:
        raise UserError(f"--model must be an Audio Spectrogram Transformer, {model} is a {config.model_type}.")
    return config
