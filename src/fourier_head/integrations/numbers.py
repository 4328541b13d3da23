"""NumberLM: a language model that reads text and answers with a number, as a density."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from fourier_head._arrays import plain
from fourier_head._devices import seeded
from fourier_head.bins import Bins
from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains import Interval
from fourier_head.heads import FourierHead
from fourier_head.integrations import fine_tuning
from fourier_head.integrations import language_models as lm
from fourier_head.integrations.prompts import checked_values, pad_right, token_ids

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

SETTINGS = "number_lm.json"
HEAD = "head.safetensors"
BACKBONE = "backbone"
Objective = Literal["cross_entropy", "nll"]


class NumberLM(nn.Module):
    """Read text with a language model and answer with a density over [low, high].

    The hidden state of a prompt's last token goes to a Fourier head. ``forward`` has the shape that Trainer and
    accelerate expect, ``fine_tune`` trains without them, and ``predict`` and ``sample`` ask questions.

    Args:
        model: a transformers model that reads token ids; a language-modelling head on it is left aside.
        tokenizer: its tokenizer.
        low, high: the interval of answers.
        num_bins: bins of the interval, which cross-entropy is trained on.
        num_frequencies: the highest harmonic of the density.
        objective: "cross_entropy" on bins (the paper) or "nll", the likelihood of the value itself.
        base: name, folder or GGUF file the model came from; an adapter is saved with this instead of its weights.
        head_options: further options of ``FourierHead``.

    References:
        Gillman et al., Fourier Head, ICLR 2025, section 4.2 and appendix C.4.
    """

    accepts_loss_kwargs = True  # Trainer: `num_items_in_batch` scales the loss under gradient accumulation

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        low: float = -1.0,
        high: float = 1.0,
        num_bins: int = 200,
        num_frequencies: int = 8,
        *,
        objective: Objective = "cross_entropy",
        base: str | None = None,
        **head_options: Any,
    ):
        super().__init__()
        if objective not in get_args(Objective):
            raise ValueError(f"objective must be one of {', '.join(get_args(Objective))}, got {objective!r}")
        self.backbone: Any = getattr(model, "base_model", model)
        self.config = self.backbone.config
        self.tokenizer = tokenizer
        self.objective: Objective = objective
        self.name_or_path = base
        low, high, num_bins, num_frequencies = map(plain, (low, high, num_bins, num_frequencies))
        self.bins = Bins.uniform(num_bins, low, high)
        head_options = {key: plain(value) for key, value in head_options.items()}
        # One token per prompt: compiling fused kernels would take longer than they save. The boundary is the paper's.
        options = {"impl": "reference", "boundary": "periodic"} | head_options
        width, device = lm.hidden_size(self.config), next(self.backbone.parameters()).device
        self.head: FourierHead = FourierHead(
            width, num_bins, num_frequencies, domain=Interval(low, high), device=device, **options
        )
        given = {"low": low, "high": high, "num_bins": num_bins, "num_frequencies": num_frequencies}
        kept = {"objective": objective, "boundary": self.head.layout.boundary}
        self.settings: dict[str, Any] = given | kept | head_options
        self._adapter: list[PeftModel] = []  # in a list: as an attribute it would be a module inside itself

    # --- loading and saving

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        low: float = -1.0,
        high: float = 1.0,
        num_bins: int = 200,
        num_frequencies: int = 8,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        base: str | Path | None = None,
        model_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> NumberLM:
        """Load a language model by name, folder or GGUF file, with a fresh head; or what ``save_pretrained`` wrote.

        Args:
            name_or_path: where from. A folder that ``save_pretrained`` wrote brings its own settings.
            low, high, num_bins, num_frequencies, options: as for the class.
            dtype: of the language model; the head stays in float32.
            device: where everything goes.
            base: for a saved adapter, the model it belongs to, where that has moved.
            model_options: for the ``from_pretrained`` of transformers, such as ``device_map`` or ``revision``.
        """
        folder = Path(name_or_path)
        if (folder / SETTINGS).is_file():
            return cls._load(folder, dtype, device, base, model_options)
        model, tokenizer = lm.load_model(str(name_or_path), dtype, model_options, causal=True)
        if device is not None:
            model = model.to(device)
        return cls(model, tokenizer, low, high, num_bins, num_frequencies, base=str(name_or_path), **options)

    @classmethod
    def _load(
        cls,
        folder: Path,
        dtype: torch.dtype,
        device: torch.device | str | None,
        base: str | Path | None,
        model_options: Mapping[str, Any] | None,
    ) -> NumberLM:
        from safetensors.torch import load_file
        from transformers import AutoTokenizer

        content = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        whole = content["whole"]  # a folder may hold what an earlier save left there
        outside = None if whole else base or content["base"]
        origin = str(outside or folder / BACKBONE)
        model, _ = lm.load_model(origin, dtype, model_options, causal=outside is not None, tokenizer=False)
        if device is not None:
            model = model.to(device)
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        out = cls(model, tokenizer, base=origin, **content["settings"])
        if whole:
            out.head.load_state_dict(load_file(folder / HEAD))
        else:
            from peft import PeftModel

            out._adapter = [PeftModel.from_pretrained(out, str(folder), is_trainable=True)]
        return out.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write one folder: the adapter and the head where there is an adapter, else the whole model.

        The weights that an adapter belongs to go along unless they are found elsewhere, by the name they came from.
        """
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not self._adapter or self.name_or_path is None:
            plain = lm.without_adapter(self.backbone, self._adapter[0]) if self._adapter else None
            self.backbone.save_pretrained(str(folder / BACKBONE), state_dict=plain)
        if self._adapter:
            # Embeddings never change here, and looking for a change would ask the hub.
            self._adapter[0].save_pretrained(str(folder), save_embedding_layers=False)
        else:
            save_file({k: v.contiguous() for k, v in self.head.state_dict().items()}, folder / HEAD)
        self.tokenizer.save_pretrained(str(folder))
        base = None if self.name_or_path == str(folder / BACKBONE) else self.name_or_path
        content = {"base": base, "whole": not self._adapter, "settings": self.settings}
        (folder / SETTINGS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    # --- reading prompts

    def encode(self, prompts: Sequence[str], values: Sequence[float] | Tensor | None = None) -> dict[str, Tensor]:
        """Return the batch of some prompts: ids and mask, padded on the right, and the values where given.

        Whatever follows the last token of a prompt cannot reach it in a causal model, so this padding is exact.
        """
        return self._pad(token_ids(self.tokenizer, prompts), values)

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Make a batch of rows with ``prompt`` and ``value``: the data collator of a Trainer."""
        batch = self.encode([row["prompt"] for row in rows], [row["value"] for row in rows])
        if self.objective == "cross_entropy":  # Trainer counts and gathers what is called labels
            batch["labels"] = self.bins.encode(batch.pop("values"))
        return batch

    def _pad(self, ids: Sequence[Sequence[int]], values: Sequence[float] | Tensor | None) -> dict[str, Tensor]:
        batch = pad_right(ids, self.tokenizer.pad_token_id or 0)  # masked, so any id will do
        if values is not None:
            batch["values"] = checked_values(values, len(ids), self.bins.low, self.bins.high)
        return batch

    # --- the network

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return self.backbone.get_input_embeddings().weight.device

    def hidden(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the last hidden state of each prompt, (batch, features), in the dtype of the head and beside it."""
        return lm.last_hidden_state(self.backbone, input_ids, attention_mask).to(self.head.proj.weight)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        values: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss on values (numbers) or labels (bin ids), and log-probabilities of the bins as logits.

        In training mode with a target the logits, which the loss does not need, are left out.
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        x = self.hidden(input_ids, attention_mask)
        loss: Any = None
        reduction: Literal["mean", "sum"] = "mean" if num_items_in_batch is None else "sum"
        if labels is not None:
            loss = self.head.loss(x, labels.to(x.device), reduction=reduction)
        elif values is not None:
            loss = self._loss_of(x, values, reduction)
        if loss is not None and num_items_in_batch is not None:
            loss = loss / num_items_in_batch
        logits = self.head(x) if loss is None or not self.training else None
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _loss_of(self, x: Tensor, values: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
        """Return the loss of the head on features and their values."""
        if self.objective == "nll":
            return self.head.nll(x, values.to(x), reduction=reduction)
        return self.head.loss(x, self.bins.encode(values).to(x.device), reduction=reduction)

    def gradient_checkpointing_enable(self, *args: Any, **options: Any) -> None:
        """Recompute activations of the language model in the backward pass; arguments are those of its own method."""
        self.backbone.gradient_checkpointing_enable(*args, **options)

    # --- answers

    @torch.no_grad()
    def features(self, prompts: Sequence[str], batch_size: int = 64) -> Tensor:
        """Return what the head sees of each prompt, (prompts, features), without gradient or dropout."""
        ids = token_ids(self.tokenizer, prompts)
        was_training = self.training
        self.eval()
        parts = [self.head.proj.weight.new_empty(0, self.head.in_features)]
        for i in range(0, len(ids), batch_size):
            batch = self._pad(ids[i : i + batch_size], None)
            parts.append(self.hidden(**{key: value.to(self.device) for key, value in batch.items()}))
        self.train(was_training)
        return torch.cat(parts)

    @torch.no_grad()
    def predict(self, prompts: Sequence[str], batch_size: int = 64) -> FourierDensity:
        """Return the density of the answer to each prompt, one distribution with a batch of prompts."""
        return self.head.density(self.features(prompts, batch_size))

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[str],
        n: int = 1,
        generator: torch.Generator | None = None,
        *,
        on_bins: bool = False,
        top_p: float = 1.0,
        batch_size: int = 64,
    ) -> Tensor:
        """Return n answers to each prompt, (prompts, n).

        Args:
            prompts, n: what is asked, and how often.
            generator: of the device of the head.
            on_bins: draw bins and answer with their centres, as the paper does, rather than from the density.
            top_p: keep only the most probable bins that together have this probability; below 1 it needs ``on_bins``.
            batch_size: prompts read at once.
        """
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {top_p}")
        if top_p < 1 and not on_bins:
            raise ValueError("top_p cuts bins: pass on_bins=True with it")
        x = self.features(prompts, batch_size)
        if not len(x):
            return x.new_empty(0, n)
        if not on_bins:
            return self.head.density(x).sample((n,), generator).movedim(0, -1)
        ids = torch.multinomial(lm.nucleus(self.head(x).exp(), top_p), n, replacement=True, generator=generator)
        return self.bins.decode(ids, dtype=x.dtype)

    # --- training

    def add_lora(self, config: LoraConfig | None = None) -> PeftModel:
        """Freeze the language model and add a LoRA adapter that trains beside the head; return the PEFT model.

        Without a configuration: rank 8, alpha 32, dropout 0.05 on the projections that PEFT chooses for the
        architecture (queries and values), which is what the paper's released code trains.
        """
        if self._adapter:
            raise ValueError("there is an adapter already: merge_lora() or remove_lora() first")
        self._adapter = [lm.with_adapter(self, config, "head")]
        return self._adapter[0]

    def merge_lora(self) -> None:
        """Add the adapter to the weights of the language model and keep the trained head."""
        if self._adapter:
            self.name_or_path = None  # these weights are nowhere else
        self._drop_adapter("merge_and_unload")

    def remove_lora(self) -> None:
        """Take the adapter away and leave the language model as it was; the trained head stays."""
        self._drop_adapter("unload")

    def _drop_adapter(self, how: str) -> None:
        if self._adapter:
            getattr(self._adapter.pop(), how)()
            self.requires_grad_(True)

    def fine_tune(
        self,
        prompts: Sequence[str],
        values: Sequence[float] | Tensor,
        *,
        lora: LoraConfig | bool = True,
        epochs: int = 16,
        lr: float = 3e-4,
        head_lr: float | None = None,
        head_first: int = 0,
        batch_size: int = 64,
        seed: int = 0,
        progress: fine_tuning.Progress | None = None,
        **options: Any,
    ) -> list[float]:
        """Train on prompts and their values; return the mean loss of each epoch.

        Args:
            prompts, values: what is asked, and the number that answers it.
            lora: True or a configuration adds an adapter (one that is there goes on training); False trains all.
            epochs, lr, batch_size: the paper's unless given; the rate decays linearly to a tenth.
            head_lr: rate of the head while all train together; as that of the rest unless given.
            head_first: epochs at rate ``lr`` before that, in which the head learns alone from the hidden states of the
                model as it is. These are computed once, so such epochs cost little; their losses are not returned.
            seed: of the order of rows, of dropout and of a new adapter.
            progress: called with the fraction done and a few words.
            options: as for ``fourier_head.integrations.fine_tuning.fine_tune``.
        """
        if not isinstance(lora, bool) and not hasattr(lora, "peft_type"):
            raise TypeError(f"lora must be True, False or a LoraConfig, got {lora!r:.40}")
        ids = token_ids(self.tokenizer, prompts)
        targets = checked_values(values, len(ids), self.bins.low, self.bins.high)
        if lora is not False and not self._adapter:
            with seeded(seed, self.device):
                self.add_lora(None if lora is True else lora)
        elif lora is False and self._adapter:
            raise ValueError("lora=False trains all weights, but there is an adapter: merge_lora() first")
        if lora is False:
            self.name_or_path = None  # an adapter that comes later does not belong to the model this was
        more: dict[str, Any] = {"lr": lr, "batch_size": batch_size, "seed": seed} | options
        if head_first:
            x = self.features(prompts, batch_size)
            fine_tuning.fine_tune(
                self.head,
                lambda rows: {"x": x[list(rows)], "values": targets[list(rows)]},
                len(ids),
                epochs=head_first,
                loss=lambda _, **batch: self._loss_of(**batch),
                **more,
            )

        def batch_of(rows: Sequence[int]) -> dict[str, Tensor]:
            return self._pad([ids[i] for i in rows], targets[list(rows)])

        more |= {"fresh": [p for name, p in self.named_parameters() if name.startswith("head.")], "fresh_lr": head_lr}
        return fine_tuning.fine_tune(self, batch_of, len(ids), epochs=epochs, progress=progress, **more)
