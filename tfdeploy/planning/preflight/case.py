"""Defines the input of a preflight rule: a host, its facts, and what is to be launched.

A preflight is a check of all hosts before a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tfdeploy.model.facts import HostFacts, PreflightFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import AskedLevel
from tfdeploy.model.job import Level as Protect
from tfdeploy.model.output.check import Level
from tfdeploy.model.plan import Plan
from tfdeploy.planning.program import servers
from tfdeploy.planning.source.imports import Import
from tfdeploy.text.nexts import root_command_on_host


class Problem(NamedTuple):
    """One problem of a host.

    `fix`: what the operator can do: a command to type on the control machine, or a text to write
    into a file.
    """

    detail: str
    fix: str
    level: Level = "warning"


@dataclass(frozen=True)
class Needs:
    """What is to be launched, and what it needs.

    If all fields have their default values, nothing is known about the launch.

    `bytes` and `files`: total size and number of the files of code and data to send. `tensorflow`:
    whether the program imports TensorFlow. `imports`: other imported modules that are not part of
    the sent code. `own_modules`: the names of modules and folders that are part of the sent code.
    `unsent_imports`: {module of `imports` that is in the code folder but is not sent: the pattern
    that leaves it out, or ""}. `hidden`: {module of Python or of a package: the file of the code
    that is imported in its place}.

    `requirements`: the requirements file that the job's `setup` names. `requirements_found`: a
    requirements file in the code that the job does not name. `plan`: None if no plan could be made.
    `protect`: the level of protection that the job asks for. `hosts`: the hosts that the mode uses;
    None stands for all hosts.
    """

    bytes: int = 0
    files: int = 0
    sync: bool = True
    tensorflow: bool = False
    imports: tuple[Import, ...] = ()
    own_modules: Collection[str] = ()
    unsent_imports: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    requirements: str | None = None
    requirements_found: str | None = None
    plan: Plan | None = None
    protect: AskedLevel = "auto"
    hosts: tuple[str, ...] | None = None

    def task_count_or_one(self, host: str) -> int:
        """Return the number of tasks that the plan places on the host, but at least 1.

        If there is no plan, return 1.
        """
        tasks = self.plan.tasks if self.plan else ()
        return max(1, sum(task.host == host for task in tasks))

    def runs_user_program(self, host: str) -> bool:
        """Return whether the user's program runs on the host.

        Returns False if the host has no task, or if its tasks only run servers of tfdeploy.
        """
        if self.plan is None:
            return self.uses(host)
        return any(
            task.host == host and servers.MODULE not in task.argv for task in self.plan.tasks
        )

    def uses(self, host: str) -> bool:
        """Return whether the job's training mode uses the host."""
        return self.hosts is None or host in self.hosts


@dataclass(frozen=True)
class HostCase:
    """One host as the rules of the preflight see it, and how it compares with the other hosts.

    `host_count`: number of all hosts. `usual_versions`: {version field of HostFacts: the version
    that most hosts have, or None if no host has one}. `ahead_s`: seconds by which this host's clock
    is ahead of the clocks of most hosts. `noise`: what the login shell printed. `hindered`: {level
    of `protect`: why this host cannot provide it}. `usual_protect`: the strongest level that at
    least half of the hosts can provide. `python_by_module`: {imported module: the Python
    interpreter of most hosts that have this module, or None if no host has it}.
    """

    host: Host
    facts: HostFacts
    preflight: PreflightFacts
    needs: Needs
    host_count: int
    usual_versions: Mapping[str, str | None]
    ahead_s: float
    noise: str
    hindered: Mapping[Protect, str]
    usual_protect: Protect
    python_by_module: Mapping[str, str | None] = field(default_factory=dict)

    def command(self, *words: str, root: bool = False) -> str:
        """Return what to type on the control machine to run `words` on this host.

        `root`: True if the command needs root.
        """
        return root_command_on_host(self.host.name, self.facts.user if root else "root", *words)

    def pip_install(self, *packages: str) -> str:
        """Return what to type to install packages for the Python of this host."""
        return self.command(self.facts.python or "python3", "-m", "pip", "install", *packages)


Rule = Callable[[HostCase], Iterator[Problem]]
