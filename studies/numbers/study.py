"""Section 4.2 and appendix C.4: does a language model that is asked for Gaussian numbers give Gaussian numbers?

One prompt per distribution, the answer sampled many times. Arms: the model as it is, fine-tuned with LoRA on answers
written as text, and fine-tuned with LoRA and a Fourier head in place of its own. All arms sample with the same
settings. Beyond the paper, the same questions about distributions that no arm was trained on.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.errors import UserError
from fourier_head.integrations.language_models import load_model
from fourier_head.tasks.engine import Task
from studies.common import options
from studies.common.options import SILENT, option, parse_counts
from studies.common.report.summary import Summary
from studies.numbers import choice
from studies.numbers.arms import LanguageModel, Recipe, ask_fourier, ask_text, text_answers, tiny_language
from studies.numbers.charts import charts
from studies.numbers.data import GAUSSIANS, TRAINED, UNSEEN, score, test_prompts, training_pairs
from studies.numbers.tables import FOURIER_KEYS, notes, rows

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TINY = "tiny Llama"
PAIRS = 256
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
Run = dict[str, Any]


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to ask which model; lists are tried one by one."""

    study = "numbers"
    model: str | None = option(None, "Language model, by name or folder.", shown=MODEL, file=True)
    gguf: str | None = option(None, "Language model from a GGUF file instead.", file=True)
    frequencies: str = option("1-12", "Frequencies of the Fourier heads, such as 2,4,8.")
    seeds: int = option(10, "Repetitions, each with its own data.", low=1)
    skip: int = option(0, "Seeds before these, which other results have.", low=0)
    in_context: str = option("2", "Samples in the prompt; 0-9 is all of the paper.")
    epochs: int = option(16, "Passes over the 256 training pairs.", low=1)
    learning_rate: float = option(3e-4, "At the start; it decays linearly.")
    choose: str | None = option(
        None,
        "Learning rates, such as 3e-4,1e-3, of which every kind of arm takes its best on seeds of their own.",
        shown="none",
    )
    chosen: Path | None = option(None, "summary.json of earlier results, whose chosen learning rates are taken.")
    gaussians: str = option(
        "paper", "Of the training answers: paper, its four; many, one for each answer.", choices=GAUSSIANS
    )
    head_learning_rate: float | None = option(None, "Of a Fourier head, beside the adapters.", shown="as the rest")
    lora_rank: int = option(8, "Rank of the adapters.", low=1)
    lora_layers: str | None = option(None, "Layers with adapters, such as q_proj,v_proj.", shown="PEFT's choice")
    packets: str = option("0", "Wave packets of the Fourier heads; 0,2 tries both.")
    init_scale: str = option("1000", "What a Fourier head's first weights are divided by; 1000,1 tries both.")
    gamma: str = option("0", "Regulariser of the Fourier heads; 0,1e-4 tries both.")
    head_first: str = option("0", "Epochs of a Fourier head alone before those with LoRA; 0,64 tries both.")
    top_p: float = option(1.0, "Share of probability all arms sample from.")
    dtype: str = option(
        "float32", "Of the model: float32, tf32 (float32 with quick products) or bfloat16.", choices=tuple(DTYPES)
    )
    device: str = options.device()
    workers: int = options.workers(1, "Processes, each with a model of its own.")


