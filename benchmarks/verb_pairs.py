"""Compare `status`, `sync` and `launch` with another checkout of tfdeploy, in pairs.

    python benchmarks/verb_pairs.py --against ../before --pairs 20 --hosts 8

Each checkout has a separate job, with 200 files of code, on the same isolated hosts (which need
root). `status` shows a live run with one task per host. Before each `sync`, one file changes.
`launch` returns when all tasks are up; the time to stop the run is not measured. What is measured
are the seconds, the CPU time of the client and the CPU time of all hosts. Each printed figure is
the median of the ratios within the pairs, with a 95 % confidence interval computed by ranks.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from client_pairs import Pairs, pairs
from place import REPOSITORY, BenchLab, change_file, open_bench_lab, write_sources
from turns import Spent, interval

FILES = 200
JOB = """\
mode: plain
command: [sleep, infinity]
ready: {after: 0.1s}
restart: {max: 0}
"""
FIGURES: dict[str, Callable[[Spent], float]] = {
    "seconds": lambda spent: spent.seconds,
    "client CPU": lambda spent: spent.cpu_s,
    "hosts' CPU": lambda spent: spent.beside["hosts_cpu_s"],
}


@dataclass(frozen=True)
class Side:
    """One checkout and its job. `name` is the name of the job and of its live run."""

    name: str
    place: BenchLab
    file: Path

    def status(self) -> Spent:
        return self.place.tfdeploy("status", self.name)

    def sync(self) -> Spent:
        change_file(self.file)
        return self.place.tfdeploy("sync")

    def launch(self) -> Spent:
        command = ("launch", "--detach", "-j", str(self.place.work / "second.yaml"))
        spent = self.place.tfdeploy(*command)
        self.place.tfdeploy("stop", "--now", spent.output.decode().strip())
        return spent


def begin(bench: BenchLab, tree: Path, name: str) -> Side:
    """Write the job, and launch the run that `status` will show."""
    work = bench.home / name
    work.mkdir()
    file = write_sources(work, FILES)
    (work / "tfdeploy.yaml").write_text(f"name: {name}\n{JOB}")
    (work / "second.yaml").write_text(f"name: {name}-launched\n{JOB}")
    side = Side(name, replace(bench.with_checkout(tree), work=work), file)
    side.place.tfdeploy("launch", "--detach", "--name", name)
    return side


def compare(what: str, measured: Pairs) -> None:
    for figure, value in FIGURES.items():
        old, new = ([value(side) for side in sides] for sides in zip(*measured, strict=True))
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        low, high = interval(ratios)
        print(
            f"{what}, {figure}: {statistics.median(old):.3f} -> {statistics.median(new):.3f} s, "
            f"median ratio {statistics.median(ratios):.3f}, 95 % {low:.3f} to {high:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, required=True, help="the other checkout's folder")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--hosts", type=int, default=8)
    args = parser.parse_args()
    with open_bench_lab(args.hosts) as bench:
        before = begin(bench, args.against.resolve(), "before")
        after = begin(bench, REPOSITORY, "after")
        for verb in ("status", "sync", "launch"):
            compare(verb, pairs(getattr(before, verb), getattr(after, verb), args.pairs))
        for side in (before, after):
            side.place.tfdeploy("stop", "--now", side.name)


if __name__ == "__main__":
    main()
