"""The command `study tempo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourier_head.errors import require
from studies.common.command_line import Device, EngineName, Quick, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder


def tempo(
    output: Annotated[Path | None, folder_option("tempo")] = None,
    model: Annotated[
        str, typer.Option(help="small or tiny, untrained; or an AST with weights, by name or folder.")
    ] = "small",
    data: Annotated[
        Path | None, typer.Option(help="Folder of SynTheory's tempos.", show_default="clips are generated")
    ] = None,
    split: Annotated[
        str, typer.Option(help="tempos: learn odd ones, test on even ones; random, as in the paper.")
    ] = "tempos",
    frequencies: Annotated[str, typer.Option(help="Frequencies of the Fourier heads.")] = "1,2,4,8,16",
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own clips.")] = 3,
    clips: Annotated[int, typer.Option(min=1, help="Clips generated for each tempo.")] = 25,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the training clips.", show_default="2, longer: 60")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Clips in a batch.", show_default="8, longer: 32")] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate.", show_default="5e-5, longer: 1e-3")] = None,
    pretrain: Annotated[
        int | None,
        typer.Option(min=0, help="Steps on clips without labels, for untrained networks.", show_default="4000"),
    ] = None,
    protocol: Annotated[str, typer.Option(help="released, middle, longer, several with commas, or all.")] = "all",
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that share the device.")] = 1,
    time_limit: TimeLimit = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Appendix C.1: the tempo of clicks, learned on odd BPMs and tested on even ones, with each head."""
    output = study_folder("tempo", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        require("transformers", "transformers", "safetensors")
        from studies.tempo.study import Settings, parse_frequencies, run

        settings = Settings(**given | {"frequencies": parse_frequencies(frequencies)})
        tell(out, run(settings, progress), output)
