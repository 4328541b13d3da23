"""Install the wheel with each extra alone in a clean environment and use what its name promises.

    python tools/check_extras.py dist/fourier_head-*.whl            # all extras, a few minutes each
    python tools/check_extras.py dist/fourier_head-*.whl cli sklearn

torch comes first and alone, in the version the project is tested with, before any range can pull another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"

TABLE = """
import numpy as np, pandas as pd
from pathlib import Path
rng = np.random.default_rng(0)
time = pd.date_range("2020-01-01", periods=96, freq="MS")
pd.DataFrame({"month": time, "sold": 100 + 10 * rng.normal(size=96)}).to_csv("sales.csv", index=False)
rooms = rng.integers(1, 6, 300)
pd.DataFrame({"rooms": rooms, "price": 50 * rooms + rng.normal(size=300)}).to_csv("prices.csv", index=False)
"""

# What a user of each extra does first. "" is the core: torch and numpy, nothing else.
SMOKE: dict[str, str] = {
    "": """
import torch
from fourier_head import Adaptive, FourierHead
head, x = FourierHead(8, 64, 6), torch.randn(4, 8)
assert torch.isfinite(head.loss(x, torch.randint(64, (4,))))
value = 1000 + 300 * torch.randn(4)
head = FourierHead(8, num_frequencies=6, domain=Adaptive.fit(value))
assert head.density(x).quantile([0.05, 0.5, 0.95]).isfinite().all()
import os, subprocess, sys
# A command that is not installed says so in one sentence.
command = os.path.join(os.path.dirname(sys.executable), "fourier-head")
out = subprocess.run([command, "--help"], capture_output=True, text=True)
assert "fourier-head[cli]" in out.stderr and "Traceback" not in out.stderr, out.stderr
""",
    "cli": TABLE
    + """
import subprocess, sys, os
command = os.path.join(os.path.dirname(sys.executable), "fourier-head")
subprocess.run([command, "--version"], check=True)
subprocess.run([command, "compare", "prices.csv", "--target", "price", "--quick", "-o", "out"], check=True)
assert Path("out/index.html").is_file()
out = subprocess.run([command, "forecast", "sales.csv"], capture_output=True, text=True)
assert out.returncode == 2 and "pip install" in out.stderr and "Traceback" not in out.stderr, out.stderr
""",
    "export": """
import numpy as np, onnxruntime, torch
from fourier_head import FourierHead
head, x = FourierHead(8, 64, 6).eval(), torch.randn(4, 8)
torch.onnx.export(head, (x,), "head.onnx", dynamo=True)
session = onnxruntime.InferenceSession("head.onnx")
got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
assert np.allclose(got, head(x).detach().numpy(), atol=1e-4)
""",
    "ray": """
import json
from pathlib import Path
from fourier_head.tasks.engine import Task, run_tasks
from fourier_head.tasks.runs import RunStore
task = Task(json.dumps, {"obj": [1, 2]}, "one")
assert run_tasks([task], RunStore(Path("runs")), engine="ray") == ["[1, 2]"]
""",
    "kernels": """
import sys
if sys.platform == "linux":
    import triton
    from fourier_head import kernels
    assert triton.__version__ and kernels
""",
    "transformers": """
import torch
from transformers import ViTConfig, ViTForImageClassification
from fourier_head import NumberLM, replace_head
from fourier_head.integrations.language_models import tiny_model
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
config = ViTConfig(**sizes, image_size=16, patch_size=8)
model = replace_head(ViTForImageClassification(config), num_bins=20, num_frequencies=4)
assert torch.isfinite(model(torch.randn(2, 3, 16, 16), labels=torch.tensor([3, 7])).loss)
lm = NumberLM(*tiny_model(), low=0, high=1, num_bins=20, num_frequencies=4)
assert lm.predict(["a", "b"]).mean.shape == (2,)
""",
    "forecasting": TABLE
    + """
from fourier_head import Forecaster
forecasts = Forecaster.from_pretrained("small").predict(pd.read_csv("sales.csv"), horizon=12)
assert np.isfinite(forecasts.quantiles([0.05, 0.5, 0.95])).all()
""",
    "gluonts": """
import numpy as np
from gluonts.dataset.common import ListDataset
from fourier_head.integrations.gluonts import FourierHeadPredictor
data = ListDataset([{"start": "2020-01", "target": 100 + np.random.rand(96)}], freq="M")
predictor = FourierHeadPredictor("small", prediction_length=6)
assert np.isfinite(next(iter(predictor.predict(data))).quantile(0.5)).all()
""",
    "sktime": """
import numpy as np, pandas as pd
from fourier_head.integrations.sktime import FourierHeadForecaster
y = pd.Series(np.arange(30.0), index=pd.period_range("2020-01", periods=30, freq="M"))
assert FourierHeadForecaster().fit(y).predict_interval(fh=[1, 2, 3], coverage=0.8).shape == (3, 2)
""",
    "fev": """
