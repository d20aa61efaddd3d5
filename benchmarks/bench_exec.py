"""Compare `tfdeploy exec -- true` on 64 hosts with clush over ssh. Each command is a new process.

The hosts run on this machine. So no client can be faster than the CPU time of the hosts' sshds,
divided by the number of cores.
"""

from __future__ import annotations

import os
import statistics
import sys

import rivals
from figures import Figures, options
from place import BenchLab, open_bench_lab
from turns import in_turns, median, ratio


def main() -> None:
    args = options(__doc__, rounds=7, hosts=64)
    with open_bench_lab(args.hosts) as bench:
        measure(bench, args.hosts, args.rounds, Figures("exec", args.json))


def measure(bench: BenchLab, hosts: int, rounds: int, figures: Figures) -> None:
    other = rivals.clush(bench, "true", hosts=bench.addresses)
    # Imports take the same CPU time for any number of hosts.
    libraries = [sys.executable, "-c", "import fabric, paramiko"]
    runs = {
        "tfdeploy": lambda: bench.tfdeploy("exec", "--", "true"),
        "import": lambda: bench.run(libraries),
    }
    if other is not None:
        runs["clush"] = lambda: bench.run(other)
    timings = in_turns(runs, rounds)
    ours = timings["tfdeploy"]
    floor = median(ours, lambda run: run.beside["hosts_cpu_s"]) / (os.cpu_count() or 1)
    what = f"exec -- true, {hosts} hosts, cold"
    if "clush" in timings:
        figures.add("clush, " + what, median(timings["clush"]), "s")
        figures.add(
            what, median(ours), "s", ratio=ratio(ours, timings["clush"]), against="clush", goal=0.25
        )
    else:
        figures.add(what, median(ours), "s")
        figures.skip("the same by clush", rivals.CLUSH_MISSING)
    figures.add("the hosts' own CPU, on all cores", floor, "s")
    figures.add(
        what, median(ours), "s", ratio=median(ours) / floor, against="the hosts' own CPU", goal=1.3
    )
    shared = timings.pop("import")
    for name, spent in timings.items():
        cpu_ms = 1000 * median(spent, lambda run: run.cpu_s) / hosts
        figures.add(
            f"client CPU per host, {name}", cpu_ms, "ms", goal=5.0 if name == "tfdeploy" else None
        )
    own_ms = (
        1000
        * statistics.median(run.cpu_s - libs.cpu_s for run, libs in zip(ours, shared, strict=True))
        / hosts
    )
    figures.add("the same, less importing fabric and paramiko", own_ms, "ms", goal=3.5)


if __name__ == "__main__":
    main()
