"""Draw what the benchmarks measured, from their CSV files: ``python -m benchmarks.figures``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.files import RESULTS, read

FIRST = ("16384", "384", "4096", "550")
# Points that would lie on top of another one.
HIDDEN = ("fused, roughness 1 point", "fused, roughness 2 points", "fused, real values", "linear + CE, compiled")
OURS = "#0b6e99"
THEIRS = "#b5651d"


def pyplot() -> Any:
    """Return what draws into files alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def head_figure(results: Path) -> None:
    """Draw time against memory, both per token, at the first shape."""
    plt = pyplot()
    rows = [
        r for r in read(results / "head.csv")
        if (r["n"], r["m"], r["N"]) == FIRST[1:] and r["bias"] == "False" and r["implementation"] not in HIDDEN
    ]  # fmt: skip
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(8, 5.2))
    for row in rows:
        tokens = int(row["tokens"])
        times = [float(row[k]) for k in ("both_graph_median_us", "both_device_median_us") if row[k]]
        x, y = int(row["peak_extra_bytes"]) / tokens / 1024, min(times) / tokens
        name = row["implementation"]
        ours = name.startswith(("fused", "formula"))
        axes.loglog(x, y, "o" if ours else "s", color=OURS if ours else "black" if "GEMM" in name else THEIRS)
        right = x < 1e4
        shift = (6, 3) if right else (-6, 3)
        axes.annotate(
            name, (x, y), xytext=shift, textcoords="offset points", fontsize=8, ha="left" if right else "right"
        )
    axes.set_xlabel("peak extra memory per token (KiB)")
    axes.set_ylabel("forward + backward per token (us)")
    axes.set_title(f"Training a head: n = 384, m = 4096, N = 550, bfloat16, {rows[0]['gpu']}")
    axes.margins(x=0.25, y=0.1)
    axes.grid(True, which="both", alpha=0.25)
    figure.tight_layout()
    figure.savefig(results / "head.png", dpi=150)
    plt.close(figure)


def sweep_figure(results: Path) -> None:
    """Draw time along each axis of the sweep."""
    plt = pyplot()
    rows = read(results / "sweep.csv")
    names = {"m": "bins m", "N": "frequencies N", "tokens": "tokens", "n": "width n"}
    figure, panels = plt.subplots(2, 2, figsize=(10, 7.5))
    styles = {"fused": (OURS, "o-"), "linear + CE": (THEIRS, "s-"), "projection GEMMs": ("black", "--")}
    for panel, (axis, label) in zip(panels.flat, names.items(), strict=True):
        for name, (colour, style) in styles.items():
            points = [
                (int(r[axis]), float(r["median_us"])) for r in rows if r["axis"] == axis and r["implementation"] == name
            ]
            if points:
                panel.loglog(*zip(*points, strict=True), style, color=colour, label=name, markersize=4)
        panel.set_xlabel(label)
        panel.set_ylabel("forward + backward (us)")
        panel.grid(True, which="both", alpha=0.25)
    panels.flat[0].legend(fontsize=8)
    figure.suptitle(f"Around (tokens, n, m, N) = (16384, 384, 4096, 550), bfloat16, {rows[0]['gpu'] if rows else ''}")
    figure.tight_layout()
    figure.savefig(results / "sweep.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    head_figure(RESULTS)
    if (RESULTS / "sweep.csv").exists():
        sweep_figure(RESULTS)
