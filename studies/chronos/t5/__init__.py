"""Chronos-style forecasting: a T5 over tokens of values, which any of our heads ends.

tokenizer = ChronosTokenizer()
model = build_forecaster(tokenizer, T5Config.named("mini"), HeadSettings(frequencies=550))
objective = T5Objective(model, tokenizer)                    # what `Training` minimises
T5Predictor(model, tokenizer)(contexts, horizon=24, freq="ME")
"""

from studies.chronos.t5.build import HeadSettings, build_forecaster, load_forecaster, save_forecaster
from studies.chronos.t5.config import SIZES, T5Config
from studies.chronos.t5.model import T5Forecaster
from studies.chronos.t5.objective import T5Objective
from studies.chronos.t5.predict import T5Predictor, load_predictor

__all__ = ["SIZES", "HeadSettings", "T5Config", "T5Forecaster", "T5Objective", "T5Predictor"]
__all__ += ["build_forecaster", "load_forecaster", "load_predictor", "save_forecaster"]
