"""What all tests of studies start from."""

import pytest
import torch
from studies.common import results
from studies.synthetic import data

from tests.drawn_once import once


@pytest.fixture(scope="session", autouse=True)
def _each_figure_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "save_png", once())
        yield


@pytest.fixture
def few_rows(monkeypatch):
    """Let studies of known densities draw 400 triples instead of 5000."""
    draw = data.draw
    monkeypatch.setattr(data, "draw", lambda name, seed: draw(name, seed, count=400))


@pytest.fixture
def one_thread():
    """Leave the other cores to emulators."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
