"""What every test of kernels starts from."""

import pytest
import torch


@pytest.fixture(autouse=True)
def whole_float32(monkeypatch):
    """Multiply float32 in float32, whatever ran before: a card's quick products have eleven bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    yield
    torch.set_float32_matmul_precision(before)
