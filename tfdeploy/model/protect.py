"""Who may reach the ports of a run: what a job asks for, and what a plan uses. Values only.

`peers`: the kernel lets in connections from the addresses of the run's hosts alone. `firewall`: also a table of nftables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["firewall", "peers", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the strongest first
AskedLevel = Literal["auto", "firewall", "peers", "none"]
ASKED_LEVELS: tuple[AskedLevel, ...] = get_args(AskedLevel)


@dataclass(frozen=True)
class Protection:
    """Of one run. `why`: why `used` was chosen, in words."""

    asked: AskedLevel = "none"
    used: Level = "none"
    why: str = "launched by a version that left ports open"