import fev, numpy as np, pandas as pd
from fourier_head.integrations.fev import FourierHeadModel
rows = [{"id": "a", "timestamp": pd.date_range("2024-01-01", periods=60).to_numpy(), "target": np.arange(60.0)}]
pd.DataFrame(rows).to_parquet("series.parquet")
task = fev.Task(dataset_path="series.parquet", horizon=6, eval_metric="MASE")
model = FourierHeadModel()
summary = task.evaluation_summary(model.fit_predict(task), model_name="fourier-head")
assert np.isfinite(summary["MASE"])
""",
    "darts": """
import numpy as np
from darts import TimeSeries
from fourier_head.integrations.darts import FourierHeadModel
model = FourierHeadModel().fit(TimeSeries.from_values(np.arange(30.0)))
assert model.predict(3, num_samples=5).all_values().shape == (3, 1, 5)
""",
    "holidays": """
import numpy as np, pandas as pd
from fourier_head import Forecaster
days = pd.date_range("2022-01-01", periods=400)
sold = pd.DataFrame({"day": days, "sold": 100.0 + 50 * (days.strftime("%m-%d") == "12-25")})
forecasts = Forecaster.from_pretrained("small").predict(sold, horizon=7, holidays="DE")
assert np.isfinite(forecasts.median).all()
""",
    "sklearn": """
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from fourier_head import FourierRegressor
X, y = load_diabetes(return_X_y=True)
assert cross_val_score(FourierRegressor(max_epochs=3), X[:90], y[:90], cv=2).shape == (2,)
""",
    "tables": """
import numpy as np
import lightgbm
from fourier_head import FourierRegressor
X = np.random.rand(200, 2)
model = FourierRegressor(body="boosting", max_epochs=20).fit(X, X[:, 0])
assert lightgbm.__version__ and np.isfinite(model.predict_quantiles(X)).all()
""",
    "benchmarks": """
import catboost, lightgbm, matplotlib, ngboost, quantile_forest
from fourier_head import FourierRegressor
assert FourierRegressor
""",
    "lightning": """
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, TensorDataset
from fourier_head import Adaptive, FourierHead
from fourier_head.integrations.lightning import DensityModule
x, y = torch.randn(64, 4), torch.randn(64)
head = FourierHead(8, num_frequencies=6, domain=Adaptive.fit(y))
module = DensityModule(torch.nn.Linear(4, 8), head, objective="crps")
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=16))
""",
    "atari": """
import ale_py, gymnasium
gymnasium.register_envs(ale_py)
gymnasium.make("ALE/Seaquest-v5").reset(seed=0)
""",
    "docs": """
import latex2mathml.converter, mkdocs, mkdocstrings
""",
    "release": """
import build, pre_commit, twine
""",
}


# No extra may bring another torch, or libraries of CUDA that torch itself did not ask for.
TORCH_AND_CUDA = """
from importlib.metadata import distributions
names = {(d.metadata["Name"].lower(), d.version) for d in distributions()}
print(sorted(n for n in names if n[0] == "torch" or n[0].startswith(("nvidia", "cuda"))))
"""


def check(wheel: Path, extra: str) -> None:
    """Install ``wheel[extra]`` into an environment of its own and run its smoke test outside of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv")  # where there is uv, environments are made of links and take seconds instead of minutes
        if uv:
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        else:
            venv.create(folder, with_pip=True)
        python = next(p for p in (Path(folder, "bin/python"), Path(folder, "Scripts/python.exe")) if p.exists())
        pip = [uv, "pip"] if uv else [str(python), "-m", "pip"]
        place = ["--python", str(python)] if uv else []
        install = [*pip, "install", "--quiet", *place]
        look = [str(python), "-I", "-c", TORCH_AND_CUDA]
        subprocess.run([*install, TORCH], check=True)
        before = subprocess.check_output(look, text=True)
        subprocess.run([*install, f"{wheel}[{extra}]" if extra else str(wheel)], check=True)
        after = subprocess.check_output(look, text=True)
        if after != before:
            raise RuntimeError(f"torch and CUDA were {before.strip()} and became {after.strip()}")
        subprocess.run([*pip, "check", *place], check=True)
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([str(python), "-I", "-c", SMOKE[extra]], check=True, cwd=folder, env=one_thread)


def main() -> None:
    """Check the extras named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*", help="all unless named; 'core' is the wheel alone")
    arguments = parser.parse_args()
    failed = []
    for extra in [e.replace("core", "") for e in arguments.extras] or list(SMOKE):
        start, name = time.monotonic(), extra or "core"
        try:
            check(arguments.wheel.resolve(), extra)
        except (subprocess.CalledProcessError, RuntimeError) as error:
            failed.append(name)
            print(f"{name}: failed, {str(error)[:300]}", flush=True)
        else:
            print(f"{name}: fine, {time.monotonic() - start:.0f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
