"""Every head in turn."""

import pytest

from tests.heads.made import HEADS


@pytest.fixture(params=HEADS)
def head(request):
    return HEADS[request.param]()
