"""Lightning: a module that trains any head, and metrics that do not depend on how data come in batches."""

import importlib
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fourier_head import FourierHead, Interval, metrics
from fourier_head.errors import UserError
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead

lightning = pytest.importorskip("lightning.pytorch")

from fourier_head.integrations.lightning import DensityModule  # noqa: E402
from fourier_head.integrations.torchmetrics import (  # noqa: E402
    CRPS,
    CalibrationError,
    NegativeLogLikelihood,
    Smoothness,
)

HEADS = {
    "fourier": lambda: FourierHead(16, 40, 6, domain=Interval(-3, 3), init_scale=1.0),
    "mixture": lambda: MixtureHead(16, 40, 2, domain=Interval(-3, 3)),
    "hl-gauss": lambda: HLGaussHead(16, 40, domain=Interval(-3, 3)),
    "linear": lambda: LinearHead(16, 40, domain=Interval(-3, 3)),
}


def trainer(**options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", enable_checkpointing=False, **quiet, **options)


def data(rows=400, batch=64):
    x = torch.rand(rows, 1) * 2 - 1
    y = (x[:, 0] + (0.3 + 0.3 * (x[:, 0] > 0)) * torch.randn(rows)).clamp(-2.9, 2.9)
    return DataLoader(TensorDataset(x, y), batch_size=batch), x, y


def body():
    return nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 16), nn.SiLU())


# --- metrics


@pytest.mark.parametrize("name", HEADS)
def test_metrics_of_batches_are_those_of_all_values(name):
    head, x, value = HEADS[name](), torch.randn(50, 16), torch.randn(50).clamp(-2.9, 2.9)
    value[7] = torch.nan
    density, seen = head.density(x), ~value.isnan()
    wanted = {
        NegativeLogLikelihood: -density.log_prob(value.nan_to_num())[seen].mean(),
        CRPS: density.crps(value.nan_to_num())[seen].mean(),
        CalibrationError: metrics.calibration_error(density.cdf(value.nan_to_num())[seen].detach()),
    }
    for kind, right in wanted.items():
        metric = kind()
        for rows in (slice(0, 10), slice(10, 11), slice(11, 50)):
            metric.update(head.density(x[rows]), value[rows])
        assert metric.compute().item() == pytest.approx(right.item(), rel=1e-4)
        first, second = kind(), kind()
        first.update(head.density(x[:20]), value[:20])
        second.update(head.density(x[20:]), value[20:])
        first.merge_state(second)
        assert first.compute().item() == pytest.approx(right.item(), rel=1e-4)


def test_smoothness_is_the_mean_of_the_metric():
    log_probs, metric = torch.randn(6, 30).log_softmax(-1), Smoothness()
    metric.update(log_probs[:1])
    metric.update(log_probs[1:])
    assert metric.compute().item() == pytest.approx(metrics.smoothness(log_probs.exp()).mean().item(), rel=1e-5)


def test_a_batch_without_any_value_changes_nothing():
    head, metric = HEADS["fourier"](), CRPS()
    metric.update(head.density(torch.randn(2, 16)), torch.tensor([0.5, -0.5]))
    before = metric.compute()
    metric.update(head.density(torch.randn(2, 16)), torch.full((2,), torch.nan))
    assert metric.compute() == before


def test_sums_keep_their_precision_whatever_the_module_is_cast_to():
    module = nn.ModuleList([CRPS(), CalibrationError()]).half()
    assert module[0].total.dtype == module[1].counts.dtype == torch.float64


# --- the module


@pytest.mark.parametrize(("name", "objective"), [("fourier", "nll"), ("fourier", "crps"), ("mixture", "nll")])
def test_training_improves_likelihood_and_calibration(name, objective):
    loader, _, _ = data()
    module = DensityModule(body(), HEADS[name](), objective, lr=1e-2)
    before = trainer().validate(module, loader, verbose=False)[0]
    run = trainer(max_epochs=20, check_val_every_n_epoch=20)  # scores of the last epoch alone are looked at
    run.fit(module, loader, loader)
    after = run.callback_metrics
    assert after["val_nll"] < before["val_nll"] - 0.3
    assert after["val_crps"] < 0.8 * before["val_crps"]
    assert after["val_calibration"] < 0.08
    assert set(after) == {"train_loss", "val_nll", "val_crps", "val_calibration"}


def test_a_target_outside_the_domain_counts_as_in_training():
    x, target = torch.randn(6, 16), torch.tensor([0.1, 0.2, 99.0, -1.0, -99.0, 0.0])
    module = DensityModule(nn.Identity(), HEADS["fourier"]())
    found = trainer().validate(module, DataLoader(TensorDataset(x, target), batch_size=4), verbose=False)[0]
    assert found["val_nll"] == pytest.approx(module.head.nll(x, target).item(), rel=1e-5)
    assert found["val_crps"] > 30  # the distance counts


