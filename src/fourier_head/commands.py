"""What commands share: options that are the fields of a dataclass, and errors in one sentence with an exit code."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from fourier_head.errors import UserError, needs_extra

OPTIONAL = ("rich", "matplotlib", "pandas", "pyarrow", "jinja2")


def option(
    default: Any,
    help: str,
    *flags: str,
    shown: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
    argument: bool = False,
    told: bool = True,
    by_name: bool = False,
    **more: Any,
) -> Any:
    """Return a field of a dataclass of `Options`, which is an option of its command.

    Args:
        default: its value unless given; with ``dataclasses.MISSING`` it must be given.
        help: what the command says about it.
        flags: how it is written, `--name` unless given.
        shown: what the command says is its default, where that is not the value itself.
        low, high, choices: what it may be; None may always stand for "not given".
        parse: makes the value of a text; the default is then given as text, too.
        argument: whether it is written without a flag.
        told: whether the command that repeats the work names it.
        by_name: whether Python, too, must name it. (Not a `KW_ONLY`, whose hint Python 3.10 cannot read.)
        more: whatever else is to be known of it.
    """
    about: dict[str, Any] = {"help": help, "flags": flags, "shown": shown, "low": low, "high": high}
    about |= {"choices": choices, "parse": parse, "text": default, "argument": argument, "told": told, **more}
    # What must be given is given by name: fields before it may have defaults.
    kw_only: Any = True if by_name or default is dataclasses.MISSING else dataclasses.MISSING
    return dataclasses.field(default=parse(default) if parse else default, metadata=about, kw_only=kw_only)


class Options:
    """A base of frozen dataclasses whose fields are made by `option`: checks them, and writes them as a command."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            if not one.metadata:  # no option
                continue
            value, low, high, choices = getattr(self, one.name), *(one.metadata[k] for k in ("low", "high", "choices"))
            if value is None:
                continue
            name = one.name.replace("_", "-")
            if choices and value not in choices:
                raise UserError(f"--{name} must be one of {', '.join(choices)}, got {value}.")
            if low is not None and value < low:
                raise UserError(f"--{name} must be at least {low:,}, got {value:,}.")
            if high is not None and not value <= high:
                raise UserError(f"--{name} must be at most {high:,}, got {value:,}.")

    def words(self) -> Iterator[str]:
        """Yield the words after the command that repeat this; options at their defaults are left out."""
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if value == one.default or not one.metadata["told"]:
                continue
            if not one.metadata["argument"]:
                yield f"--{one.name}"
            if value is not True:
                yield ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def command(settings: type, run: Callable[[Any], None]) -> Callable[..., None]:
    """Return a function for typer that makes `settings` of its options and calls `run`; errors are one sentence."""
    fields, hints = [one for one in dataclasses.fields(settings) if one.metadata], get_type_hints(settings)

    def call(**given: Any) -> None:
        with clear_errors():
            for one in fields:
                if one.metadata["parse"]:
                    given[one.name] = one.metadata["parse"](given[one.name])
            run(settings(**given))

    call.__signature__ = inspect.Signature([parameter(one, hints[one.name]) for one in fields])  # type: ignore[attr-defined]
    call.__doc__ = run.__doc__
    return call


def parameter(one: dataclasses.Field[Any], kind: Any, shown: str | None = None) -> inspect.Parameter:
    """Return a field as a parameter of a function that typer reads; `shown` in place of its default where given."""
    import typer

    about = one.metadata
    options: dict[str, Any] = {}
    if shown or about["shown"] is not None:
        options["show_default"] = shown or about["shown"]
    flags = about["flags"] or ([f"--{one.name}"] if one.default is False else [])
    make = typer.Argument if about["argument"] else typer.Option
    kind = str if about["parse"] or get_origin(kind) is Literal else kind  # the settings say what it may be
    annotation = Annotated[kind, make(*flags, help=about["help"], **options)]
    default = inspect.Parameter.empty if about["text"] is dataclasses.MISSING else about["text"]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def output_folder(output: Path | None, prefix: str, name: str) -> Path:
    """Return the folder to write: the one asked for, or one named after the data in the current folder.

    >>> str(output_folder(None, "compare", "homes.csv.gz"))
    'compare-homes'
    """
    return output or Path(f"{prefix}-{name.split('.')[0]}")


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors of the user into one sentence on stderr and exit code 2."""
    import typer

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
