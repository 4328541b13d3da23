"""The head in parallel training, on two CPU processes: DDP and FSDP2 give the gradients of the whole batch."""

import pytest
import torch
import torch.distributed as dist

from fourier_head import FourierHead

OPTIONS = {"in_features": 6, "num_bins": 12, "num_frequencies": 4, "init_scale": 1.0, "gamma": 1e-3}


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=generator), torch.randint(12, (8,), generator=generator)


def make_head():
    torch.manual_seed(0)
    return FourierHead(**OPTIONS)


def expected():
    head = make_head()
    head.loss(*batch()).backward()
    return [p.grad for p in head.parameters()]


class Loss(torch.nn.Module):
    """DDP watches ``forward``; a training loop that calls ``loss`` wraps it like this."""

    def __init__(self):
        super().__init__()
        self.head = make_head()

    def forward(self, x, target):
        return self.head.loss(x, target)


def replicated(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(Loss())
    x, target = (t.chunk(size)[rank] for t in batch())
    model(x, target).backward()
    return [p.grad for p in model.parameters()]


def sharded(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Loss()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    x, target = (t.chunk(size)[rank] for t in batch())
    model(x, target).backward()
    head = model.head
    assert type(head.proj.weight).__name__ == "DTensor"
    # Between steps the weights are sharded: the kernels refuse them in words, nothing computes on a piece.
    head.impl = "fused"
    with pytest.raises(ValueError, match=r"DTensor|CUDA device"):
        head.loss(x, target)
    return [p.grad.full_tensor() for p in model.parameters()]


def check_gradients():
    """Compare the gradients of either way with those of one process; in two that have met."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for train in (replicated, sharded):
        for found, wanted in zip(train(rank, size), expected(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
