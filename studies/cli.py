"""The commands `python -m studies ...`; the options of each study stand in its `Settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fourier_head.commands import clear_errors
from fourier_head.errors import UserError
from studies.common.command_line import study_command
from studies.common.options import QUICK_RESULTS

STUDIES = {
    "synthetic": "Section 4.1: three known conditional densities, learned with every head and number of frequencies.",
    "likelihood": "Appendix C.3: the synthetic densities again, by maximum likelihood on continuous values.",
    "smoothness": "Appendix B: square waves and noise from brown to blue under the smoothness metric.",
    "scaling-law": "Theorem 3.3: smoothness of truncated densities by their number of frequencies, exponents fitted.",
    "spectrum": "Section 2.3: the Fourier spectrum of next tokens under uniform and mixed bins.",
    "numbers": "Section 4.2: a language model asked for Gaussian numbers, as it is, with LoRA and with a Fourier head.",
    "tempo": "Appendix C.1: the tempo of clicks, learned on odd BPMs and tested on even ones, with each head.",
    "atari": "Section 5: Decision Transformers on Atari games, linear and Fourier heads on data we collect.",
    "forecasting": "Section 6: forecasters after Chronos, linear and Fourier heads at equal budget.",
    "zero-shot": "Beyond the paper: a forecaster that gives a density per step in one pass, on series it never saw.",
    "joint-paths": "Beyond the paper: coverage of sums over the horizon, energy and variogram scores of whole paths.",
    "covariates": "Beyond the paper: weather and holidays beside series, with them, without, and gradient boosting.",
    "first-user": "Beyond the paper: what a first user tries: outliers, rare demand, long seasons, three values.",
}
"""Every study and what it is about; its module is `<study>.study`, but for these."""
MODULES = {"likelihood": "synthetic.likelihood", "forecasting": "chronos.study"}
NEEDS = {"numbers": ("transformers", "tokenizers", "peft", "accelerate"), "tempo": ("transformers", "safetensors")}


class Studies(TyperGroup):
    """Commands of studies, whose modules are loaded when one is called; to list them their names suffice."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, *rest = args
        if name not in STUDIES:
            return super().resolve_command(ctx, args)
        module = MODULES.get(name, f"{name.replace('-', '_')}.study")
        return name, study_command(name, f"studies.{module}", STUDIES[name], NEEDS.get(name, ())), rest


app = typer.Typer(
    cls=Studies,
    help="Repeat the experiments of the paper; each writes results/<study>/, with --quick results-quick/<study>/.",
    no_args_is_help=True,
)
for _name, _words in STUDIES.items():
    app.command(_name, help=_words)(lambda: None)


@app.command()
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
def claims() -> None:
    """Write results/claims.json and docs/paper.md: every claim of the paper and what the results say of it."""
    with clear_errors():
        from studies.claims.table import counts, write

        typer.echo(f"{counts(write())}.")
