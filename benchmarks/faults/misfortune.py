"""Provide what the fault benchmarks share: isolated hosts, operators, options and printed figures.

The figures of these benchmarks are times, and counts that must be 0. They are not compared with the
figures of other tools, so these benchmarks are not part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from place import REPOSITORY, BenchLab, open_bench_lab

sys.path.insert(0, str(REPOSITORY / "tests"))  # so that the next import finds tests/support

from support.lab.commandline import Tfdeploy


def options(doc: str | None, **numbers: int) -> argparse.Namespace:
    """Parse the options --seed and --scale, and an option for each of `numbers` (name=default).

    The seed is printed, so that a failure can be repeated.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of all times: 0.1 makes a second a tenth"
    )
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", file=sys.stderr, flush=True)
    return arguments


@contextmanager
def operators(hosts: int, count: int = 1) -> Iterator[list[Tfdeploy]]:
    """Yield `count` operators of one lab. At the end, processes that the operators left running are
    stopped."""
    with open_bench_lab(hosts) as bench:
        made = [_operator(bench, number) for number in range(count)]
        try:
            yield made
        finally:
            for each in made:
                each.end_all()


def _operator(bench: BenchLab, number: int) -> Tfdeploy:
    return Tfdeploy(bench.lab, bench.home / f"operator-{number}")


class Events:
    """The file of `--events`, read while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._half = path, 0, b""

    def fresh(self) -> list[dict[str, Any]]:
        """Return the events since the last call, or [] as long as there is no file."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = self._half + file.read()
            self._at = file.tell()
        *whole, self._half = data.split(b"\n")
        return [json.loads(line) for line in whole]


def figure(what: str, value: object) -> None:
    print(f"{what:64} {value}", flush=True)


def spread(seconds: list[float]) -> str:
    """Return a text with the median and the maximum of these times."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    return (
        f"median {ordered[len(ordered) // 2]:.1f} s, worst {ordered[-1]:.1f} s, of {len(ordered)}"
    )
