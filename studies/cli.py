"""The commands `python -m studies ...`: parse, call, print. What the studies do lives in their modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourier_head.command_errors import clear_errors
from fourier_head.errors import UserError
from studies.atari.command import atari
from studies.chronos.command import forecasting
from studies.common.command_line import EngineName, Quick, folder_option, study_errors, tell
from studies.common.folders import QUICK_RESULTS, study_folder
from studies.covariates.command import covariates
from studies.first_user.command import first_user
from studies.joint_paths.command import joint_paths
from studies.numbers.command import numbers
from studies.synthetic.command import likelihood, synthetic
from studies.tempo.command import tempo
from studies.zero_shot.command import zero_shot

app = typer.Typer(
    help="Repeat the experiments of the paper; each writes results/<study>/, with --quick results-quick/<study>/.",
    no_args_is_help=True,
)
app.command()(synthetic)
app.command()(likelihood)


def report(
    results: Annotated[
        Path, typer.Argument(help="Folder with the results of the studies; quick looks are in results-quick.")
    ] = Path("results"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Page to write.", show_default="report.html in that folder")
    ] = None,
) -> None:
    """Gather the results of all studies into one page of HTML that needs nothing else."""
    with clear_errors():
        from studies.common.report.page import write_report

        if not results.exists() and QUICK_RESULTS.is_dir():
            raise UserError(f"{results} is not there, but quick looks are: python -m studies report {QUICK_RESULTS}.")
        path = write_report(results, output)
        typer.echo(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).")


@app.command()
def spectrum(
    output: Annotated[Path | None, folder_option("spectrum")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Training series, a file or folder.", show_default="artificial ones")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="Training windows of a seed.")] = 20_000,
    seeds: Annotated[int, typer.Option(min=1, help="Each draws its own windows.")] = 3,
    quick: Quick = False,
) -> None:
    """Section 2.3: the Fourier spectrum of next tokens under uniform and mixed bins."""
    output = study_folder("spectrum", quick, output)
    with study_errors(output) as (out, progress):
        from studies.spectrum.study import Settings, run

        tell(out, run(Settings(output, corpus, windows, seeds, quick), progress), output)


@app.command()
def claims() -> None:
    """Write results/claims.json and docs/paper.md: every claim of the paper and what the results say of it."""
    with clear_errors():
        from studies.claims.table import counts, write

        typer.echo(f"{counts(write())}.")


@app.command()
def smoothness(
    output: Annotated[Path | None, folder_option("smoothness")] = None,
    trials: Annotated[int, typer.Option(min=2, help="Signals of each colour of noise.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Appendix B: square waves and noise from brown to blue under the smoothness metric."""
    output = study_folder("smoothness", quick, output)
    with study_errors(output) as (out, progress):
        from studies.smoothness.study import Settings, run

        settings = Settings(output=output, trials=trials, seed=seed, quick=quick, engine=engine)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


@app.command("scaling-law")
def scaling_law(
    output: Annotated[Path | None, folder_option("scaling-law")] = None,
    synthetic: Annotated[
        Path, typer.Option(help="Results of the study synthetic, whose heads are fitted where they exist.")
    ] = Path("results/synthetic"),
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Theorem 3.3: smoothness of truncated densities against the number of frequencies, exponents fitted."""
    output = study_folder("scaling-law", quick, output)
    with study_errors(output) as (out, progress):
        from studies.scaling_law.study import Settings, run

        settings = Settings(output=output, synthetic=synthetic, quick=quick, engine=engine)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


app.command()(report)
app.command()(numbers)
app.command()(tempo)
app.command()(atari)
app.command()(forecasting)
app.command("zero-shot")(zero_shot)
app.command("joint-paths")(joint_paths)
app.command()(covariates)
app.command("first-user")(first_user)
