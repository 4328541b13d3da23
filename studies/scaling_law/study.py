"""Theorem 3.3 of the paper, measured: does smoothness follow C1 - C2 / N^(2t - 1)?

Exponents are fitted to the theorem's own main term, to single kernels, and to the metric itself for several numbers of
bins; with them go the caveats of the proof: a truncated series can be negative, bin centres alias beyond m/2, and two
of its lemmas do not hold.
Where the study `synthetic` has been run, the law is fitted to its trained heads as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fourier_head.tasks.engine import Task
from studies.common import options
from studies.common.options import SILENT, option
from studies.common.report.summary import SUMMARY, Row, Summary, number, read_summary
from studies.common.results import row
from studies.scaling_law import charts, decay
from studies.scaling_law.decay import ScalingLaw, fit_scaling_law
from studies.scaling_law.expressivity import TARGETS, expressivity_rows, measure_expressivity
from studies.scaling_law.lemmas import lemma_note, lemma_rows, measure_lemmas

BINS = (64, 256, 1024, 4096)
PRACTICAL = 50  # bins of the paper's synthetic study
TRIANGLE = 0.3  # half-width of the density that its own truncations make negative
NARROW = 0.06  # half-width of one that needs more frequencies than half of 50 bins
REACHES = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to measure."""

    study = "scaling-law"
    synthetic: Path = option(
        Path("results/synthetic"),
        "Results of the study synthetic, whose heads are fitted where they exist.",
        told=False,
    )


