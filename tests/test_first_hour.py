"""What goes wrong in a newcomer's first hour: every message names the argument, says what came and the way out."""

import numpy as np
import pytest
import torch

from fourier_head import Adaptive, FourierHead, Interval, LinearHead

X, IDS = torch.zeros(8, 16), torch.zeros(8, dtype=torch.long)


@pytest.fixture(params=[FourierHead, LinearHead])
def head(request):
    return request.param(16, 50)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(8, 12), r"x must have the shape \(\.\.\., 16\) that in_features says, got \(8, 12\)"),
        (torch.tensor(1.0), r"x must have the shape \(\.\.\., 16\) .* got \(\)"),
        ([[0.0] * 16] * 8, "x must be a tensor of features, got list; torch.as_tensor makes one"),
        (np.zeros((8, 16)), "x must be a tensor of features, got ndarray"),
        (torch.zeros(8, 16, dtype=torch.long), r"got torch.int64; x.to\(torch.float32\) converts them"),
        (torch.zeros(8, 16, dtype=torch.float64), r"got torch.float64; x.to\(torch.float32\) converts them"),
    ],
)
@pytest.mark.parametrize("method", ["forward", "density", "loss", "nll"])
def test_features_that_cannot_be_taken(head, x, words, method):
    arguments = {"loss": (IDS,), "nll": (torch.zeros(8),)}.get(method, ())
    with pytest.raises((TypeError, ValueError), match=words):
        getattr(head, method)(x, *arguments)


def test_features_of_another_width_pass_where_torch_takes_them(head):
    with torch.autocast("cpu", torch.bfloat16):
        assert head(X).isfinite().all()
        assert head(X.bfloat16()).isfinite().all()
    assert head.double()(X.double()).isfinite().all()


@pytest.mark.parametrize(("target", "kind"), [([1] * 8, "list"), (np.ones(8, dtype=int), "ndarray")])
def test_targets_are_tensors(head, target, kind):
    with pytest.raises(TypeError, match=f"target must be a tensor of bin ids, got {kind}"):
        head.loss(X, target)


def test_what_a_density_is_asked_for():
    density = FourierHead(16, domain=Interval(0, 10)).density(X)
    with pytest.raises(ValueError, match=r"value must broadcast with the batch shape \(8,\), got shape \(5,\)"):
        density.log_prob(torch.rand(5))
    with pytest.raises(TypeError, match="expected numbers, got 'median'"):
        density.quantile("median")
    with pytest.raises(TypeError, match=r"expected numbers, got \['low', 'high'\]"):
        density.quantile(["low", "high"])


def test_words_in_place_of_numbers():
    with pytest.raises(TypeError, match=r"expected real numbers, got \['a', 'b'\]"):
        Adaptive.fit(["a", "b"])
    with pytest.raises(TypeError, match="low and high must be numbers, got '0'"):
        Interval("0", "10")
    with pytest.raises(TypeError, match="in_features must be a whole number, got tensor"):
        FourierHead(X, 50)
