"""Repeat the paper: ``python -m studies synthetic``, ``python -m studies report``."""

from studies.cli import app

if __name__ == "__main__":
    app(prog_name="python -m studies")
