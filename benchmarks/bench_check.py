"""Measure `tfdeploy check` on 64 hosts, including the links from every host to every other host.

For comparison, `tfdeploy exec -- true` runs in the same rounds. The hosts run on this machine, so
its cores also do the work of the hosts' agents and kernels.
"""

from __future__ import annotations

import json

from figures import Figures, options
from place import BenchLab, open_bench_lab
from turns import in_turns, median, ratio


def main() -> None:
    args = options(__doc__, rounds=5, hosts=64)
    with open_bench_lab(args.hosts) as bench:
        measure(bench, args.hosts, args.rounds, Figures("check", args.json))


def measure(bench: BenchLab, hosts: int, rounds: int, figures: Figures) -> None:
    timings = in_turns(
        {
            "check": lambda: bench.tfdeploy("check", "--json"),
            "exec": lambda: bench.tfdeploy("exec", "--", "true"),
        },
        rounds,
    )
    answers = [json.loads(run.output) for run in timings["check"]]
    links = {len({(link["from"], link["to"]) for link in answer["links"]}) for answer in answers}
    complaints = sum(
        not each["ok"] for answer in answers for host in answer["hosts"] for each in host["checks"]
    )
    complaints += sum(link["why"] is not None for answer in answers for link in answer["links"])
    what = f"check, {hosts} hosts, {links.pop():,} links"
    figures.add(f"exec -- true, {hosts} hosts", median(timings["exec"]), "s")
    figures.add(
        what,
        median(timings["check"]),
        "s",
        ratio=ratio(timings["check"], timings["exec"]),
        against="exec -- true",
        goal=6,
    )
    figures.add("complaints about healthy hosts", complaints, "", goal=0)
    for name, spent in timings.items():
        figures.add(
            f"client CPU per host, {name}",
            1000 * median(spent, lambda run: run.cpu_s) / hosts,
            "ms",
        )
    figures.add(
        "the hosts' own CPU, check",
        median(timings["check"], lambda run: run.beside["hosts_cpu_s"]),
        "s",
    )


if __name__ == "__main__":
    main()
