"""What a rule of the preflight sees: one host with its facts, and what is to run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tfdeploy.model.facts import HostFacts, Preflight
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.check import Level
from tfdeploy.model.plan import Plan
from tfdeploy.model.protect import AskedLevel
from tfdeploy.model.protect import Level as Protect
from tfdeploy.model.text.nexts import on_host
from tfdeploy.model.text.units import version_numbers
from tfdeploy.planning.program import servers
from tfdeploy.planning.source.imports import Import


class Problem(NamedTuple):
    """`fix`: a line that can be typed on the operator's machine, or what to write into which
    file."""

    level: Level
    detail: str
    fix: str


@dataclass(frozen=True)
class Needs:
    """What is to be launched. The defaults: nothing is known of it.

    `bytes` and `files`: of code and data that are sent; `tensorflow`: whether the program imports
    it. `imports`: the other modules that it imports from outside the code; `left_out`: those of
    them that lie in the code's folder and are not sent. `requirements`: the file of the job's
    environment; `requirements_found`: one in the code that the job does not name. `plan`: where one
    could be made; `protect`: who may reach its ports; `hosts`: those that its mode uses, None: all.
    """

    bytes: int = 0
    files: int = 0
    sync: bool = True
    tensorflow: bool = False
    imports: tuple[Import, ...] = ()
    left_out: Collection[str] = ()
    requirements: str | None = None
    requirements_found: str | None = None
    plan: Plan | None = None
    protect: AskedLevel = "auto"
    hosts: tuple[str, ...] | None = None

    def tasks_on(self, host: str) -> int:
        """At least 1: some task will run there."""
        return max(1, sum(task.host == host for task in self.plan.tasks)) if self.plan else 1

    def runs_program(self, host: str) -> bool:
        """False on a host whose tasks are all servers that tfdeploy starts."""
        if self.plan is None:
            return self.uses(host)
        return any(
            task.host == host and servers.MODULE not in task.argv for task in self.plan.tasks
        )

    def uses(self, host: str) -> bool:
        return self.hosts is None or host in self.hosts


@dataclass(frozen=True)
class Case:
    """`usual`: field of HostFacts -> the version that most hosts have, where several have one.
    `ahead_s`: this host's clock, seconds before that of most hosts. `noise`: what its login shell
    printed. `hindered`: level of `protect` -> why this host cannot do it; `usual_protect`: the
    strongest that half of the hosts can do."""

    host: Host
    facts: HostFacts
    preflight: Preflight
    needs: Needs
    hosts: int
    usual: Mapping[str, str | None]
    ahead_s: float
    noise: str
    hindered: Mapping[Protect, str]
    usual_protect: Protect

    def command(self, *words: str, root: bool = False) -> str:
        """Return the line that runs the words on this host. `root`: they need root's rights.

        The line is typed on the operator's machine, and some words are the host's: they are quoted.
        """
        sudo = ("sudo",) if root and self.facts.user != "root" else ()
        return on_host(self.host.name, *sudo, *words)


Rule = Callable[[Case], Iterator[Problem]]


def usual_of(versions: list[str | None]) -> str | None:
    """The version that most have; of equally many the newest-looking one. None where none has
    any."""
    counts = Counter(version for version in versions if version)
    return (
        max(counts, key=lambda version: (counts[version], version_numbers(version)))
        if counts
        else None
    )