def parse_numbers(text: str, option: str, zero: bool) -> list[float]:
    """Return the positive numbers of a list, one arm of Fourier heads each; with ``zero``, 0 is one too.

    >>> parse_numbers("1000,1", "--init-scale", zero=False)
    [1000.0, 1.0]
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1.0]
    if not all(0 < number < float("inf") or (zero and number == 0) for number in numbers):
        kind = "numbers from 0 on, such as 0,1e-4" if zero else "positive numbers such as 1000 or 1000,1"
        raise UserError(f"{option} must be {kind}, got {text!r}.")
    return list(dict.fromkeys(numbers))


def source_of(settings: Settings) -> tuple[str | None, str]:
    """Return where the language model comes from, None for the tiny one of a quick look, and its device."""
    if settings.model is not None and settings.gguf is not None:
        raise UserError("--model and --gguf both name a model: give one of them.")
    device = chosen_device(settings.device)
    return settings.gguf or settings.model or (None if settings.quick else MODEL), device


@functools.lru_cache(maxsize=1)
def load(source: str | None, dtype: str, device: str) -> LanguageModel:
    """Return the language model, loaded once in each process, whose products in float32 are from here on as asked."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    if source is None:
        language = tiny_language(device)
    else:
        try:
            language = LanguageModel(*load_model(source, DTYPES[dtype], causal=True))
        except (ImportError, ValueError) as error:
            raise UserError(f"{error}.") from None
        language.model.to(device)
    language.model.requires_grad_(False)
    return language


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder; at the time limit, write what is finished and keep it for a restart."""
    frequencies = parse_counts(settings.frequencies, "--frequencies", 1)
    contexts = parse_counts(settings.in_context, "--in-context", 0)
    recipe = Recipe(
        settings.epochs,
        settings.learning_rate,
        rank=settings.lora_rank,
        layers=settings.lora_layers,
        top_p=settings.top_p,
        head_lr=settings.head_learning_rate,
    )
    seeds, pairs = settings.seeds, PAIRS
    if settings.quick:
        seeds, pairs, frequencies = min(seeds, 2), 64, tuple(n for n in (2, 8) if n in frequencies) or frequencies[:2]
        recipe = replace(recipe, epochs=min(recipe.epochs, 8), batch_size=16, answers=64)
    if settings.choose is not None and settings.chosen is not None:
        raise UserError("--choose and --chosen both say where learning rates come from: give one of them.")
    source, device = source_of(settings)
    language = load(source, settings.dtype, device)
    name = TINY if source is None else Path(source).name if Path(source).exists() else source
    size = sum(p.numel() for p in language.model.parameters())
    common = {"model": name, "size": size, "dtype": settings.dtype, "pairs": pairs, "gaussians": settings.gaussians}
    arms = _arms(settings, frequencies)
    resources = {"source": source, "device": device, "echo": not console.quiet and not console.is_terminal}

    def finished(plan: Sequence[Mapping[str, Any]], title: str = "runs") -> list[Run]:
        gpus = 1.0 if device.startswith("cuda") else 0.0
        tasks = [Task(run_arm, chosen, _label(chosen), resources=resources, gpus=gpus) for chosen in plan]
        return [run for _, run in settings.finish(tasks, console, title, all_of_them=title == "choices")]

    choices: list[dict[str, Any]] = []
    if settings.choose is not None:
        tried = [arm for arm in arms if arm["head"] == "linear" or arm["frequencies"] in choice.FREQUENCIES]
        tries = [
            {**arm, "in_context": contexts[0], "seed": seed} | common | asdict(replace(recipe, lr=rate))
            for seed in choice.SEEDS
            for rate in parse_numbers(settings.choose, "--choose", zero=False)
            for arm in tried
        ]
        choices = choice.table(finished(tries, "choices"))
    if settings.chosen is not None:
        choices = choice.read(settings.chosen)
    rates = {own: row["learning_rate"] for own, row in choice.best(choices).items()}
    # Seeds outermost: whenever time is up, all arms have had about equally many.
    plan = [
        {**arm, "in_context": context, "seed": seed}
        | common
        | asdict(replace(recipe, lr=rates.get(choice.kind(arm), recipe.lr)))
        for seed in choice.other_seeds(settings.skip + seeds)[settings.skip :]
        for context in contexts
        for arm in arms
    ]
    runs = finished(plan)
    missing = len(plan) - len(runs)
    table = rows(runs)
    return settings.write(
        table,
        # Of all runs that stand here, made now or before.
        seconds=sum(one["seconds"] for one in runs),
        seconds_of="all runs",
        runs=runs,
        charts=charts(runs, table),
        gpu=language.device.type == "cuda",
        keep_runs=missing > 0,
        notes=notes(name, size, recipe, missing, many=settings.gaussians == "many"),
        **({"choices": choices} if choices else {}),
        quick=f"{pairs} training pairs, {recipe.answers} answers, {recipe.epochs} epochs and few seeds and frequencies",
        model=name,
        parameters=size,
        sampling={"temperature": 1.0, "top_p": recipe.top_p, "top_k": None, "answers": recipe.answers},
        libraries={name: version(name) for name in ("transformers", "peft")},
    )


def _arms(settings: Settings, frequencies: Sequence[int]) -> list[dict[str, Any]]:
    """Return what is asked: the model as it is, fine-tuned on text, and with Fourier heads of all that is varied."""
    varied = itertools.product(
        parse_counts(settings.packets, "--packets", 0),
        parse_numbers(settings.init_scale, "--init-scale", zero=False),
        parse_numbers(settings.gamma, "--gamma", zero=True),
        parse_counts(settings.head_first, "--head-first", 0),
        frequencies,
    )
    heads = [{"head": "fourier"} | dict(zip(FOURIER_KEYS, (n, *others), strict=True)) for *others, n in varied]
    return [{"head": head, **dict.fromkeys(FOURIER_KEYS)} for head in ("base", "linear")] + heads


def _label(chosen: Mapping[str, Any]) -> str:
    arm = chosen["head"]
    if chosen["frequencies"] is not None:
        packets = f" + {chosen['packets']} packets" if chosen["packets"] else ""
        alone = f", {chosen['head_first']} epochs alone" if chosen["head_first"] else ""
        arm += f" {chosen['frequencies']}{packets} (init / {chosen['init_scale']:g}, gamma {chosen['gamma']:g}{alone})"
    return f"{arm}, {chosen['in_context']} in context, rate {chosen['lr']:g}, seed {chosen['seed']}"


def run_arm(source: str | None, device: str, echo: bool, **chosen: Any) -> Run:
    """Train and ask one arm, in whichever process."""
    recipe = Recipe(**{field.name: chosen[field.name] for field in fields(Recipe)})
    result = _run_one(chosen, load(source, chosen["dtype"], device), recipe)
    if echo:
        trained = [s["tvd"] for s in result["scores"] if s["group"] == "trained"]
        print(f"{_label(chosen)}: TVD {sum(trained) / len(trained):.3f}, {result['seconds']:.1f} s", flush=True)
    return result


def _run_one(chosen: Mapping[str, Any], language: LanguageModel, recipe: Recipe) -> Run:
    """Train and ask one arm; every arm of a seed gets the same pairs and the same questions."""
    start = time.monotonic()
    seed, context = chosen["seed"], chosen["in_context"]
    prompts, answers = training_pairs(chosen["pairs"], context, seed, many=chosen["gaussians"] == "many")
    gaussians = [*TRAINED, *UNSEEN]
    tests = test_prompts(gaussians, context, seed)
    losses: list[float] = []
    try:
        if chosen["head"] == "base":
            found = text_answers(language.model, language, tests, seed, recipe)
        elif chosen["head"] == "linear":
            found, losses = ask_text(language, prompts, answers, tests, seed, recipe)
        else:
            options = {key: chosen[key] for key in FOURIER_KEYS}
            found, losses = ask_fourier(language, prompts, answers, tests, seed, recipe, **options)
    except ValueError as error:
        if "target_modules" not in str(error) and "Target modules" not in str(error):
            raise
        raise UserError(
            "--lora-layers must name layers of the model, such as q_proj,v_proj: PEFT found none."
        ) from None
    scores = [
        {"gaussian": g.name, "group": "trained" if g in TRAINED else "unseen"} | score(one, g)
        for g, one in zip(gaussians, found, strict=True)
    ]
    names = ("head", *FOURIER_KEYS, "in_context", "seed")
    seconds = round(time.monotonic() - start, 2)
    more = {"learning_rate": chosen["lr"], "seconds": seconds, "losses": losses, "scores": scores}
    return {key: chosen[key] for key in names} | more
