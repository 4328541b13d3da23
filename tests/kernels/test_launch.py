"""Launches from the second on, which go by what the first one has compiled; here by a kernel that takes notes."""

import pytest
import torch

pytest.importorskip("triton")

from fourier_head.kernels import launch


class Kernel:
    """What a decorated kernel and its compiled form are to a launch."""

    function = packed_metadata = "of the compiler"

    def __init__(self):
        self.compiled, self.ran = [], []

    def __getitem__(self, grid):
        return lambda *given, **options: self.compiled.append((grid, given, options)) or self

    def run(self, *given):
        self.ran.append(given)


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "_COMPILED", {})
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    return Kernel()


def site(kernel, number=5):
    return launch.Site(kernel, (4, 1, 1), (number,), {"BLOCK": 16}, {"num_warps": 1}, "known", {})


def test_the_second_launch_is_given_addresses_numbers_and_constants_in_order(kernel):
    here, x, ids = site(kernel), torch.zeros(8), torch.zeros(8, dtype=torch.long)
    launch.launch(here, (x, None, ids))
    assert kernel.compiled == [((4, 1, 1), (x, None, ids, 5), {"BLOCK": 16, "num_warps": 1})]
    assert not kernel.ran
    launch.launch(here, (x, None, ids))
    launch.launch(site(kernel, 6), (x, None, ids))  # one compiled kernel does for both
    assert len(kernel.compiled) == 1
    before = (4, 1, 1, 77, "of the compiler", "of the compiler", None, None, None, x.data_ptr(), None, ids.data_ptr())
    assert kernel.ran == [(*before, 5, 16), (*before, 6, 16)]


def test_other_types_places_and_missing_tensors_are_compiled_anew(kernel):
    here, x = site(kernel), torch.zeros(24)
    assert x.data_ptr() % 16 == 0
    for tensors in ((x, None), (x, x), (x.double(), None), (x[1:], None), (x[2:], None)):
        for _ in range(2):
            launch.launch(here, tensors)
    assert [given[:2] for _, given, _ in kernel.compiled][:2] == [(x, None), (x, x)]
    assert len(kernel.compiled) == len(kernel.ran) == 5
    launch.launch(here, (x[4:], None))  # as well aligned as the first
    assert len(kernel.compiled) == 5
