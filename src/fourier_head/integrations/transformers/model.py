"""A transformers model whose logits and loss come from one of our heads."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn import functional as F
from transformers import PreTrainedModel

from fourier_head.heads import Head
from fourier_head.integrations.transformers.head import build, follow_labels, passing_features, restore

PLANS = ("_tied_weights_keys", "_tp_plan", "_ep_plan", "_pp_plan", "_fsdp_plan", "all_tied_weights_keys")

DECODERS = "Bart BigBirdPegasus Blenderbot BlenderbotSmall CpmAnt MBart Marian Mvp PLBart Pegasus TrOCR Whisper"
UNSHIFTED = {f"{name}ForCausalLM" for name in DECODERS.split()} | {
    "FlaubertWithLMHeadModel",
    "XLMWithLMHeadModel",
    "XLNetLMHeadModel",
}
"""Models that write tokens but, unlike all others, are given the label of each position, not of the one before it."""


class ModelWithHead:
    """What a swapped model adds to its class."""

    accepts_loss_kwargs = True
    _base: type
    _head_path: str
    config: Any
    training: bool

    def post_init(self) -> None:
        """Put the head in its place before weights are initialised or loaded, as the configuration describes it."""
        base, spec = self._base, getattr(self.config, "fourier_head", None)
        if not spec:
            self.__class__ = base  # made from a plain configuration
        elif _has_module(self, spec["module"]):
            if not writes_tokens(self):
                follow_labels(self.config)
            install(self)
        base.post_init(self)  # type: ignore[attr-defined]

    def save_pretrained(
        self,
        save_directory: Any,
        is_main_process: bool = True,
        state_dict: Mapping[str, Tensor] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Write the model and its configuration into a folder, for ``AutoModelWithHead.from_pretrained``."""
        if not getattr(self, "_hf_peft_config_loaded", False):
            # A class that knows nothing of heads would go on with a new layer in its place; it stops at this empty one.
            empty = {f"{self._head_path}.weight": torch.empty(0, dtype=self.dtype)}  # type: ignore[attr-defined]
            state_dict = dict(self.state_dict() if state_dict is None else state_dict) | empty  # type: ignore[attr-defined]
        super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)  # type: ignore[misc]

    def _run(self, inputs: dict[str, Any]) -> Any:
        labels, shifted = inputs.pop("labels", None), inputs.pop("shift_labels", None)
        items, as_dict = inputs.pop("num_items_in_batch", None), inputs.pop("return_dict", None)
        self._give_decoder_inputs(inputs, labels)
        output = self._features(inputs)
        head, features = self.get_submodule(self._head_path), output.logits  # type: ignore[attr-defined]
        loss = logits = None
        if labels is not None or shifted is not None:
            target = self._align(labels, shifted, features)
            try:
                loss = head(features, target=target, reduction="mean" if items is None else "sum")
            except (TypeError, ValueError) as error:
                raise type(error)(f"the labels do not fit the head: {error}") from error
            if items is not None:
                loss = loss / (items.to(loss.device) if isinstance(items, Tensor) else items)
            loss = self._with_routing(loss, output)
        if loss is None or not self.training or self.config.fourier_head["training_logits"]:
            logits = head(features)
        values = {field.name: getattr(output, field.name) for field in fields(output)}
        # Made anew: an output that gets its loss later would keep it behind its logits when read as a tuple.
        output = type(output)(**{**values, "loss": loss, "logits": logits})
        as_dict = getattr(self.config, "return_dict", True) if as_dict is None else as_dict
        return output if as_dict else output.to_tuple()

    def density(self, **inputs: Any) -> Distribution:
        """Return the predictive distribution of values for inputs as ``forward`` takes them.

        Labels are not needed; an encoder-decoder makes its decoder's input from them.
        """
        self._give_decoder_inputs(inputs, inputs.pop("labels", None))
        return self._head().density(self._features(inputs).logits)

    def _head(self) -> Head:
        """Return the head itself, which an adapter may have wrapped: the copy of the active adapter."""
        head = self.get_submodule(self._head_path)  # type: ignore[attr-defined]
        if isinstance(head, Head):
            return head
        copies = {key: head.modules_to_save[key] for key in head.active_adapters if key in head.modules_to_save}
        return next(iter(copies.values()), head.original_module)

    def get_output_embeddings(self) -> None:
        """Return nothing: there is no matrix with one row per token that could be tied or resized."""

    def _resize_final_logits_bias(self, new_num_tokens: int) -> None:
        """Leave the bias alone that some models add to their logits: those are features here, not tokens."""

    def _features(self, inputs: dict[str, Any]) -> Any:
        """Run the model and return its output with the features of the head in place of logits."""
        with passing_features():
            output = self._base.forward(self, **inputs, return_dict=True)  # type: ignore[attr-defined]
        expected = self.config.fourier_head["options"]["in_features"]
        if getattr(output, "logits", None) is None or output.logits.shape[-1] != expected:
            raise ValueError(
                f"{type(self).__name__} does not return what its head {self._head_path!r} computes as logits, "
                "so its head cannot be replaced"
            )
        dtype = self._head().proj.weight.dtype
        if output.logits.dtype == torch.float32 and dtype in (torch.bfloat16, torch.float16):
            # Some models return their logits, and so these features, in float32 whatever their weights are.
            output.logits = output.logits.to(dtype)
        return output

    def _align(self, labels: Tensor | None, shifted: Tensor | None, features: Tensor) -> Tensor:
        """Return one label per row of features."""
        if shifted is None:
            assert labels is not None
            causal = self.can_generate() and not self.config.is_encoder_decoder  # type: ignore[attr-defined]
            causal = causal and type(self).__name__ not in UNSHIFTED
            # Tokens before position t predict the token at t; nothing follows the last one.
            shifted = F.pad(labels, (0, 1), value=-100)[..., 1:] if causal else labels
        shifted = shifted.to(features.device)
        rows = features.shape[:-1]
        return shifted.reshape(rows) if shifted.numel() == rows.numel() else shifted

    def _with_routing(self, loss: Tensor, output: Any) -> Tensor:
        """Add what a mixture of experts that shows its router adds to its loss, so that all experts stay in use."""
        share = getattr(self.config.get_text_config(), "router_aux_loss_coef", None)
        balance = getattr(output, "aux_loss", None)
        return loss + share * balance.to(loss.device) if share and isinstance(balance, Tensor) else loss

    def _give_decoder_inputs(self, inputs: dict[str, Any], labels: Tensor | None) -> None:
        """Make the decoder's input from labels, as encoder-decoders that write do when they are given them."""
        if labels is None or not self.config.is_encoder_decoder or not self.can_generate():  # type: ignore[attr-defined]
            return
        if inputs.get("decoder_input_ids") is None and inputs.get("decoder_inputs_embeds") is None:
            if hasattr(self, "prepare_decoder_input_ids_from_labels"):
                inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
            else:
                before = F.pad(labels, (1, 0), value=self.config.decoder_start_token_id)[..., :-1]
                inputs["decoder_input_ids"] = before.masked_fill(before == -100, self.config.pad_token_id)

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Initialise a module; parts of the head as the head does, which no model's own rule may overwrite."""
        head = self.get_submodule(self._head_path)  # type: ignore[attr-defined]
        for name, part in head.named_modules():
            if part is module:
                return self._draw(name, part)
        # Some models treat their head while they initialise themselves.
        before = {key: value.clone() for key, value in head.state_dict().items()} if module is self else None
        super()._init_weights(module)  # type: ignore[misc]
        if before is not None:
            head.load_state_dict(before)
        return None

    def _draw(self, name: str, part: nn.Module) -> None:
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        missing = {key: x for key, x in own if not x.is_meta and not getattr(x, "_is_hf_initialized", False)}
        if missing:
            x = next(iter(missing.values()))
            spec = self.config.fourier_head
            fresh = build(spec["head"], spec["options"], x.device, x.dtype).get_submodule(name)
            for key, x in missing.items():
                x.copy_(getattr(fresh, key))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return restore, (with_head, self._base, self._head_path), self.__dict__