def measure_law(t: int, bins: Sequence[int]) -> dict[str, Any]:
    """Return fits and curves of one decay: the main term, single kernels, the metric for each number of bins."""
    most = max(bins)
    q = decay.coefficients(t, most // 2)
    regimes: list[dict[str, Any]] = []

    def add(protocol: str, m: int, step: decay.Floats, first: int, last: int, expected: float) -> None:
        law = decay.fit(step, first, last)
        found = {"exponent": law.exponent, "C2": law.C2, "residual": law.residual, "expected": expected}
        regimes.append({"protocol": protocol, "bins": m, "first": first, "last": last} | found)

    theorem, narrow = 2 * t - 1, decay.narrow_exponent(t)
    wide, interval = decay.Widths.single(most / 2), decay.Widths.of_interval(most)
    add("main term of the proof", most, decay.main_term_steps(q, most), 8, 128, theorem)
    add("one wide kernel, half the interval", most, decay.steps(q, most, wide), 8, 128, theorem)
    add("widths in units of the interval", most, decay.steps(q, most, interval), 8, 128, theorem)
    full = {m: decay.steps(q, m, decay.Widths.all_of(m)) for m in (*bins, PRACTICAL)}
    for m in bins:
        if m >= 512:
            add("metric, N well below m", m, full[m], 8, m // 16, narrow)
    add("metric, N = 2 to 20 as in the synthetic study", PRACTICAL, full[PRACTICAL], 2, 20, math.nan)
    for m in bins:
        if m >= 256:
            add("metric, last tenth before m/2", m, full[m], math.ceil(0.45 * m), (m - 1) // 2, theorem)
    sigmas = (1.0, most / 64, most / 16, most / 2)
    chosen = [int(n) for n in np.unique(np.rint(np.geomspace(1, (most - 1) // 2, 40)).astype(int))]
    return {
        "t": t,
        "regimes": regimes,
        "local": {str(m): _exponents(full[m]) for m in bins},
        "kernels": {f"{s:g}": _exponents(decay.steps(q, most, decay.Widths.single(s))) for s in sigmas},
        "n": chosen,
        "metric": decay.measured(q, most, chosen).tolist(),
        "remainder": decay.remainders(full[most])[np.array(chosen) - 1].tolist(),
        "remainder_wide": decay.remainders(decay.steps(q, most, wide))[np.array(chosen) - 1].tolist(),
    }


def _exponents(step: decay.Floats) -> dict[str, list[float]]:
    """Return the exponent at about a hundred N, evenly in the logarithm, so that curves stay small files."""
    n, exponent = decay.local_exponents(step)
    kept = np.unique(np.rint(np.geomspace(1, len(n), 100)).astype(int)) - 1
    return {"n": n[kept].tolist(), "exponent": exponent[kept].tolist()}


def measure_negative(half_width: float, frequencies: Sequence[int]) -> dict[str, Any]:
    """Return how negative truncations of a triangle density get, with and without Fejér's weights."""
    z = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    truth = ((1 - z.abs() / half_width) / half_width).clamp_min(0)
    out: list[dict[str, Any]] = []
    for n in frequencies:
        q = decay.triangle_coefficients(half_width, n)
        plain, averaged = decay.series_values(q, z), decay.series_values(decay.fejer(q, n), z)
        mass = torch.trapezoid((-plain).clamp_min(0), z).item()
        lows = {"minimum": plain.min().item(), "negative_mass": mass, "minimum_fejer": averaged.min().item()}
        curves = {"plain": plain[::20].tolist(), "fejer": averaged[::20].tolist()}
        out.append({"frequencies": n} | lows | curves)
    return {"half_width": half_width, "z": z[::20].tolist(), "truth": truth[::20].tolist(), "cuts": out}


def measure_alias(half_width: float, bins: int) -> dict[str, Any]:
    """Return smoothness and the sum of the values at bin centres of a triangle for N up to twice the number of bins."""
    n = list(range(1, 2 * bins + 1))
    q = decay.triangle_coefficients(half_width, 2 * bins)
    centres = -1 + (2 * torch.arange(bins, dtype=torch.float64) + 1) / bins
    sums = [decay.series_values(q[:k], centres).sum().item() * 2 / bins for k in n]
    middle, exact = (decay.measured(q, bins, n, exact=e).tolist() for e in (False, True))
    return {"half_width": half_width, "bins": bins, "n": n, "midpoint": middle, "exact": exact, "sum": sums}


def scaling_law_of_trained_heads(rows: Sequence[Row]) -> list[Row]:
    """Fit the law to trained Fourier heads: rows of metric `smoothness`, several frequencies, everything else equal.

    Each fit gives a row of metric `exponent` whose `std` is the jackknife error over the numbers of frequencies, with
    the constants beside it and, as `paper_fit`, the exponent of the paper's own smoothness values where rows have
    them. Where smoothness does not level off within the frequencies measured, there is no exponent and `ours` is null.
    Groups with fewer than four frequencies are left out.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    keys = ("dataset", "packets", "protocol", "gamma")
    for one in rows:
        usable = one["metric"] == "smoothness" and str(one["head"]).startswith("fourier")
        if usable and number(one["frequencies"]) and number(one["ours"]) is not None:
            groups.setdefault(tuple(one.get(key) for key in keys), []).append(one)
    out = []
    for names, members in groups.items():
        points = {int(one["frequencies"]): float(one["ours"]) for one in members}
        law = _fit_points(points)
        if law is None:
            continue
        others = [_fit_points({n: s for n, s in points.items() if n != left}) for left in points]
        values = np.array([other.exponent for other in others if other is not None])
        found_one = _level(law)
        error = math.sqrt((len(values) - 1) * values.var()) if found_one and len(values) > 1 else None
        published = _fit_points({int(m["frequencies"]): float(m["paper"]) for m in members if number(m["paper"])})
        found: dict[str, Any] = {"C1": law.C1, "C2": law.C2, "residual": law.residual, "points": len(points)}
        found["paper_fit"] = published.exponent if published is not None and _level(published) else None
        group = dict(zip(keys, names, strict=True))
        ours = law.exponent if found_one else None
        out.append(row("exponent", ours, head="fourier", std=error, fitted=law.exponent, **group, **found))
    return out


def _level(law: ScalingLaw) -> bool:
    """Return whether the fit found an exponent, rather than an end of the range it searches."""
    return 0.02 < law.exponent < 50


def _fit_points(points: dict[int, float]) -> ScalingLaw | None:
    if len(points) < 4 or len(set(points.values())) < 2:
        return None
    n = sorted(points)
    return fit_scaling_law(n, [points[i] for i in n])


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder."""
    bins = BINS[:3] if settings.quick else BINS
    laws = [Task(measure_law, {"t": t, "bins": list(bins)}, f"coefficients 1/k^{t}") for t in decay.DECAYS]
    others = [
        Task(measure_negative, {"half_width": TRIANGLE, "frequencies": [2, 4, 8, 16]}, "negative truncations"),
        Task(measure_alias, {"half_width": NARROW, "bins": PRACTICAL}, "aliases"),
    ]
    reached = [
        Task(measure_expressivity, {"target": name, "frequencies": list(REACHES)}, f"heads near a {name}")
        for name in TARGETS
    ]
    tasks = laws + others + reached
    results = [result for _, result in settings.finish(tasks, console, "measurements", all_of_them=True)]
    measured, (negative, alias) = results[: len(laws)], results[len(laws) : len(laws) + len(others)]
    near = dict(zip(TARGETS, results[len(laws) + len(others) :], strict=True))
    lemmas = measure_lemmas()
    trained: list[Row] = []
    if (settings.synthetic / SUMMARY).is_file():
        heads = read_summary(settings.synthetic).rows
        trained = scaling_law_of_trained_heads(heads)
        told = trained_note(trained)
    else:
        heads = []
        told = "Trained heads were left out: there are no results of the study synthetic to fit."
    rows = [*law_rows(measured), *caveat_rows(negative, alias), *trained]
    rows += [one for name, found in near.items() for one in expressivity_rows(name, found)]
    rows += lemma_rows(lemmas)
    drawn = [chart(measured) for chart in (charts.law_chart, charts.local_chart, charts.kernel_chart)]
    drawn += [charts.negative_chart(negative), charts.alias_chart(alias), charts.expressivity_chart(near)]
    drawn.append(charts.lemma_chart(lemmas))
    if trained:
        drawn.append(charts.trained_chart(heads, trained))
    return settings.write(
        rows,
        runs=results[: len(laws) + len(others)],
        charts=drawn,
        notes=[*notes(measured, negative, alias), expressivity_note(near), lemma_note(lemmas), told],
        quick=f"{bins[-1]} bins at most instead of {BINS[-1]}",
    )


def expressivity_note(near: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Return in a sentence how near heads come to densities."""
    ends = "; ".join(
        f"{name} {found[0]['sup_error']:.2f} to {found[-1]['sup_error']:.3f}" for name, found in near.items()
    )
    first, last = REACHES[0], REACHES[-1]
    worst = max(max(one["factoring_error"], one["embedding_error"]) for found in near.values() for one in found)
    return (
        f"Part 1 of the theorem: the Fejér mean of a density is a head, found here to {worst:.0e}, and a head of N "
        f"frequencies is one of N + 1. Largest distance from N = {first} to {last}: {ends}."
    )


def trained_note(fits: Sequence[Row]) -> str:
    """Return in a sentence what the fits to trained heads gave."""
    if not fits:
        return "The results of the study synthetic have no Fourier head with four frequencies or more to fit."
    found = [one["ours"] for one in fits if one["ours"] is not None]
    text = f"The law was fitted to {len(fits)} series of trained heads of the study synthetic"
    if found:
        text += f": exponents from {min(found):.2f} to {max(found):.2f}"
    if len(found) < len(fits):
        text += f"; in {len(fits) - len(found)} smoothness does not level off over the frequencies measured"
    return f"{text}. Truncations of 1/k^2 on as many bins have about 1 there, where the theorem says 3."


def law_rows(measured: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Return fitted exponents beside the theorem's, and the metric at some numbers of frequencies."""
    for one in measured:
        t, dataset = one["t"], f"1/k^{one['t']}"
        for regime in one["regimes"]:
            more = {"t": t, "bins": regime["bins"], "from": regime["first"], "to": regime["last"]}
            more |= {"expected": regime["expected"], "C2": regime["C2"], "residual": regime["residual"]}
            chosen = {"dataset": dataset, "protocol": regime["protocol"], "paper": 2 * t - 1}
            yield row("exponent", regime["exponent"], **chosen, **more)
        for n, value in zip(one["n"], one["metric"], strict=True):
            if n in (1, 2, 4, 8, 16, 32) or n == one["n"][-1]:
                m = max(regime["bins"] for regime in one["regimes"])
                yield row("smoothness", value, dataset=dataset, protocol="metric", frequencies=n, t=t, bins=m)


def caveat_rows(negative: dict[str, Any], alias: dict[str, Any]) -> Iterator[Row]:
    """Return how far below zero truncations go, and what aliases do to smoothness and to the normaliser."""
    for cut in negative["cuts"]:
        for metric in ("minimum", "negative_mass", "minimum_fejer"):
            more = {"frequencies": cut["frequencies"], "half_width": negative["half_width"]}
            yield row(metric, cut[metric], dataset="triangle", **more)
    m = alias["bins"]
    for n in (m // 4, m // 2 - 1, 3 * m // 4, m - 1, m, 2 * m):
        for key, metric in (("midpoint", "smoothness"), ("exact", "smoothness"), ("sum", "sum_of_midpoints")):
            protocol = {"midpoint": "bin centres", "exact": "exact bins", "sum": "bin centres"}[key]
            value = alias[key][n - 1]
            more = {"frequencies": n, "bins": m, "protocol": protocol, "half_width": alias["half_width"]}
            yield row(metric, value, dataset="triangle", **more)


def notes(measured: Sequence[dict[str, Any]], negative: dict[str, Any], alias: dict[str, Any]) -> list[str]:
    """Return in sentences what came out."""

    def exponents(protocol: str) -> str:
        texts = []
        for one in measured:
            found = [r for r in one["regimes"] if r["protocol"] == protocol]
            texts.append(f"{found[-1]['exponent']:.2f}" if found else "–")
        return " / ".join(texts)

    theorem = " / ".join(str(2 * one["t"] - 1) for one in measured)
    narrow = " / ".join(f"{decay.narrow_exponent(one['t']):g}" for one in measured)
    worst = min(negative["cuts"], key=lambda cut: cut["minimum"])
    m = alias["bins"]
    peak = alias["midpoint"][m // 2 - 2]
    return [
        f"For t = {' / '.join(str(one['t']) for one in measured)} the theorem says {theorem}. Its main term has "
        f"{exponents('main term of the proof')}, one wide kernel {exponents('one wide kernel, half the interval')}, "
        f"and the metric with widths counted in half intervals instead of bins "
        f"{exponents('widths in units of the interval')}.",
        f"The metric as defined, with widths of one bin and more, has {exponents('metric, N well below m')} for N well "
        f"below m: t − 3/2 for t < 5/2 and 2t − 4 above, that is {narrow}. The proof drops the kernel's coefficients "
        "because they decay faster than any power, but they only begin to at k = m / (2πσ), which is above N "
        "for the narrow kernels that weigh most. The exponent climbs to the theorem's as N reaches m/2: "
        f"{exponents('metric, last tenth before m/2')} between 0.45 m and m/2.",
        f"A truncated density can be negative: a triangle of half-width {TRIANGLE:g} cut at N = {worst['frequencies']} "
        f"goes down to −{-worst['minimum']:.3f}, though all its coefficients are positive. Cutting a positive definite "
        "sequence does not keep it positive definite; Fejér's weights do, and so does the head, whose density is a "
        "square.",
        f"Beyond m/2 the bin centres alias: with {m} bins and a triangle of half-width {NARROW:g} smoothness falls "
        f"from {peak:.4f} at N = {m // 2 - 1} to {alias['midpoint'][m - 2]:.4f} at N = {m - 1}, where harmonic m − k "
        f"cancels harmonic k, and at N = {m} the values no longer sum to m/2 but to {alias['sum'][m - 1]:.4f} of it.",
    ]
