"""Measure `tfdeploy sync` of 2,000 files to 32 hosts. Each sync is a new process.

The cases are a first sync, one changed file, and no change. In each case, tfdeploy is compared with
`xargs -P32 rsync -a --delete`, once with ssh's defaults and once with ssh's fastest key exchange
and cipher.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import rivals
from figures import Figures, options
from place import BenchLab, change_file, open_bench_lab, write_sources
from turns import Spent, in_turns, median, ratio

JOB = "name: bench\nmode: async\ncommand: [python, package000/module00.py]\n"
# {case: (goal with at least MANY hosts, goal with fewer hosts)}. A goal is the time of tfdeploy as
# a multiple of the time of rsync with ssh's defaults.
CASES = {"fresh": (1.0, 1.15), "one file changed": (1.0, 1.6), "nothing changed": (0.55, 1.3)}
MANY = 16
FRESH_ROUNDS = 2


def main() -> None:
    args = options(__doc__, rounds=7, hosts=32, files=2000)
    with open_bench_lab(args.hosts) as bench:
        measure(bench, args.files, args.rounds, Figures("sync", args.json))


def measure(bench: BenchLab, files: int, rounds: int, figures: Figures) -> None:
    some_file = write_sources(bench.work, files)
    (bench.work / "tfdeploy.yaml").write_text(JOB)
    addresses = "\n".join(bench.addresses).encode()

    def ours(before: Callable[[], object]) -> Spent:
        before()
        spent = bench.tfdeploy("sync", "--json")
        assert json.loads(spent.output)["ok"]
        return spent

    def theirs(before: Callable[[], object], *, tuned: bool) -> Spent:
        before()
        return bench.run(rivals.rsync(bench, bench.work, "rsynced", tuned=tuned), stdin=addresses)

    def clear() -> None:
        """Move the copies on the hosts away.

        The copies are not removed, because ext4 creates files ten times more slowly for a minute
        after it has removed many files.
        """
        bench.run_everywhere(
            "for each in tfdeploy rsynced; do [ ! -e $each ] || mv $each old.$$.$each; done"
        )

    before: dict[str, Callable[[], object]] = {
        "fresh": clear,
        "one file changed": lambda: change_file(some_file),
        "nothing changed": lambda: None,
    }
    for case, goals in CASES.items():
        goal = goals[len(bench.lab.hosts) < MANY]
        step = before[case]
        runs = {
            "tfdeploy": lambda step=step: ours(step),
            "xargs rsync": lambda step=step: theirs(step, tuned=False),
            "xargs rsync, tuned ssh": lambda step=step: theirs(step, tuned=True),
        }
        timings = in_turns(runs, min(rounds, FRESH_ROUNDS) if case == "fresh" else rounds)
        show(figures, f"{case}, {len(bench.lab.hosts)} hosts x {files} files", timings, goal)
        if case == "fresh":
            ours(lambda: None)
    check(
        bench,
        files,
        some_file.relative_to(bench.work).as_posix(),
        some_file.read_bytes().count(b"\n"),
    )


def show(
    figures: Figures, what: str, spent_by_tool: dict[str, list[Spent]], goal: float | None
) -> None:
    ours = spent_by_tool.pop("tfdeploy")
    for name, runs in spent_by_tool.items():
        figures.add(f"{name}: {what}", median(runs), "s")
    for name, runs in spent_by_tool.items():
        judge = goal if name == "xargs rsync" else None
        figures.add(what, median(ours), "s", ratio=ratio(ours, runs), against=name, goal=judge)


def check(bench: BenchLab, files: int, name: str, lines: int) -> None:
    """Check that every host has the complete code, including the last change, in the release (a
    version of the code on a host) whose id tfdeploy reports."""
    hosts = json.loads(bench.tfdeploy("sync", "--json").output)["hosts"]
    script = (
        f"cd tfdeploy/bench/releases/{hosts[0]['release']} && find . -type f | wc -l && wc -l < "
        f"{name}"
    )
    wanted = [str(files + 1), str(lines)]
    if wrong := [said for said in bench.run_everywhere(script) if said.split() != wanted]:
        raise SystemExit(f"a host holds {wrong[0].split()}, not {wanted}")


if __name__ == "__main__":
    main()
