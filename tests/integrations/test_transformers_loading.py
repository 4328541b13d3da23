"""Swapped models from a folder: through an explicit call, with nothing of transformers changed."""

import importlib
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")

from peft import PeftModel  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from fourier_head import integrations  # noqa: E402
from fourier_head.integrations.transformers import AutoModelWithHead, find_head, loading, replace_head  # noqa: E402
from tests.swapped_models import BINS, CASES, logits, same, with_adapter  # noqa: E402


def test_importing_leaves_transformers_as_it_is(monkeypatch):
    from transformers.models.auto import configuration_auto, modeling_auto

    autos = [value for name, value in vars(modeling_auto).items() if isinstance(value, type) and name[:4] == "Auto"]
    watched = [transformers.PreTrainedModel, transformers.PretrainedConfig, transformers.GenerationMixin, *autos]
    watched.append(transformers.LlamaForCausalLM)

    def state():
        registered = [dict(kind._model_mapping._extra_content) for kind in autos if hasattr(kind, "_model_mapping")]
        registered.append(dict(configuration_auto.CONFIG_MAPPING._extra_content))
        return [dict(vars(kind)) for kind in watched], registered

    before = state()
    monkeypatch.setattr(integrations, "transformers", integrations.transformers)  # afterwards the old one again
    for name in [name for name in sys.modules if name.startswith("fourier_head.integrations.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.import_module("fourier_head.integrations.transformers")
    assert "fourier_head.integrations.transformers.model" in sys.modules
    assert state() == before
    # Nor did the first import leave anything there.
    parts = [*before[0], *before[1]]
    assert not [
        part for own in parts for part in own.values() if "fourier_head" in str(getattr(part, "__module__", ""))
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_class_that_knows_nothing_of_heads_stops(name, tmp_path):
    """It would go on with a new, untrained layer otherwise."""
    case = CASES[name]
    case.model().save_pretrained(tmp_path)
    for plain in (case.auto, case.kind):
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            plain.from_pretrained(tmp_path)
    # The body alone is what any checkpoint gives.
    _, told = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["mismatched_keys"]


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_the_file_of_weights_fits_the_model_it_came_from(name, tmp_path):
    """Trainer reads it without from_pretrained when it goes on from a checkpoint."""
    case = CASES[name]
    model, batch = case.model(), case.batch()
    model.save_pretrained(tmp_path)
    other = AutoModelWithHead.from_config(model.config)
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    same(logits(other, batch), logits(model, batch))


def test_an_adapter_brings_its_swapped_base_along(tmp_path):
    case = CASES["llama"]
    case.model().save_pretrained(tmp_path / "base")
    base, batch = AutoModelWithHead.from_pretrained(tmp_path / "base"), case.batch()
    adapted = with_adapter(base, case)
    adapted.save_pretrained(tmp_path / "adapter")
    if loading.leaves_heads_out():
        with pytest.raises(ValueError, match=r"without its head: update to transformers 5.18 and peft 0.20"):
            AutoModelWithHead.from_pretrained(tmp_path / "adapter")
        base = AutoModelWithHead.from_pretrained(tmp_path / "base")
        loaded = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    else:
        loaded = AutoModelWithHead.from_pretrained(tmp_path / "adapter")
    same(logits(loaded, batch), logits(adapted, batch))


def test_libraries_that_load_an_adapter_without_its_head_are_named(tmp_path, monkeypatch):
    case = CASES["llama"]
    case.model().save_pretrained(tmp_path / "base")
    with_adapter(AutoModelWithHead.from_pretrained(tmp_path / "base"), case).save_pretrained(tmp_path / "adapter")
    monkeypatch.setattr(loading, "version", lambda library: {"transformers": "5.17.0", "peft": "0.21.2"}[library])
    with pytest.raises(ValueError, match=r"transformers 5.17.0 would load the adapter without its head: update to"):
        AutoModelWithHead.from_pretrained(tmp_path / "adapter")


CODE = """
from transformers import GPT2Config, GPT2LMHeadModel

class DoubleConfig(GPT2Config):
    model_type = "double"

class DoubleForCausalLM(GPT2LMHeadModel):
    config_class = DoubleConfig

    def forward(self, input_ids=None, inputs_embeds=None, labels=None, **options):
        embedded = 2 * self.transformer.wte(input_ids) if inputs_embeds is None else inputs_embeds
        return super().forward(inputs_embeds=embedded, labels=labels, **options)

DoubleConfig.register_for_auto_class()
DoubleForCausalLM.register_for_auto_class("AutoModelForCausalLM")
"""


def test_models_with_code_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "modeling_double.py").write_text(CODE)
    import modeling_double

    case = CASES["gpt2"]
    plain = modeling_double.DoubleForCausalLM(modeling_double.DoubleConfig(**case.settings))
    model, batch = replace_head(plain, BINS, 5), case.batch()
    model.save_pretrained(tmp_path / "model")
    named = AutoModelWithHead.from_pretrained(tmp_path / "model", trust_remote_code=True)
    given = AutoModelWithHead.from_pretrained(
        tmp_path / "model", config=model.config, model_class=modeling_double.DoubleForCausalLM
    )
    for loaded in (named, given):
        same(logits(loaded, batch), logits(model, batch))
    named.save_pretrained(tmp_path / "again")
    again = AutoModelWithHead.from_pretrained(tmp_path / "again", trust_remote_code=True)
    same(logits(again, batch), logits(model, batch))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        AutoModelWithHead.from_pretrained(tmp_path / "model", config=model.config, trust_remote_code=False)


def test_from_config_leaves_the_configuration_alone():
    model = CASES["bert"].model()
    before = model.config.to_dict()
    fresh = AutoModelWithHead.from_config(model.config, dtype=torch.bfloat16)
    assert model.config.to_dict() == before
    assert find_head(fresh).proj.weight.dtype == torch.bfloat16
    assert find_head(fresh).layout == find_head(model).layout


def test_what_cannot_be_loaded_gets_a_sentence(tmp_path):
    case = CASES["bert"]
    case.kind(case.config(**case.settings)).save_pretrained(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"has no head of ours: .* call replace_head"):
        AutoModelWithHead.from_pretrained(tmp_path / "plain")
    config = case.model().config
    config.architectures = ["BertForNothing"]
    with pytest.raises(ValueError, match="BertForNothing"):
        AutoModelWithHead.from_config(config)
