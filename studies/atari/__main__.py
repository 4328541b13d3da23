"""Record games and let trained agents play: ``python -m studies.atari collect``."""

from studies.atari.cli import app

if __name__ == "__main__":
    app(prog_name="python -m studies.atari")
