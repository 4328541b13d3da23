"""Run the tempo study without the command line's extras: `python -m studies.tempo --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fourier_head.errors import UserError, require
from studies.common.folders import study_folder
from studies.tempo.study import FREQUENCIES, Settings, parse_frequencies, run


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m studies.tempo", description=__doc__)
    parser.add_argument("--output", type=Path, help="results/tempo, with --quick results-quick/tempo")
    parser.add_argument("--model", default=Settings.model, help="small, tiny, or an AST by name or path")
    parser.add_argument("--data", type=Path, help="folder of SynTheory's tempos; generated clips without it")
    parser.add_argument("--seeds", type=int, default=Settings.seeds)
    parser.add_argument("--frequencies", default=",".join(map(str, FREQUENCIES)))
    parser.add_argument("--clips", type=int, default=Settings.clips, help="generated for each tempo")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--pretrain", type=int, help="steps without labels, for untrained networks")
    parser.add_argument("--protocol", default=Settings.protocol, help="released, longer or all")
    parser.add_argument("--device", default=Settings.device)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--time-limit", type=float, help="seconds")
    parser.add_argument("--quick", action="store_true")
    given = vars(parser.parse_args())
    given["output"] = study_folder("tempo", given["quick"], given["output"])
    try:
        require("cli,transformers", "matplotlib", "transformers", "safetensors")
        settings = Settings(**given | {"frequencies": parse_frequencies(given["frequencies"])})
        summary = run(settings, echo=True)
    except UserError as error:
        print(f"fourier-head: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    for one in summary.rows:
        if one["metric"] in ("macro_f1", "bpm_error", "macro_f1_to_linear", "validation_f1"):
            print(
                one["protocol"],
                one["metric"],
                one["head"],
                one["frequencies"] or "",
                f"{one['ours']:.4f}",
                one["std"],
                one["seeds"],
            )
    print("\n".join(summary.extra.get("notes", ())))
    print(f"Wrote {settings.output}/; {summary.extra['seconds_of']} added up took {summary.seconds:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
