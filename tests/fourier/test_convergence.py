"""Train the same small transformer with every implementation of the loss: the curves are one, up to rounding."""

import math

import pytest
import torch

from fourier_head import FourierHead


def curve(
    impl, steps, *, width, layers, batch, length, bins, frequencies, device="cpu", dtype=torch.float32, scale=1.0
):
    """Return the losses of predicting the next bin of noisy waves, ``steps`` batches of them."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
    body = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.TransformerEncoder(layer, layers))
    head = FourierHead(width, bins, frequencies, impl=impl, init_scale=scale, floor=1e-3)
    model = torch.nn.ModuleList([body, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=device)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        time = torch.arange(length + 1.0) / 2 + 2 * math.pi * torch.rand(batch, 1, generator=generator)
        wave = torch.sin(time) + 0.1 * torch.randn(batch, length + 1, generator=generator)
        inputs = wave[:, :-1, None].to(device)
        target = ((wave[:, 1:] / 3 + 0.5).clamp(0, 0.999) * bins).long().to(device)
        with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = head.loss(body[1](body[0](inputs), mask=mask, is_causal=True), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


TINY = {"width": 8, "layers": 1, "batch": 2, "length": 6, "bins": 12, "frequencies": 4}


@pytest.mark.parametrize("impl", ["auto", "fused", pytest.param("compiled", marks=pytest.mark.slow)])
def test_the_first_steps_are_the_same(impl):
    if impl == "fused":
        pytest.importorskip("triton")
        if torch.cuda.is_available():
            pytest.skip("the interpreter is for machines without a GPU")
    steps = 12
    plain = curve("reference", steps, **TINY)
    torch.testing.assert_close(curve(impl, steps, **TINY), plain, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_200_steps_give_the_same_curve(dtype, scale):
    options = {"width": 64, "layers": 2, "batch": 32, "length": 16, "bins": 64, "frequencies": 40}
    options |= {"device": "cuda", "dtype": dtype, "scale": scale}
    plain, fused = (curve(impl, 200, **options) for impl in ("reference", "fused"))
    noise = (curve("reference", 200, **options | {"dtype": torch.bfloat16})[-50:].mean() - plain[-50:].mean()).abs()
    assert plain[-20:].mean() < plain[0] - 0.5
    assert (fused[:20] - plain[:20]).abs().max() < (0.01 if dtype == torch.float32 else 0.05)
    assert (fused[-50:].mean() - plain[-50:].mean()).abs() < 0.03 + 2 * noise