def module_at(model: Any, path: str) -> Any:
    """Return the linear layer, or head of ours, at a path in a model."""
    try:
        module = model.get_submodule(path)
    except AttributeError:
        raise ValueError(f"{type(model).__name__} has no module {path!r} to replace") from None
    if not hasattr(module, "in_features") or not hasattr(module, "weight"):
        raise ValueError(f"the head must be a linear layer, but {path!r} is a {type(module).__name__}")
    return module


def writes_tokens(model: Any) -> bool:
    """Tell whether the classes of the head are tokens rather than labels."""
    base: Any = super(ModelWithHead, model) if isinstance(model, ModelWithHead) else model
    return base.get_output_embeddings() is not None


def _has_module(model: Any, path: str) -> bool:
    """Tell whether a model has a module yet; one whose class comes of a class with a head is made in two steps."""
    return any(name == path for name, _ in model.named_modules())


@functools.cache
def with_head(base: type, path: str) -> type:
    """Return the subclass of a model's class that computes logits and loss through the head at a path."""
    names = tuple(inspect.signature(base.forward).parameters)[1:]  # type: ignore[attr-defined]

    # Trainer and generate read the names of the arguments.
    @functools.wraps(base.forward)  # type: ignore[attr-defined]
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run({**dict(zip(names, args, strict=False)), **kwargs})

    # One name for both classes: configurations and other libraries tell architectures apart by it.
    body = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    # A list: transformers before 5.9 adds another one to it, which a set does not let it.
    ignored = [*(getattr(base, "_keys_to_ignore_on_load_unexpected", None) or ()), rf"^{re.escape(path)}\.weight$"]
    body.update(forward=forward, _base=base, _head_path=path, _keys_to_ignore_on_load_unexpected=ignored)
    if hasattr(base, "generate"):
        body["generate"] = functools.wraps(base.generate)(_generate)
    for plan in PLANS:
        body.update(_without_head(plan, getattr(base, plan, None), path))
    return type(base.__name__, (ModelWithHead, base), body)


