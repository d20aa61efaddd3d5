"""Measure how much longer `tfdeploy --version` and `--help` take than an empty interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from figures import Figures, options
from place import TFDEPLOY
from turns import Spent, in_turns, median, spend

# the goals: ms beyond the start of an empty interpreter
EXTRA_MS = {"--version": 50.0, "--help": 150.0}


def main() -> None:
    args = options(__doc__, rounds=15)
    figures = Figures("startup", args.json)

    def run(*argv: str) -> Spent:
        return spend(argv, env=dict(os.environ), cwd=Path("/"))

    timings = in_turns(
        {
            "empty": lambda: run(sys.executable, "-c", "pass"),
            "--version": lambda: run(TFDEPLOY, "--version"),
            "--help": lambda: run(TFDEPLOY, "--help"),
        },
        args.rounds,
    )
    empty = 1000 * median(timings["empty"])
    figures.add("an empty interpreter", empty, "ms")
    for flag, goal in EXTRA_MS.items():
        figures.add(
            f"tfdeploy {flag}, beyond that", 1000 * median(timings[flag]) - empty, "ms", goal=goal
        )


if __name__ == "__main__":
    main()
