"""Measure, by the kernel's counters, how many bytes a command sent and how much CPU was used.

Figures that tfdeploy or another tool reports about itself are not used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.lab import Lab

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.lab.host_commands import LinkTraffic, read_traffic_by_link

IDLE = (3, 4)  # positions of idle and iowait in the "cpu" line of /proc/stat


@dataclass
class Meter:
    """The traffic and the CPU use during a command. The fields are set when the command has
    ended."""

    busy: float = 0.0  # the fraction of all cores' time in which the cores were not idle
    # {link: bytes}. A link has the name of what it connects: a host, operator, router1 or router2.
    to_bytes: dict[str, int] = field(default_factory=dict)
    from_bytes: dict[str, int] = field(default_factory=dict)


@contextmanager
def metered(lab: Lab) -> Iterator[Meter]:
    meter = Meter()
    idle, ticks, carried = *_cpu(), read_traffic_by_link(lab)
    yield meter
    idle, ticks = (now - before for now, before in zip(_cpu(), (idle, ticks), strict=True))
    meter.busy = 1 - idle / max(ticks, 1)
    for name, now in read_traffic_by_link(lab).items():
        before = carried.get(name, LinkTraffic(to_bytes=0, from_bytes=0))
        meter.to_bytes[name] = now["to_bytes"] - before["to_bytes"]
        meter.from_bytes[name] = now["from_bytes"] - before["from_bytes"]


def _cpu() -> tuple[int, int]:
    """Return (idle ticks, all ticks) since boot."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(numbers[at] for at in IDLE), sum(numbers)
