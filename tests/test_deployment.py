"""The head survives the ways people ship and train models: compile, export, ONNX, meta device, vmap."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fourier_head import Adaptive, FourierHead, MixtureHead
from fourier_head._devices import constant_result

OPTIONS = [{}, {"packets": 2, "boundary": "reflect"}, {"bin_mass": "exact", "num_atoms": 2, "gamma": 1e-3}]


def _head(**options):
    return FourierHead(16, 50, 12, init_scale=1.0, **options)


@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)  # the plain head is compiled in whole below
def test_compile_fullgraph(options):
    head = _head(**options)
    x, target = torch.randn(6, 16), torch.randint(50, (6,))

    def step(x, target):
        return head(x), head.loss(x, target)

    logs, loss = torch.compile(step, fullgraph=True, backend="aot_eager")(x, target)
    torch.testing.assert_close(logs, head(x))
    torch.testing.assert_close(loss, head.loss(x, target))
    got = torch.autograd.grad(loss, list(head.parameters()))
    for a, b in zip(got, torch.autograd.grad(head.loss(x, target), list(head.parameters())), strict=True):
        torch.testing.assert_close(a, b)


def test_inductor_compiles_loss_logits_and_large_heads():
    head = FourierHead(16, 300, 130, init_scale=1.0)
    x, target, value = torch.randn(6, 16), torch.randint(300, (6,)), torch.rand(6)

    def everything(x, target, value):
        return head(x), head.loss(x, target), head.nll(x, value), head.crps(x, value)

    compiled = torch.compile(everything, fullgraph=True)(x, target, value)
    for a, b in zip(compiled, everything(x, target, value), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_constant_results_are_marked_as_torch_marks_them():
    def ours():
        return 0

    def theirs():
        return 0

    assert vars(constant_result(ours)) == vars(torch.compiler.assume_constant_result(theirs)) != {}


class Quantiles(nn.Module):
    def __init__(self, head, levels):
        super().__init__()
        self.head = head
        self.levels = levels

    def forward(self, x):
        return self.head.density(x).quantile(self.levels)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_export(options):
    head = _head(**options).eval()
    x = torch.randn(6, 16)
    batch = torch.export.Dim("batch", min=2, max=1024)
    program = torch.export.export(head, (x,), dynamic_shapes={"x": {0: batch}})
    other = torch.randn(9, 16)
    torch.testing.assert_close(program.module()(other), head(other))


def test_compiled_code_is_not_taken_for_exported(monkeypatch):
    # Older versions of torch answer so wherever they compile; matrices in place of FFTs would be built in every step.
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: torch.compiler.is_dynamo_compiling())
    head, found = FourierHead(16, 4094, 550), []

    def backend(module, example):
        found.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    torch.compile(head.penalty, backend=backend)(torch.randn(3, 16))
    assert any("fft" in target for target in found)


def _program(module, x):
    batch = torch.export.Dim("batch", min=2, max=1024)
    return torch.export.export(module, (x,), dynamic_shapes={"x": {0: batch}})


def _onnx(program, path, x):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    torch.onnx.export(program, f=str(path), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(path))
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(found)


def test_export_of_quantiles():
    quantiles = Quantiles(_head(boundary="reflect").eval(), [0.1, 0.5, 0.9]).eval()
    x, other = torch.randn(6, 16), torch.randn(9, 16)
    torch.testing.assert_close(_program(quantiles, x).module()(other), quantiles(other), rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # torch takes half a minute to write the steps of the search as ONNX
@pytest.mark.parametrize("boundary", ["periodic", "reflect"])
def test_onnx_of_quantiles(boundary, tmp_path):
    quantiles = Quantiles(_head(boundary=boundary).eval(), [0.1, 0.5, 0.9]).eval()
    x, other = torch.randn(6, 16), torch.randn(9, 16)
    found = _onnx(_program(quantiles, x), tmp_path / "model.onnx", other)
    torch.testing.assert_close(found, quantiles(other).detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"packets": 2, "boundary": "reflect"}], ids=str)
def test_onnx(options, tmp_path):
    head = _head(**options).eval()
    x, other = torch.randn(6, 16), torch.randn(9, 16)
    found = _onnx(_program(head, x), tmp_path / "model.onnx", other)
    torch.testing.assert_close(found, head(other).detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_meta_device(options):
    trained = _head(**options)
    with torch.device("meta"):
        head = _head(**options)
    assert head.proj.weight.is_meta
    assert head(torch.empty(3, 16, device="meta")).shape == (3, head.out_features)
    head.load_state_dict(trained.state_dict(), assign=True)
    x = torch.randn(3, 16)
    torch.testing.assert_close(head(x), trained(x))
    with torch.device("meta"):
        empty = _head(**options)
    empty = empty.to_empty(device="cpu")
    empty.reset_parameters()
    assert empty(x).isfinite().all()


def test_vmap_gives_per_sample_gradients():
    head = _head(packets=1)
    parameters = {k: v.detach() for k, v in head.named_parameters()}
    x, target = torch.randn(5, 16), torch.randint(50, (5,))

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, x, target):
            return self.head.loss(x, target)

    module = Loss()

    def one(parameters, x, target):
        named = {f"head.{k}": v for k, v in parameters.items()}
        return torch.func.functional_call(module, named, (x[None], target[None]))

    got = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))(parameters, x, target)
    for i in range(5):
        want = torch.autograd.grad(head.loss(x[i : i + 1], target[i : i + 1]), list(head.parameters()))
        for name, gradient in zip(parameters, want, strict=True):
            torch.testing.assert_close(got[name][i], gradient, rtol=1e-4, atol=1e-5)


def test_vmap_over_stacked_heads():
    heads = [_head() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(heads)
    base = copy.deepcopy(heads[0]).to("meta")
    x = torch.randn(4, 16)
    got = torch.func.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(got, torch.stack([h(x) for h in heads]))


@pytest.mark.parametrize("make", [_head, lambda: FourierHead(16, domain=Adaptive()), lambda: MixtureHead(16, 50)])
def test_vmap_finds_quantiles(make):
    """Levels are the same for all, so that only the densities are wrapped."""

    class Quantiles(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = make()

        def forward(self, x):
            return self.head.density(x).quantile([0.1, 0.5])

    modules, x = [Quantiles() for _ in range(3)], torch.randn(4, 16)
    parameters, _ = torch.func.stack_module_state(modules)
    got = torch.func.vmap(lambda p: torch.func.functional_call(modules[0], p, (x,)))(parameters)
    torch.testing.assert_close(got, torch.stack([module(x) for module in modules]))


def test_activation_checkpointing():
    head = _head()
    x, target = torch.randn(6, 16, requires_grad=True), torch.randint(50, (6,))
    plain = torch.autograd.grad(head.loss(x, target), [x, head.proj.weight])
    loss = torch.utils.checkpoint.checkpoint(head.loss, x, target, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(loss, [x, head.proj.weight]), plain, strict=True):
        torch.testing.assert_close(a, b)


def test_logits_work_in_any_cross_entropy_and_sampler():
    head = _head()
    x = torch.randn(3, 16)
    logs = head(x)
    torch.testing.assert_close(F.softmax(logs, dim=-1), logs.exp())
    assert torch.distributions.Categorical(logits=logs).sample((7,)).shape == (7, 3)
