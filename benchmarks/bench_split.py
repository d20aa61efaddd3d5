"""Measure a sync of a data set in parts (`split: worker`) to 8 workers, then to 6.

    first     64 MB in 240 files of unequal size go to 8 workers. The figure is the number of bytes
              that leave the operator's machine, compared with the size of the data set.
    8 to 6    Two workers leave. The figure is the number of bytes that all hosts receive, compared
              with the smallest possible number: a quarter of the data set (2 of 8 parts).

Bytes are read from the kernel's counters. The benchmark also measures whether the parts are equally
large. Each round sends new content. Every part is compared with the source by checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from statistics import median

from figures import Figures, options
from meters import metered
from place import BenchLab, open_bench_lab

MB = 1_000_000
FILES, WORKERS, FEWER = 240, 8, 6
JOB = """name: bench
mode: plain
command: [python, train.py, "{{data.set}}"]
roles: {{worker: {{count: {workers}}}}}
data: {{set: {{path: ../set, split: worker}}}}
"""
LIMIT = "n[2-{}]"
SUMS = "cd tfdeploy/bench/data/set && sha256sum *"


def main() -> None:
    args = options(__doc__, rounds=1, mbit=100, small=64)
    figures = Figures("split", args.json)
    # The first host runs no worker.
    with open_bench_lab(WORKERS + 1, rate=f"{args.mbit}mbit") as bench:
        (bench.work / "tfdeploy.yaml").write_text(
            "name: bench\nmode: plain\ncommand: [python, train.py]\n"
        )
        (bench.work / "train.py").write_text("")
        # This sync sends the agent and the code, which are not measured.
        bench.tfdeploy("sync", "--json")
        first, moved, largest = [], [], []
        for number in range(args.rounds):
            total = renew(bench, args.small, seed=number)
            bench.run_everywhere("rm -rf tfdeploy/bench/data")
            first.append(sync(bench, WORKERS) / total)
            sizes = check(bench, WORKERS)
            largest.append(max(sizes) / (total / WORKERS + biggest(bench)))
            least = sum(sizes[FEWER:])
            moved.append(sync(bench, FEWER, received=True) / least)
            check(bench, FEWER)
    figures.add(
        "8 workers: sent by the operator",
        median(first),
        "",
        ratio=median(first),
        against="the set",
        goal=1.05,
    )
    what = "8 workers: the largest part"
    figures.add(
        what, max(largest), "", ratio=max(largest), against="mean and largest file", goal=1.1
    )
    figures.add(
        "8 to 6 workers: received",
        median(moved),
        "",
        ratio=median(moved),
        against="the least",
        goal=1.2,
    )


def renew(bench: BenchLab, megabytes: int, seed: int) -> int:
    """Write new content to the files of the data set. Return the size of all files in bytes."""
    source = bench.home / "set"
    source.mkdir(exist_ok=True)
    weights = [random.Random(seed).uniform(0.3, 1.7) for _ in range(FILES)]
    for number, weight in enumerate(weights):
        size = int(megabytes * MB * weight / sum(weights))
        (source / f"shard-{number:05}").write_bytes(os.urandom(size))
    return sum(path.stat().st_size for path in source.iterdir())


def biggest(bench: BenchLab) -> int:
    return max(path.stat().st_size for path in (bench.home / "set").iterdir())


def sync(bench: BenchLab, workers: int, *, received: bool = False) -> int:
    """Run `tfdeploy sync`, and return a number of bytes: those that all hosts together received if
    `received` is True, else those that left the operator's machine."""
    (bench.work / "tfdeploy.yaml").write_text(JOB.format(workers=workers))
    with metered(bench.lab) as meter:
        bench.tfdeploy("sync", "--json")
    return (
        sum(meter.to_bytes[host] for host in bench.lab.hosts)
        if received
        else meter.from_bytes["operator"]
    )


def check(bench: BenchLab, workers: int) -> list[int]:
    """Return the size of each part in bytes.

    Check that all parts together are equal to the source, and that no file is in two parts.
    """
    answer = json.loads(
        bench.tfdeploy("exec", "--json", "--limit", LIMIT.format(workers + 1), "--", SUMS).output
    )["hosts"]
    files = {path.name: path for path in (bench.home / "set").iterdir()}
    wanted = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    parts = [[line.split() for line in row["stdout"].splitlines()] for row in answer]
    by_name = {name: digest for part in parts for digest, name in part}
    if by_name != wanted or sum(map(len, parts)) != len(wanted):
        raise SystemExit(f"{workers} workers: their parts are not the set")
    return [sum(size_of(files[name]) for _, name in part) for part in parts]


def size_of(path: Path) -> int:
    return path.stat().st_size


if __name__ == "__main__":
    main()
