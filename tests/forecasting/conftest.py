"""What all tests of forecasting start from."""

import pytest

from fourier_head.pages import drawing
from tests.drawn_once import once


@pytest.fixture(scope="session", autouse=True)
def _each_fan_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "save_png", once(titled=False))
        yield
