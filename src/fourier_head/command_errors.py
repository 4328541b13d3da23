"""How every command of ``fourier-head`` ends where the input is at fault: one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fourier_head.errors import UserError, needs_extra

OPTIONAL = ("rich", "matplotlib", "pandas", "pyarrow")


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors of the user into one sentence on stderr and exit code 2."""
    try:
        yield
    except UserError as error:
        typer.echo(f"fourier-head: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        typer.echo(f"fourier-head: {needs_extra(error)}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("fourier-head: interrupted; nothing was written.", err=True)
        raise typer.Exit(130) from None
