"""Targets of every make, double precision, compilers, and what a regression learns."""

import math
import warnings

import pytest
import torch

from fourier_head import Circle, FourierHead, Interval, Line, LinearHead, MixtureHead, RegressionHead
from tests.heads.made import ATOMS, HEADS, MIXED


def test_values_have_the_shape_of_the_features_or_are_one_number(head):
    head.eval()
    x, value = torch.randn(5, 16), head.density(torch.randn(5, 16)).mean.detach()
    for score in (head.nll, head.crps):
        torch.testing.assert_close(score(x, value[0]), score(x, value[:1].expand(5)))
        for wrong in (value[:, None], value[:4], value.expand(2, 5)):
            with pytest.raises(ValueError, match=r"shape \(5,\)"):
                score(x, wrong)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_regulariser_of_one_value_for_all_rows_is_that_of_as_many(reduction):
    head = FourierHead(16, num_frequencies=4, gamma=0.1, init_scale=1.0).train()
    x, value = torch.randn(5, 16), torch.tensor(0.3)
    torch.testing.assert_close(
        head.crps(x, value, reduction=reduction), head.crps(x, value.expand(5), reduction=reduction)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_ids_of_every_type_are_the_same_ids(head, dtype):
    head.eval()
    x = torch.randn(5, 16)
    target = torch.tensor([0, 1, 5, 6, 3])
    torch.testing.assert_close(head.loss(x, target.to(dtype)), head.loss(x, target))


def test_ids_are_one_for_each_row_of_features(head):
    target = torch.zeros(5, dtype=torch.long)
    for wrong in (target[:, None], target[:4], target.expand(2, 5)):
        with pytest.raises(ValueError, match=r"target must have the shape \(5,\) of x without features"):
            head.loss(torch.randn(5, 16), wrong)


def test_ids_that_look_like_the_ignored_one_count():
    head, x = FourierHead(4, 200, 3, init_scale=1.0), torch.randn(2, 4)
    target = torch.tensor([156, 10])  # -100 in eight bits is 156
    torch.testing.assert_close(head.loss(x, target.to(torch.uint8)), head.loss(x, target))


@pytest.mark.parametrize("name", HEADS)
def test_values_beyond_the_ends_have_a_finite_score(name):
    head, x = HEADS[name](), torch.randn(3, 16)
    if isinstance(head.domain, Line):
        return
    far = torch.tensor([-1e6, 1e6, 1e-3])
    assert head.nll(x, far).isfinite()
    assert head.crps(x, far).isfinite()


@pytest.mark.parametrize("ends", [(0.1, 0.7), (-1, 3.3)])
@pytest.mark.parametrize("make", [FourierHead, LinearHead, MixtureHead, RegressionHead])
def test_a_value_moved_to_an_end_is_inside(make, ends):
    assert make(4, 20, domain=Interval(*ends)).nll(torch.randn(5, 4), torch.full((5,), 9.0)).isfinite()


# --- double precision, compilers, and what a regression learns


@pytest.mark.parametrize("name", [*HEADS, *ATOMS])
def test_a_double_head_computes_in_double_precision(name):
    head = {**HEADS, **ATOMS}[name]().double().eval()
    x, ids = torch.randn(3, 16, dtype=torch.float64, requires_grad=True), torch.tensor([3, 4, 5])
    assert head(x).dtype == head.loss(x, ids).dtype == torch.float64
    # Along one direction, which is enough to fail where a number is rounded to float32 on the way.
    assert torch.autograd.gradcheck(lambda x: head.loss(x, ids), (x,), fast_mode=True)
    value = head.density(x).mean.detach() + 0.01
    assert torch.autograd.gradcheck(lambda x: head.nll(x, value), (x,), fast_mode=True)


def test_class_weights_of_another_precision(head):
    weight = torch.rand(head.out_features, dtype=torch.float64)
    x, target = torch.randn(5, 16), torch.tensor([0, 1, 2, 3, 4])
    torch.testing.assert_close(head.loss(x, target, weight=weight), head.loss(x, target, weight=weight.float()))


def test_class_weights_are_one_for_each_class(head):
    x, target = torch.randn(3, 16), torch.zeros(3, dtype=torch.long)
    for weight in (torch.ones(head.out_features - 1), torch.ones(head.out_features, 1), [1.0] * head.out_features):
        with pytest.raises(ValueError, match=rf"weight must be a tensor of shape \({head.out_features},\)"):
            head.loss(x, target, weight=weight)


@pytest.mark.parametrize("domain", [Interval(-3, 7), Circle(24.0), Line(), MIXED], ids=repr)
def test_scores_of_values_compile_whole_and_map_over_samples(domain):
    head = FourierHead(4, None, 3, domain=domain, init_scale=1.0)
    x, value = torch.randn(5, 4), torch.rand(5)
    compiled = torch.compile(lambda x, value: head.crps(x, value), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, value), head.crps(x, value))
    got = torch.func.vmap(torch.func.grad(lambda x, value: head.crps(x[None], value[None])))(x, value)
    x.requires_grad_()
    torch.testing.assert_close(got, torch.autograd.grad(head.crps(x, value, reduction="sum"), x)[0])


