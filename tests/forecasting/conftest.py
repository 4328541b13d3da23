"""What all tests of forecasting start from."""

import pytest

from fourier_head.pages import drawing
from tests.drawn_once import once


@pytest.fixture(scope="package", autouse=True)  # others in the same process draw theirs
def _each_fan_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "save_png", once(titled=False))
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Return the folder of a tiny forecaster, for commands to name."""
    from tests.forecasting.test_forecaster import tiny

    return str(tiny().save_pretrained(tmp_path_factory.mktemp("model") / "tiny"))
