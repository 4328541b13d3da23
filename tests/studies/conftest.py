"""What all tests of studies start from."""

import pytest
from studies.common import results

from tests.drawn_once import once


@pytest.fixture(scope="session", autouse=True)
def _each_figure_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "save_png", once())
        yield