def _generate(self: Any, *args: Any, **kwargs: Any) -> Any:
    classes, tokens = self._head().out_features, self.config.get_text_config(decoder=True).vocab_size
    if classes != tokens:
        raise ValueError(
            f"generate reads what it writes, but the vocabulary has {tokens} tokens and the head {classes} classes; "
            "pass resize_embeddings=True to replace_head, or call the model for its logits"
        )
    return self._base.generate(self, *args, **kwargs)


def _without_head(name: str, keys: Any, path: str) -> dict[str, Any]:
    """Return a plan or a list of tied weights without what concerns the head; nothing where there is none."""

    def concerns(key: str) -> bool:
        module = key.rpartition(".")[0]
        return key == path or key.startswith(f"{path}.") or (bool(module) and path.endswith(f".{module}"))

    if isinstance(keys, dict):
        return {name: {key: value for key, value in keys.items() if not concerns(key)}}
    if isinstance(keys, list):
        return {name: [key for key in keys if not concerns(key)]}
    return {}


def install(model: Any) -> None:
    """Put the head that a model's configuration describes in its place."""
    spec = model.config.fourier_head
    path = spec["module"]
    old = module_at(model, path)
    hook = getattr(old, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    device = old.weight.device if device is None else device
    dtype = old.weight.dtype if old.weight.dtype.is_floating_point else model.dtype
    head = build(spec["head"], spec["options"], device, dtype).train(old.training)
    if not old.weight.is_meta:
        for part in head.modules():
            part._is_hf_initialized = True  # type: ignore[assignment]
    parent = model.get_submodule(path.rpartition(".")[0])
    setattr(parent, path.rpartition(".")[2], head)
    # What some models add to their logits would be added to features.
    if getattr(parent, "bias", None) is not None and parent.bias.shape[0] == old.out_features:
        parent.bias = None
        parent._is_hf_initialized = True  # the rule of such a parent sets its bias
    if isinstance(getattr(model, "final_logits_bias", None), Tensor):
        model.final_logits_bias = model.final_logits_bias.new_zeros(1, 1)
    text = model.config.get_text_config(decoder=True)
    if getattr(text, "final_logit_softcapping", None):
        text.final_logit_softcapping = None

    base = type(model)._base if isinstance(model, ModelWithHead) else type(model)
    model.__class__ = with_head(base, path)
    for name, part in model.named_modules():
        # A model inside a model, such as the decoder of an encoder-decoder, has plans of its own.
        if isinstance(part, PreTrainedModel) and path.startswith(f"{name}." if name else ""):
            for plan in PLANS:
                inner = path[len(name) + 1 :] if name else path
                vars(part).update(_without_head(plan, getattr(part, plan, None), inner))
    # Encoder and decoder may go on sharing embeddings, which is for a part of the model to say.
    ties = any(getattr(part, "_tied_weights_keys", None) for part in model.modules())
    if not ties and getattr(model.config, "tie_word_embeddings", False):
        model.config.tie_word_embeddings = False
    if hook is not None:
        from accelerate.hooks import AlignDevicesHook, add_hook_to_module

        add_hook_to_module(head, AlignDevicesHook(execution_device=device, place_submodules=True))
    if "_old_forward" in vars(model):
        # A dispatched model calls the forward that it was dispatched with.
        model._old_forward = type(model).forward.__get__(model)
