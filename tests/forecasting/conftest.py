"""What all tests of forecasting start from."""

import pytest
from typer.testing import CliRunner

from fourier_head.cli import app
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.pages import drawing
from tests.drawn_once import once


@pytest.fixture(scope="package", autouse=True)  # others in the same process draw theirs
def _each_fan_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "save_png", once(titled=False))
        yield


@pytest.fixture(scope="module")
def forecaster():
    """Return a tiny forecaster; modules that need another one have a fixture of this name."""
    from tests.forecasting.test_forecaster import tiny

    return tiny()


@pytest.fixture(scope="module")
def shipped():
    """Return the forecaster of the package."""
    return Forecaster.from_pretrained("small", "cpu")


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Return the folder of a tiny forecaster, for commands to name."""
    from tests.forecasting.test_forecaster import tiny

    return str(tiny().save_pretrained(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture
def run(model, tmp_path, monkeypatch):
    """Return the command ``fourier-head forecast`` of that forecaster, called in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    fixed = ["--model", model, "--device", "cpu"]
    return lambda *words: CliRunner().invoke(app, ["forecast", *map(str, words), *fixed])