def test_a_look_on_the_meta_device_leaves_nothing_behind():
    head = FourierHead(4, 37, 3)
    with torch.device("meta"):
        FourierHead(4, 37, 3).loss(torch.randn(2, 4), torch.zeros(2, dtype=torch.long))
        head.loss(torch.randn(2, 4, device="cpu"), torch.zeros(2, dtype=torch.long, device="cpu"))
    assert head.loss(torch.randn(2, 4), torch.tensor([3, 4])).isfinite()


@pytest.mark.parametrize("score", ["nll", "crps"])
def test_a_regression_learns_its_spread_from_values(score):
    head = RegressionHead(4, 20, momentum=0.2, domain=Interval(0, 10))
    x, value = torch.zeros(50, 4), torch.full((50,), 5.0)
    value[:25] = math.nan
    with torch.no_grad():
        head.proj.bias.fill_(0.2)  # z; the values lie at z = 0
    for _ in range(60):
        getattr(head, score)(x, value)
    assert head.residual_variance.item() == pytest.approx(0.04, rel=1e-3)
    head.eval()
    getattr(head, score)(x, value - 3)
    assert head.residual_variance.item() == pytest.approx(0.04, rel=1e-3)


def test_walls_on_a_circle_are_refused():
    with pytest.raises(ValueError, match="a circle has no walls"):
        FourierHead(4, 20, 3, domain=Circle(24.0), boundary="reflect")


def test_a_pair_is_an_interval_and_other_domains_are_refused():
    x, value = torch.randn(3, 16), torch.tensor([10.0, 50.0, 90.0])
    for make in (FourierHead, LinearHead, MixtureHead):
        torch.manual_seed(0)
        pair = make(16, 20, domain=(0, 100))
        torch.manual_seed(0)
        torch.testing.assert_close(pair.nll(x, value), make(16, 20, domain=Interval(0, 100)).nll(x, value))
    with pytest.raises(TypeError, match=r"domain must .*got 'line'"):
        FourierHead(16, 20, domain="line")


def test_values_mostly_outside_the_domain_are_told():
    head, x = FourierHead(16, num_frequencies=3), torch.randn(4, 16)
    with pytest.warns(UserWarning, match="3 of 4 values lie outside"):
        head.crps(x, torch.tensor([0.5, 2.0, 30.0, -400.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head.nll(x, torch.tensor([0.5, 0.1, 30.0, math.nan]))


def test_levels_that_are_none_are_refused(head):
    density = head.density(torch.randn(3, 16))
    for wrong in ([5, 50, 95], 1.5, torch.tensor([0.5, -0.1])):
        with pytest.raises(ValueError, match=r"levels must lie in \[0, 1\], got"):
            density.quantile(wrong)
