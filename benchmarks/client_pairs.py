"""Compare the command line with that of another checkout of tfdeploy, in pairs.

    python benchmarks/client_pairs.py --against ../before --pairs 300 --execs 7 --hosts 64

It measures the CPU time (user and system) of `--version` and `--help`, and the CPU time and seconds
of `exec -- true` on isolated hosts. The isolated hosts need root; `--execs 0` leaves `exec` out.
Both checkouts use the same interpreter. The printed interval is a confidence interval of the median
of the differences within the pairs. It is computed by ranks, so it assumes no distribution.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from place import REPOSITORY, TFDEPLOY, open_bench_lab
from turns import Spent, in_turns, interval, spend

Pairs = list[tuple[Spent, Spent]]


def pairs(before: Callable[[], Spent], after: Callable[[], Spent], count: int) -> Pairs:
    """Return the costs (before, after) of each pair. The order of the two runs of a pair is random.

    Before the first pair, each checkout runs once to warm the caches.
    """
    in_turns({"before": before, "after": after}, 1)
    return [_pair(before, after) for _ in range(count)]


def _pair(before: Callable[[], Spent], after: Callable[[], Spent]) -> tuple[Spent, Spent]:
    if random.random() < 0.5:
        return before(), after()
    second = after()
    return before(), second


def compare(what: str, measured: Pairs, value: Callable[[Spent], float], unit: str) -> None:
    old, new = ([value(side) for side in sides] for sides in zip(*measured, strict=True))
    more = [b - a for a, b in zip(old, new, strict=True)]
    low, high = interval(more)
    summary = (
        f"median of {len(more)} differences {statistics.median(more):+.2f}, 95 % {low:+.2f} to "
        f"{high:+.2f}"
    )
    print(f"{what}: {_range(old)} -> {_range(new)} {unit}, {summary}", flush=True)


def _range(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", type=Path, required=True, help="the folder of the other checkout"
    )
    parser.add_argument("--pairs", type=int, default=300, help="of --version and of --help")
    parser.add_argument("--execs", type=int, default=7, help="pairs of exec")
    parser.add_argument("--hosts", type=int, default=64)
    args = parser.parse_args()
    trees = (args.against.resolve(), REPOSITORY)

    for flag in ("--version", "--help") if args.pairs else ():
        before, after = (_starts(tree, flag) for tree in trees)
        compare(
            flag, pairs(before, after, args.pairs), lambda spent: 1000 * spent.cpu_s, "ms of CPU"
        )
    if args.execs:
        with open_bench_lab(args.hosts) as bench:
            before, after = (
                lambda tree=tree: bench.with_checkout(tree).tfdeploy("exec", "--", "true")
                for tree in trees
            )
            measured = pairs(before, after, args.execs)
        what = f"exec -- true, {args.hosts} hosts"
        compare(what, measured, lambda spent: spent.seconds, "s")
        compare(what, measured, lambda spent: spent.cpu_s, "s of CPU")


def _starts(tree: Path, flag: str) -> Callable[[], Spent]:
    env = {**os.environ, "PYTHONPATH": str(tree)}
    return lambda: spend([TFDEPLOY, flag], env=env, cwd=Path("/"))


if __name__ == "__main__":
    main()
