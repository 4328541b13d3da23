"""The commands `study synthetic` and `study likelihood`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourier_head.studies.command_line import EngineName, Quick, study_errors, tell


def synthetic(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/synthetic"),
    protocol: Annotated[str, typer.Option(help="released, recommended or both.")] = "both",
    arms: Annotated[str, typer.Option(help="paper: the 276 runs of the paper; all: ours beside them.")] = "all",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Section 4.1: three known conditional densities, learned with every head and number of frequencies."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.synthetic.study import Settings, run

        settings = Settings(output, protocol, arms, quick, engine, device, workers)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


def likelihood(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/likelihood"),
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Appendix C.3: the synthetic densities again, by maximum likelihood on continuous values."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.synthetic.likelihood import Settings, run

        settings = Settings(output, quick, engine, device, workers)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)
