"""Define what to train: the job file with its defaults filled in, and who may reach the ports of
the run.

The job file requests a level of protection for these ports, and the plan has the level that is
used. `peers`: the kernel admits only connections from addresses of the run's hosts. `firewall`: in
addition, nftables rules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, get_args

from tfdeploy.agent import metric_patterns
from tfdeploy.model.choices import MODES as MODES
from tfdeploy.model.choices import OTHERS as OTHERS
from tfdeploy.model.choices import SPLITS as SPLITS
from tfdeploy.model.choices import STALL_ACTIONS as STALL_ACTIONS
from tfdeploy.model.choices import VIAS as VIAS
from tfdeploy.model.choices import Compat, Flags, Split, Written
from tfdeploy.model.choices import Mode as Mode
from tfdeploy.model.choices import Others as Others
from tfdeploy.model.choices import StallAction as StallAction
from tfdeploy.model.choices import Via as Via
from tfdeploy.text.names import fold_names

Level = Literal["firewall", "peers", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the strongest level first
AskedLevel = Literal["auto", "firewall", "peers", "none"]
ASKED_LEVELS: tuple[AskedLevel, ...] = get_args(AskedLevel)


@dataclass(frozen=True)
class Protection:
    """The protection of one run. `used`: the weakest level of its hosts. `why`: why no stronger
    level is used. `hosts`: {host: its level}. `hosts` is empty if an earlier version launched the
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


WHEELS = "setup-wheels"  # the name of the data set in which `setup` sends wheels


@dataclass(frozen=True)
class RoleRule:
    """What the job says about a role: the number of its tasks, its name and its program. If a
    number is None, the mode decides."""

    count: int | None = None
    per_host: int | None = None
    gpus: int | None = None  # GPUs per task
    # the name that the program uses for the role, if it differs from tfdeploy's name
    called: str = ""
    command: tuple[str, ...] = ()  # the command of its tasks, if it differs from the job's


class Secret:
    """A value that no output may show. Only `reveal` returns its text, and only one place calls
    `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def is_in(self, text: str, min_chars: int) -> bool:
        """True if `text` contains the value. Always False for a value of less than `min_chars`
        characters."""
        return len(self._text) >= min_chars and self._text in text

    def encoded_forms(self, min_chars: int) -> tuple[bytes, ...]:
        """Return the byte strings by which a search finds the secret in files: the value without
        surrounding white space, and the forms of the value in a JSON string. Returns () for a value
        of less than `min_chars` characters."""
        text = self._text.strip()
        if len(text) < min_chars:
            return ()
        texts = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
        return tuple(dict.fromkeys(each.encode("utf-8", "surrogateescape") for each in texts))

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__


@dataclass(frozen=True)
class SecretSource:
    """Where the value of a secret is read on the operator's machine. Exactly one of `variable`,
    `file` and `command` is set."""

    variable: str | None = None  # an environment variable
    file: str | None = None
    command: tuple[str, ...] = ()
    where: str = ""  # where the job file defines the secret, as file:line:key


@dataclass(frozen=True)
class DataSource:
    """The source of a data set, and how the data set is sent to the hosts. `path`: an absolute path
    on the host `from_host`, or on this machine if `from_host` is None.

    If `split` is "worker", each worker gets a part of the data set, and `others` says what the
    tasks of other roles get.
    """

    path: str
    from_host: str | None = None
    split: Split = "none"
    others: Others = "none"
    via: Via = "auto"


@dataclass(frozen=True)
class Job:
    """A job. Paths are absolute. Durations in seconds."""

    name: str
    mode: Mode | None  # None: the job file names no mode, so --mode must name one
    command: tuple[str, ...]
    code: str
    inventory: str | None = None
    data: dict[str, DataSource] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    # the command's working directory, relative to the code folder; "" is the code folder itself
    cwd: str = ""
    # If `flags` is None, the value "auto" is used in the modes async and sync. In the other modes,
    # only flags whose meaning is certain are appended.
    flags: Flags | None = None
    roles: dict[str, RoleRule] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    # when to adapt a program of TensorFlow 1 to TensorFlow 2: "auto" (if it needs this), "v1"
    # (always) or "none" (never)
    compat: Compat = "auto"
    # which cluster is used if the program's code has a ClusterSpec: "planned" (the plan's cluster)
    # or "program" (the code's cluster)
    cluster: Written = "planned"
    setup_requirements: str | None = None
    setup_wheels: str | None = None
    secrets: tuple[str, ...] = ()  # names of environment variables that are secret
    # {name of a secret: its source}. A secret without an entry in this dict is read from the
    # caller's environment.
    secret_sources: dict[str, SecretSource] = field(default_factory=dict)
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    finish_grace_s: float = 60.0
    restart_max: int = 3
    restart_backoff_s: tuple[float, float] = (1.0, 60.0)
    # For this many seconds, the run waits for a host on which the run's minder (the process that
    # supervises the tasks there) is not alive.
    restart_wait_s: float = 3600.0
    # If True, a task that fails twice with the same error before its first step is not restarted.
    # The value is False if the job file sets restart.max: then the user wants that number of
    # restarts.
    same_error_ends: bool = True
    stall_after_s: float = 300.0  # seconds; 0: stalls are not detected
    stall_action: StallAction = "report"
    stop_grace_s: float = 20.0
    logs_max_bytes: int = 1 << 30
    protect: AskedLevel = "auto"  # who may reach the ports of the run
    # {name of a metric (step, loss, ...): regular expression with one group}
    metrics: dict[str, str] = field(default_factory=dict)
    source: str = ""
    folder: str = field(default="", compare=False)  # the folder of the job file
    # {key: where the job file sets it, as file:line:key}, for `command`, `cwd`, `keep`, and
    # `env.NAME`, `data.NAME`, `metrics.NAME` and `roles.NAME`.
    places: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def command_place(self) -> str:
        """Return where the command is written, for errors: "command" if that is not known."""
        return self.places.get("command") or self.source or "command"


DEFAULT_METRICS = {"step": metric_patterns.STEP, "loss": metric_patterns.LOSS}
# Prefix of the variables that tell a task which part of a data set it has.
PART_VARIABLES = "TFDEPLOY_DATA_"


def part_number_variable(name: str) -> str:
    """Return TFDEPLOY_DATA_<NAME>_PART, the name of the variable that holds the number of the
    task's part, counted from 0.

    <NAME> is the data set's name in capitals. Characters that are neither letters nor digits become
    `_`.
    """
    capitals = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).upper()
    return f"{PART_VARIABLES}{capitals}_PART"


def part_count_variable(name: str) -> str:
    """Return TFDEPLOY_DATA_<NAME>_PARTS, the name of the variable that holds the number of
    parts."""
    return f"{part_number_variable(name)}S"
