"""Define the levels of protection of a run's ports: the level that a job requests, and the level
that a plan uses.

`peers`: the kernel admits only connections from addresses of the run's hosts. `firewall`: in
addition, nftables rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from tfdeploy.model.text.names import fold_names

Level = Literal["firewall", "peers", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the strongest level first
AskedLevel = Literal["auto", "firewall", "peers", "none"]
ASKED_LEVELS: tuple[AskedLevel, ...] = get_args(AskedLevel)


@dataclass(frozen=True)
class Protection:
    """The protection of one run. `used`: the weakest level of its hosts. `why`: why no stronger
    level is used. `hosts`: host -> its level. `hosts` is empty if an earlier version launched the
    run; then all hosts have the level `used`."""

    asked: AskedLevel = "none"
    used: Level = "none"
    why: str = "launched by a version that left ports open"
    hosts: dict[str, Level] = field(default_factory=dict)

    def level_of(self, host: str) -> Level:
        return self.hosts.get(host, self.used)

    def hosts_by_level(self) -> dict[Level, tuple[str, ...]]:
        """Return {level of protection: the hosts with this level}, the strongest level first. A
        level that no host has is left out."""
        hosts_by_level = {
            level: tuple(host for host, its in self.hosts.items() if its == level)
            for level in LEVELS
        }
        return {level: hosts for level, hosts in hosts_by_level.items() if hosts}

    @property
    def levels_text(self) -> str:
        """Return the levels as text such as 'firewall on n[1-3], peers on n4'."""
        return ", ".join(
            f"{level} on {fold_names(hosts)}" for level, hosts in self.hosts_by_level().items()
        )
