"""The count of what the host does: every loss is there, and afterwards kernels compute again."""

import pytest

pytest.importorskip("triton")

from benchmarks import host
from fourier_head.kernels import launch, rowwise


def test_every_loss_is_counted_beside_a_linear_head(capsys):
    before = launch.INTERPRETED, rowwise.product, launch._COMPILED
    host.main(["--turns", "1", "--steps", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [host.LINEAR, *host.OURS]
    assert "both 1.00" in lines[0]
    assert all(int(line.rpartition(" ")[2]) > 20 for line in lines)
    assert (launch.INTERPRETED, rowwise.product, launch._COMPILED) == before