def test_the_rate_rises_and_falls_to_nothing():
    loader, _, _ = data(rows=160, batch=16)
    rates = []

    class Watch(lightning.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    module = DensityModule(body(), HEADS["fourier"](), lr=1e-2, warmup=0.2)
    trainer(max_epochs=2, callbacks=[Watch()]).fit(module, loader)
    assert len(rates) == 20
    assert rates[0] < rates[2] <= 1e-2
    assert max(rates) == pytest.approx(1e-2, rel=0.1)
    assert rates[-1] < 2e-4
    steady = DensityModule(body(), HEADS["fourier"](), lr=1e-2, schedule=None)
    rates.clear()
    trainer(max_epochs=1, callbacks=[Watch()]).fit(steady, loader)
    assert set(rates) == {1e-2}


def test_bins_of_sequences_with_atoms_and_missing_ids():
    head = FourierHead(8, 20, 4, num_atoms=2, init_scale=1.0)
    x, ids = torch.randn(12, 5, 8), torch.randint(0, 22, (12, 5))
    ids[:, 3:] = -100
    loader = DataLoader([{"input": a, "ids": b} for a, b in zip(x, ids, strict=True)], batch_size=5)

    class Same(nn.Module):
        def forward(self, input):
            return input

    module = DensityModule(Same(), head, "bins", target_key="ids")
    found = trainer().test(module, loader, verbose=False)[0]
    kept = ids != -100
    log_probs = head(x)
    assert found["test_loss"] == pytest.approx(nn.functional.cross_entropy(log_probs[kept], ids[kept]).item(), rel=1e-5)
    assert found["test_accuracy"] == pytest.approx((log_probs.argmax(-1) == ids)[kept].float().mean().item())
    smooth = metrics.smoothness(log_probs[kept][..., 2:].softmax(-1)).mean()
    assert found["test_smoothness"] == pytest.approx(smooth.item(), rel=1e-4)
    run, wanted = trainer(max_steps=1), head.loss(x[:5], ids[:5]).item()
    run.fit(module, loader)
    assert run.callback_metrics["train_loss"].item() == pytest.approx(wanted, rel=1e-5)


def test_predictions_are_quantiles_or_distributions_and_survive_a_checkpoint(tmp_path):
    loader, x, _ = data(rows=20)
    module = DensityModule(body(), HEADS["fourier"](), levels=(0.1, 0.9))
    run = trainer(max_epochs=1)
    run.fit(module, loader)
    run.save_checkpoint(tmp_path / "last.ckpt")
    density = module(x)
    (found,) = run.predict(module, loader)
    torch.testing.assert_close(found["quantiles"], density.quantile([0.1, 0.9]))
    torch.testing.assert_close(found["mean"], density.mean)
    again = DensityModule.load_from_checkpoint(
        tmp_path / "last.ckpt", body=body(), head=HEADS["fourier"](), levels=None
    )
    assert again.lr == module.lr
    (same,) = trainer().predict(again, x.unsqueeze(0))  # inputs alone will do
    torch.testing.assert_close(same.mean, density.mean)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (
            lambda: DensityModule(body(), HEADS["fourier"](), "mse"),
            "objective must be one of bins, nll, crps, got 'mse'",
        ),
        (lambda: DensityModule(body(), HEADS["fourier"](), schedule="step"), "schedule must be"),
        (lambda: DensityModule(body(), nn.Linear(16, 1)), "head must be one of ours, such as FourierHead, got Linear"),
        (
            lambda: DensityModule(body(), HEADS["fourier"](), levels=[5, 95]),
            r"levels must lie in \[0, 1\], got \[5, 95\]",
        ),
        (
            lambda: CRPS().update(HEADS["linear"]().density(torch.ones(3, 16)), torch.ones(2)),
            r"shape \(3,\) .* got \(2,\)",
        ),
        (lambda: DensityModule(body(), HEADS["linear"](), "bins")._pair((torch.ones(2, 1), torch.ones(2))), "bin ids"),
        (lambda: DensityModule(body(), HEADS["linear"]())._pair(torch.ones(2, 1)), "must hold a target"),
        (lambda: DensityModule(body(), HEADS["linear"]()).features((1, 2, 3)), "got 3 things"),
        (
            lambda: DensityModule(body(), HEADS["linear"](), "bins")._watch(
                (torch.ones(1, 1), torch.tensor([99])), "val"
            ),
            "bin ids from 0 to .* got 99",
        ),
        (
            lambda: CRPS().update(HEADS["linear"]().density(torch.ones(3, 16)), torch.ones(3, 1)),
            r"value must have the shape \(3,\) of the distributions, got \(3, 1\)",
        ),
    ],
)
def test_bad_input_gets_a_sentence(act, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        act()


@pytest.mark.parametrize("name", ["lightning", "torchmetrics"])
def test_a_missing_library_is_named_with_the_extra_that_installs_it(name, monkeypatch):
    monkeypatch.delitem(sys.modules, f"fourier_head.integrations.{name}")
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(UserError, match=r'pip install "fourier-head\[lightning\]"'):
        importlib.import_module(f"fourier_head.integrations.{name}")


@pytest.mark.slow
def test_metrics_of_two_processes_are_those_of_all_values(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        import time
        from pathlib import Path
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from lightning.pytorch import Trainer
        from fourier_head import FourierHead, Interval
        from fourier_head.integrations.lightning import DensityModule

        torch.manual_seed(0)
        x, y = torch.randn(40, 4), torch.rand(40)
        head = FourierHead(4, num_frequencies=5, domain=Interval(-1, 2))
        options = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
        trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", **options)
        loader = DataLoader(TensorDataset(x, y), batch_size=5)
        found = trainer.validate(DensityModule(nn.Identity(), head), loader, verbose=False)[0]
        assert abs(found["val_nll"] - float(head.nll(x, y))) < 1e-5, found
        assert abs(found["val_crps"] - float(head.crps(x, y))) < 1e-5, found
        Path(sys.argv[1], f"{trainer.global_rank} of {trainer.world_size}").touch()
        time.sleep(0.3)  # Lightning now destroys the group: see fourier_head.training.processes
        """)
    )
    command = [sys.executable, str(script), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr[-2000:]
    assert {path.name for path in tmp_path.glob("? of ?")} == {"0 of 2", "1 of 2"}
