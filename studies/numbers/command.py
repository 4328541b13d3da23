"""The command `study numbers`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourier_head.errors import require
from studies.common.command_line import Device, EngineName, Quick, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder


def numbers(
    output: Annotated[Path | None, folder_option("numbers")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Language model, by name or folder.", show_default="HuggingFaceTB/SmolLM2-135M-Instruct"),
    ] = None,
    gguf: Annotated[str | None, typer.Option(help="Language model from a GGUF file instead.")] = None,
    frequencies: Annotated[str, typer.Option(help="Frequencies of the Fourier heads, such as 2,4,8.")] = "1-12",
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own data.")] = 10,
    in_context: Annotated[str, typer.Option(help="Samples in the prompt; 0-9 is all of the paper.")] = "2",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 256 training pairs.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="At the start; it decays linearly.")] = 3e-4,
    choose: Annotated[
        str | None,
        typer.Option(
            help="Learning rates, such as 3e-4,1e-3, of which every kind of arm takes its best on seeds of their own."
        ),
    ] = None,
    gaussians: Annotated[
        str, typer.Option(help="Of the training answers: paper, its four; many, one for each answer.")
    ] = "paper",
    head_learning_rate: Annotated[
        float | None, typer.Option(help="Of a Fourier head, beside the adapters.", show_default="as the rest")
    ] = None,
    lora_rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    lora_layers: Annotated[
        str | None, typer.Option(help="Layers with adapters, such as q_proj,v_proj.", show_default="PEFT's choice")
    ] = None,
    packets: Annotated[str, typer.Option(help="Wave packets of the Fourier heads; 0,2 tries both.")] = "0",
    init_scale: Annotated[
        str, typer.Option(help="What a Fourier head's first weights are divided by; 1000,1 tries both.")
    ] = "1000",
    gamma: Annotated[str, typer.Option(help="Regulariser of the Fourier heads; 0,1e-4 tries both.")] = "0",
    head_first: Annotated[
        str, typer.Option(help="Epochs of a Fourier head alone before those with LoRA; 0,64 tries both.")
    ] = "0",
    top_p: Annotated[float, typer.Option(help="Share of probability all arms sample from.")] = 1.0,
    prompt: Annotated[
        str | None, typer.Option(help="Text with {mean}, {std} and {samples}.", show_default="the paper's")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the model: float32 or bfloat16.")] = "float32",
    device: Device = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with a model of its own.")] = 1,
    quick: Quick = False,
    engine: EngineName = "local",
    time_limit: TimeLimit = None,
) -> None:
    """Section 4.2: a language model asked for Gaussian numbers, as it is, with LoRA, and with a Fourier head."""
    output = study_folder("numbers", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        require("transformers", "transformers", "tokenizers", "peft", "accelerate")
        from studies.numbers.data import PROMPT
        from studies.numbers.study import Settings, run

        settings = Settings(**given | {"prompt": PROMPT if prompt is None else prompt})
        tell(out, run(settings, progress), output)
