"""Print the figures of a benchmark: a table for people, or with --json one object per line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass


@dataclass
class Figures:
    """The figures of a benchmark. Each figure is printed as soon as it is known."""

    benchmark: str
    as_json: bool = False

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        ratio: float | None = None,
        against: str | None = None,
        goal: float | None = None,
        at_least: bool = False,
    ) -> None:
        """Print one figure.

        `ratio` is this figure divided by the figure of `against`. Both are measured in the same
        rounds. `goal` is compared with the ratio, or with the value if there is no ratio. If
        `at_least` is True, the goal is a minimum, otherwise a maximum.
        """
        judged = value if ratio is None else ratio
        met = None if goal is None else (judged >= goal if at_least else judged <= goal)
        if self.as_json:
            row = {
                "benchmark": self.benchmark,
                "what": what,
                "value": round(value, 4),
                "unit": unit,
            }
            row |= {
                "ratio": None if ratio is None else round(ratio, 3),
                "against": against,
                "goal": goal,
                "met": met,
            }
            print(
                json.dumps({**row, "cores": os.cpu_count(), "time": round(time.time())}), flush=True
            )
            return
        text = f"{self.benchmark:9} {what:46} {value:12,.3f} {unit:9}"
        text += f" {ratio:6.2f} x {against}" if ratio is not None else ""
        if goal is not None:
            text += f"   goal {'>=' if at_least else '<='} {goal:g}: {'met' if met else 'MISSED'}"
        print(text, flush=True)

    def skip(self, what: str, why: str) -> None:
        if self.as_json:
            print(
                json.dumps({"benchmark": self.benchmark, "what": what, "skipped": why}), flush=True
            )
        else:
            print(f"{self.benchmark:9} {what:46} not measured: {why}", flush=True)


def say(text: str) -> None:
    print(f"--- {text}", file=sys.stderr, flush=True)


def options(
    doc: str | None, *, rounds: int, hosts: int | None = None, **more: int | str
) -> argparse.Namespace:
    """Parse the options of a benchmark: --json, --rounds N, --hosts N if `hosts` gives a default,
    and an option for each of `more` (name=default). A value has the type of the default."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"turns of each (default {rounds})"
    )
    numbers = more if hosts is None else {"hosts": hosts, **more}
    for name, default in numbers.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"default {default}"
        )
    return parser.parse_args()
