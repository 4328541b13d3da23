"""Which device commands compute on, and how networks are trained there."""

import pytest
import torch

from fourier_head._devices import best_device, chosen_device, fast_training
from fourier_head.errors import UserError


@pytest.mark.parametrize("there", [True, False])
def test_auto_is_cuda_where_there_is_one(monkeypatch, there):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert best_device() == chosen_device("auto") == ("cuda" if there else "cpu")
    assert chosen_device("cpu") == "cpu"


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"--device must .*got abacus"):
        chosen_device("abacus")
    with pytest.raises(UserError, match="--device cuda:1 needs a graphics card"):
        chosen_device("cuda:1")
    with pytest.raises(UserError, match="no device that torch can use"):
        chosen_device("hpu", "device")


def test_only_a_gpu_trains_compiled_in_bfloat16():
    before = torch.get_float32_matmul_precision()
    try:
        assert fast_training("cpu") == ("no", False)
        assert torch.get_float32_matmul_precision() == before
        assert fast_training("cuda:0") == ("bf16", True)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
