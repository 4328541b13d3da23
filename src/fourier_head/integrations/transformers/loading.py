"""Load models whose head was replaced."""

from __future__ import annotations

import copy
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import transformers
from packaging.version import Version
from transformers import AutoConfig, PretrainedConfig
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.utils import find_adapter_config_file

from fourier_head.integrations.transformers.model import with_head

LOADS_HEADS_OF_ADAPTERS = {"transformers": "5.18", "peft": "0.20"}
"""Before these, modules that an adapter saved whole, such as a head, silently stayed as they were in the base."""
HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


class AutoModelWithHead:
    """Load a model whose head ``replace_head`` replaced, of any architecture, as an Auto class loads a plain one.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> from fourier_head.integrations.transformers import find_head, replace_head
        >>> config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        >>> model = replace_head(BertForSequenceClassification(config), num_bins=50, num_frequencies=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     loaded = AutoModelWithHead.from_pretrained(folder)
        >>> type(loaded).__name__, find_head(loaded).num_bins
        ('BertForSequenceClassification', 50)
    """

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, model_class: type | None = None, **kwargs: Any
    ) -> Any:
        """Return the model that ``save_pretrained`` wrote, or the base model of a LoRA adapter together with it.

        Args:
            pretrained_model_name_or_path: a folder or the name of a model on a hub; None where ``config`` and
                ``state_dict`` are given.
            model_class: the plain class that was swapped, where it is neither of transformers nor saved with the model.
            args, kwargs: for the ``from_pretrained`` of the model's own class, such as ``dtype``, ``device_map``,
                ``num_labels``, ``revision`` or ``trust_remote_code``.
        """
        hub = {key: kwargs[key] for key in HUB if key in kwargs}
        code = {"code_revision": kwargs.pop("code_revision", None)}
        trust = kwargs.get("trust_remote_code")
        source, config = pretrained_model_name_or_path, kwargs.get("config")
        if not isinstance(config, PretrainedConfig):
            source = _base_of_adapter(source, hub) if config is None else config
            config = AutoConfig.from_pretrained(source, trust_remote_code=trust, **code, **hub)
        kind = with_head(model_class or _class_of(config, source, trust, **code, **hub), _path(config))
        return kind.from_pretrained(pretrained_model_name_or_path, *args, **kwargs)  # type: ignore[attr-defined]

    @classmethod
    def from_config(cls, config: Any, *, model_class: type | None = None, **kwargs: Any) -> Any:
        """Return a model with new weights from the configuration of a swapped one, which stays as it is."""
        kind = with_head(model_class or _class_of(config, getattr(config, "name_or_path", None)), _path(config))
        return kind._from_config(copy.deepcopy(config), **kwargs)  # type: ignore[attr-defined]


def _path(config: Any) -> str:
    """Return where the head is."""
    spec = getattr(config, "fourier_head", None)
    if not spec:
        raise ValueError(
            "the configuration has no head of ours: load the model with transformers and call replace_head(model, ...)"
        )
    return spec["module"]


def _base_of_adapter(name: Any, hub: dict[str, Any]) -> Any:
    """Return the model that an adapter belongs to; any other name as it is."""
    found = find_adapter_config_file(name, **hub)
    if found is None or (Path(name) / "config.json").exists():
        return name
    adapter = json.loads(Path(found).read_text(encoding="utf-8"))
    base = adapter["base_model_name_or_path"]
    if adapter.get("modules_to_save") and (old := leaves_heads_out()):
        raise ValueError(
            f"{old} would load the adapter without its head: update to "
            f"{' and '.join(map(' '.join, LOADS_HEADS_OF_ADAPTERS.items()))}, or call "
            f"PeftModel.from_pretrained(AutoModelWithHead.from_pretrained({base!r}), {str(name)!r})"
        )
    return base


def leaves_heads_out() -> str:
    """Name what is installed that loads an adapter without its head; nothing where all is new enough."""
    found = {library: version(library) for library in LOADS_HEADS_OF_ADAPTERS}
    old = [one for one, least in LOADS_HEADS_OF_ADAPTERS.items() if Version(found[one]) < Version(least)]
    return " and ".join(f"{one} {found[one]}" for one in old)


def _class_of(config: Any, name: Any, trust: bool | None = None, **hub: Any) -> type:
    """Return the plain class of a swapped model: one of transformers, or of the code that was saved with it."""
    architecture = (config.architectures or [""])[0]
    for auto, reference in (getattr(config, "auto_map", None) or {}).items():
        if reference.endswith(f".{architecture}"):
            if not trust:
                raise ValueError(f"{name} comes with code of its own: pass trust_remote_code=True to run it")
            found: Any = get_class_from_dynamic_module(reference, name, **hub)
            found.register_for_auto_class(auto)
            return found
    found = getattr(transformers, architecture, None) if architecture else None
    if found is None:
        raise ValueError(f"transformers has no class {architecture!r}: pass the one that was swapped as model_class")
    return found
