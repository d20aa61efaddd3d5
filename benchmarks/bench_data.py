"""Measure a data set of 600 MB that goes to one host, and comes back from its `keep` folder.

Each transfer is a new process, and is compared with `rsync -a -e ssh` of the same files. `--before
../tree` measures the tfdeploy of another checkout in the same turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import rivals
from figures import Figures, options
from place import BenchLab, open_bench_lab
from turns import Spent, in_turns, median, ratio

JOB = """\
name: bench
mode: plain
command: [python, train.py, "{data.set}"]
data: {set: ../set}
keep: [out]
"""
# The program copies its data to the folder that is kept.
PROGRAM = """\
import shutil, sys
shutil.copytree(sys.argv[1], "out/set", copy_function=shutil.copyfile)
"""
FILES = 10
MB = 1_000_000
GOAL = 1.1


def main() -> None:
    args = options(__doc__, rounds=5, megabytes=600, before="")
    figures = Figures("data", args.json)
    with open_bench_lab(1) as bench:
        checkouts = {"tfdeploy": bench}
        if args.before:
            checkouts["before"] = bench.with_checkout(Path(args.before).resolve())
        (bench.work / "tfdeploy.yaml").write_text(JOB)
        (bench.work / "train.py").write_text(PROGRAM)
        measure_sync(bench, checkouts, args, figures)
        measure_fetch(bench, checkouts, args, figures)


def measure_sync(
    bench: BenchLab,
    checkouts: dict[str, BenchLab],
    args: argparse.Namespace,
    figures: Figures,
) -> None:
    """Measure the way to the host. The files are new in each turn, and have new names."""
    turn = 0

    def renew() -> None:
        nonlocal turn
        turn += 1
        shutil.rmtree(bench.home / "set", ignore_errors=True)
        (bench.home / "set").mkdir()
        for number in range(FILES):
            content = os.urandom(args.megabytes * MB // FILES)
            (bench.home / "set" / f"shard-{turn}-{number}").write_bytes(content)
        os.sync()

    def ours(checkout: BenchLab) -> Spent:
        renew()
        return checkout.tfdeploy("sync", "--yes", "--json")

    def theirs() -> Spent:
        renew()
        return bench.run(rivals.rsync_to(bench, bench.home / "set", "rsynced"))

    runs: dict[str, Callable[[], Spent]] = {
        name: lambda each=each: ours(each) for name, each in checkouts.items()
    }
    show(
        figures,
        f"{args.megabytes} MB to one host",
        in_turns({**runs, "rsync": theirs}, args.rounds),
    )


def measure_fetch(
    bench: BenchLab,
    checkouts: dict[str, BenchLab],
    args: argparse.Namespace,
    figures: Figures,
) -> None:
    """Measure the way back, each time to a new folder."""
    bench.tfdeploy("launch", "--yes", "--wait", "--json")
    bench.run(rivals.rsync_to(bench, bench.home / "set", "rsynced"))

    def ours(checkout: BenchLab) -> Spent:
        clear()
        return checkout.tfdeploy("fetch", "--keep", "--json", "--to", str(bench.home / "back"))

    def theirs() -> Spent:
        clear()
        return bench.run(rivals.rsync_from(bench, "rsynced", bench.home / "back"))

    def clear() -> None:
        shutil.rmtree(bench.home / "back", ignore_errors=True)
        os.sync()

    runs: dict[str, Callable[[], Spent]] = {
        name: lambda each=each: ours(each) for name, each in checkouts.items()
    }
    show(
        figures,
        f"{args.megabytes} MB back from one host",
        in_turns({**runs, "rsync": theirs}, args.rounds),
    )
    fetched = json.loads(ours(bench).output)
    size = sum(path.stat().st_size for path in (bench.home / "back").rglob("shard-*"))
    if size != args.megabytes * MB // FILES * FILES:
        raise SystemExit(f"{size} bytes came back: {fetched}")


def show(figures: Figures, what: str, spent_by_tool: dict[str, list[Spent]]) -> None:
    theirs = spent_by_tool.pop("rsync")
    figures.add(f"rsync: {what}", median(theirs), "s")
    for name, runs in spent_by_tool.items():
        goal = GOAL if name == "tfdeploy" else None
        label = what if name == "tfdeploy" else f"{name}: {what}"
        figures.add(label, median(runs), "s", ratio=ratio(runs, theirs), against="rsync", goal=goal)


if __name__ == "__main__":
    main()
