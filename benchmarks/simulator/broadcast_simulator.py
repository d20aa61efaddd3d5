r"""Simulate a broadcast (hosts pass data on to each other) with tfdeploy's own planner and pieces.

    python benchmarks/simulator/broadcast_simulator.py \
        --hosts 100 1000 --bytes 10G --rate 1000 --slow 10 --json

A case with few pieces is simulated piece by piece (`simulated_pieces`), a larger case as a flow of
bytes (`simulated_flow`). `--by` selects one of the two for all cases. `--standard` runs the cases
that benchmarks/README.md shows, and `--plot FILE` draws the results. Rates on the command line are
in Mbit/s, times are in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulated_flow import Flow
from simulated_hosts import Control, Outcome, Scenario
from simulated_pieces import Pieces
from simulated_plot import plot

from tfdeploy.planning.broadcast.first_plan import PIECE_BYTES

# A case with more than this many (hosts * pieces) is simulated as a flow instead of piece by piece.
MOST_PIECES = 1_000_000
# A simulation is given up after LONGEST times the time that the link of the slowest host needs to
# carry all bytes.
LONGEST = 4.0
STANDARD_HOSTS = (10, 30, 100, 300, 1000, 3000, 10_000)
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 10**9}


def main() -> int:
    asked = arguments().parse_args()
    rows = list(rows_of(asked))
    if asked.plot:
        asked.plot.write_text(plot(rows), encoding="utf-8")
    return 0 if all(row["lacking"] == 0 for row in rows) else 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[100])
    parser.add_argument("--bytes", type=size, default=10**10, help="such as 64M or 10G")
    parser.add_argument("--rate", type=float, default=1000.0, help="of each link")
    parser.add_argument("--sites", type=int, default=1)
    parser.add_argument("--line", type=float, help="from one site to another")
    for fate, says in FATES.items():
        parser.add_argument(
            f"--{fate.replace('_', '-')}", type=int, default=0, metavar="HOSTS", help=says
        )
    parser.add_argument("--slower", type=float, default=10.0, help="so many times")
    parser.add_argument("--process", type=float, default=2.0, help="per piece and host")
    parser.add_argument("--connect", type=float, default=50.0)
    parser.add_argument("--rtt", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by", choices=("pieces", "flow", "auto"), default="auto")
    parser.add_argument(
        "--standard",
        action="store_true",
        help="the cases of benchmarks/README.md, for each of --hosts",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="plot these lines of an earlier --json instead"
    )
    parser.add_argument("--json", action="store_true", help="one object a line")
    return parser


FATES = {
    "slow": "that receive more slowly",
    "slow_out": "that send more slowly",
    "deaths": "that die at some moment of the transfer",
    "stops": "that stand still at some moment and stay connected",
    "closed": "that nobody reaches",
}


def rows_of(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if asked.rows:
        yield from map(json.loads, asked.rows.read_text(encoding="utf-8").splitlines())
        return
    for hosts in asked.hosts:
        plain = Scenario(
            hosts=hosts,
            total_bytes=asked.bytes,
            rate=bytes_a_second(asked.rate),
            process_s=asked.process / 1000,
            connect_s=asked.connect / 1000,
            rtt_s=asked.rtt / 1000,
        )
        for case, scenario in (
            standard(plain, asked.seed) if asked.standard else {"asked": as_asked(plain, asked)}
        ).items():
            row = simulated(case, scenario, asked.by)
            print(json.dumps(row) if asked.json else line(row), flush=True)
            yield row


def as_asked(plain: Scenario, asked: argparse.Namespace) -> Scenario:
    line = bytes_a_second(asked.line) if asked.line else None
    with_sites = replace(plain, sites=asked.sites, line=line)
    return befallen(
        with_sites, {fate: getattr(asked, fate) for fate in FATES}, asked.slower, asked.seed
    )


def standard(plain: Scenario, seed: int) -> dict[str, Scenario]:
    """Return the standard cases.

    In a case with a fault, 1 % of the hosts (at least one host) are slow, die or hang.
    """
    some = max(1, plain.hosts // 100)
    return {
        "nothing wrong": plain,
        "1 % die": befallen(plain, {"deaths": some}, 10.0, seed),
        "1 % are stopped": befallen(plain, {"stops": some}, 10.0, seed),
        "1 % receive at a tenth": befallen(plain, {"slow": some}, 10.0, seed),
        "two sites, a quarter between": replace(plain, sites=2, line=plain.rate / 4),
    }


def befallen(scenario: Scenario, counts: dict[str, int], slower: float, seed: int) -> Scenario:
    """Return the scenario with faults. `counts` is {fault: the number of hosts that it affects}.
    These hosts are drawn at random; the seed makes the draw repeatable."""
    chance = random.Random(seed)
    hosts = chance.sample(range(scenario.hosts), sum(counts.values()))
    chosen = {fate: [hosts.pop() for _ in range(count)] for fate, count in counts.items()}
    return replace(
        scenario,
        slow_in=dict.fromkeys(chosen.get("slow", ()), 1 / slower),
        slow_out=dict.fromkeys(chosen.get("slow_out", ()), 1 / slower),
        deaths={host: chance.uniform(0, scenario.wire_s) for host in chosen.get("deaths", ())},
        stops={host: chance.uniform(0, scenario.wire_s) for host in chosen.get("stops", ())},
        closed=frozenset(chosen.get("closed", ())),
    )


def simulated(case: str, scenario: Scenario, by: str = "auto") -> dict[str, Any]:
    begun = time.process_time()
    slowest = min(
        [1.0, *scenario.slow_in.values(), (scenario.line or scenario.rate) / scenario.rate]
    )
    engine = chosen(scenario, by)
    outcome = Control(scenario, engine).run(LONGEST * scenario.wire_s / slowest + 60)
    return {
        "case": case,
        "hosts": scenario.hosts,
        "bytes": scenario.total_bytes,
        "mbit_s": scenario.rate * 8e-6,
        "by": engine.__name__.lower(),
        "stripes": outcome.stripes,
        "wire_s": round(scenario.wire_s, 3),
        **times(scenario, outcome),
        "lacking": outcome.lacking,
        "moves": outcome.moves,
        "crossed": round(outcome.crossed_bytes / scenario.total_bytes, 4),
        "from_here": round(outcome.from_here_bytes / scenario.total_bytes, 4),
        "cpu_s": round(time.process_time() - begun, 1),
    }


def chosen(scenario: Scenario, by: str) -> type[Pieces] | type[Flow]:
    pieces = scenario.hosts * scenario.total_bytes / PIECE_BYTES
    return Pieces if by == "pieces" or (by == "auto" and pieces <= MOST_PIECES) else Flow


def times(scenario: Scenario, outcome: Outcome) -> dict[str, float | None]:
    """Return the times at which the hosts were complete.

    `seconds` is the time of the last host, and `times` is the same as a multiple of `wire_s`, the
    time that one link needs for all bytes. Also as multiples of `wire_s`, `quick_times` is the time
    of the last host that is not slow, and `median_times` the median of the hosts that are not slow.
    """
    quick = sorted(at for host, at in outcome.completed.items() if host not in scenario.slow_in)
    last = max(outcome.completed.values(), default=None)
    return {
        "seconds": None if last is None else round(last, 3),
        "times": None if last is None else round(last / scenario.wire_s, 4),
        "quick_times": round(quick[-1] / scenario.wire_s, 4) if quick else None,
        "median_times": round(quick[len(quick) // 2] / scenario.wire_s, 4) if quick else None,
    }


def line(row: dict[str, Any]) -> str:
    shown = [row["times"], row["quick_times"], row["median_times"]]
    times = " / ".join("-" if each is None else f"{each:.3f}" for each in shown)
    notes = [
        f"{row['stripes']} stripe{'s' * (row['stripes'] > 1)}",
        f"{row['moves']} moves",
        f"{row['from_here']:.2f} x from here",
    ]
    notes += [f"{row['crossed']:.2f} x between sites"] if row["crossed"] else []
    notes += [f"{row['lacking']} NOT COMPLETE"] if row["lacking"] else []
    return (
        f"{row['hosts']:6} hosts  {row['case']:28} {times} x the wire ({row['wire_s']:g} s): "
        f"{', '.join(notes)} [{row['by']}]"
    )


def size(text: str) -> int:
    number, unit = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 1)
    return int(float(number) * unit)


def bytes_a_second(mbit_s: float) -> float:
    return mbit_s * 1e6 / 8


if __name__ == "__main__":
    sys.exit(main())
