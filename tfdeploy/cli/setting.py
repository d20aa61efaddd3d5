"""What most verbs begin with: the inventory, the job, the fleet and the store, out of what was typed."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.errors import UsageError
from tfdeploy.model.folding import fold_names
from tfdeploy.model.inventory import NAME, Host, Inventory
from tfdeploy.model.selection import select
from tfdeploy.store.places import state_root
from tfdeploy.store.runs import RunStore

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags, OfRun
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.hosts import LockHolder
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan
    from tfdeploy.transport.fleet import SshFleet
    from tfdeploy.transport.protocols import Fleet


def state_folder() -> Path:
    return state_root(os.environ)


def store() -> RunStore:
    return RunStore(state_folder())


def load_job(flags: CommonFlags) -> Job:
    """The job file's job. Raises ConfigError, also when there is none."""
    from tfdeploy import config

    return config.load_job(config.find_job(flags.job, Path.cwd()), environ=os.environ)


def load_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """The inventory that the contract's order finds, cut down by --limit and --exclude."""
    return select(whole_inventory(flags, job), flags.limit, flags.exclude)


def whole_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    from tfdeploy import config

    path = config.find_inventory(flags.inventory, os.environ, job.inventory if job else None, Path.cwd())
    _warn_once(config.mistrust(path, os.getuid()))
    return config.load_inventory(path)


@lru_cache(maxsize=64)
def _warn_once(text: str | None) -> None:
    if text is not None:
        print(f"warning: {text}", file=sys.stderr)


def job_here(flags: CommonFlags) -> Job | None:
    """The job of the job file, where there is one."""
    return load_job(flags) if flags.job is not None or Path("tfdeploy.yaml").is_file() else None


def inventory_here(flags: CommonFlags) -> Inventory:
    """The inventory, found with the help of the job file where there is one."""
    return load_inventory(flags, job_here(flags))


@dataclass(frozen=True)
class Place:
    """Where runs are looked for. `inventory` is whole, and has no hosts where it cannot be read; `job`: of the job file."""

    flags: CommonFlags
    inventory: Inventory
    job: Job | None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Those to ask for runs."""
        return select(self.inventory, self.flags.limit, self.flags.exclude).hosts if self.inventory.hosts else ()

    @property
    def unasked(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.inventory.hosts if host not in self.hosts)

    def only(self, plan: Plan) -> frozenset[str] | None:
        """The hosts of the run that are meant; None: all. The run's own hosts and roles can be named too.
        Raises UsageError where none of them is meant."""
        if not self.flags.bounded:
            return None
        chosen = select(_with_hosts_of(plan, self.inventory), self.flags.limit, self.flags.exclude)
        only = frozenset(host.name for host in chosen.hosts) & {host.host for host in plan.hosts}
        if not only:
            where = fold_names(host.host for host in plan.hosts)
            raise UsageError(f"no host of {plan.run} is meant", where="--limit/--exclude", next=f"it runs on {where}")
        return only


def _with_hosts_of(plan: Plan, inventory: Inventory) -> Inventory:
    known = {host.name for host in inventory.hosts}
    hosts = (*inventory.hosts, *(Host(host.host, host.address) for host in plan.hosts if host.host not in known))
    roles = {role: dict.fromkeys(names) for role, names in inventory.roles.items()}
    for task in plan.tasks:
        roles.setdefault(task.role, {})[task.host] = None
    return Inventory(hosts, {role: tuple(names) for role, names in roles.items()}, inventory.source)


class Meant(NamedTuple):
    """The run that is meant, those of its hosts that are (None: all), and the exit code of what is wrong with hosts' own plans
    of it, which has been said."""

    plan: Plan
    only: frozenset[str] | None
    exit_code: int


def run_meant(flags: OfRun, fleet: Fleet, *, live_first: bool = False) -> Meant:
    from tfdeploy.errors import worst
    from tfdeploy.operations.find_run import find_run

    place = where_to_look(flags, flags.wanted)
    refused: dict[str, TfdeployError] = {}
    name, metrics = (place.job.name, place.job.metrics) if place.job else (None, {})
    plan = store().plan(flags.wanted, name) if flags.wanted else None  # its hosts may be others than the inventory's
    plan = plan or find_run(
        fleet, place.hosts, store(), wanted=flags.wanted, job=name, live_first=live_first, metrics=metrics, refused=refused
    )
    say_errors(flags, refused)
    return Meant(plan, place.only(plan), worst(error.exit_code for error in refused.values()))


def where_to_look(flags: CommonFlags, wanted: str | None = None) -> Place:
    """To read or stop a run, neither file needs to be in order: a broken job file is said and passed over, and a run that the
    store knows has its own hosts. Raises UsageError where nothing says which hosts there are."""
    job, broken = None, None
    try:
        job = job_here(flags)
    except UsageError as error:
        broken = error
    try:
        inventory = whole_inventory(flags, job)
    except UsageError:
        if wanted is None or not any(run.startswith(wanted) for run in store().runs()):
            if broken is not None:
                raise broken from None
            raise
        inventory = Inventory(())
    if broken is not None:
        print(f"the job file is passed over: {broken.what} ({broken.where})", file=sys.stderr)
    return Place(flags, inventory, job)


def say_errors(flags: CommonFlags, errors: Mapping[str, TfdeployError], before: str = "") -> None:
    """What hosts said instead of an answer, and what to type next."""
    from tfdeploy.ui.reports import show_next
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    for host, error in errors.items():
        print(f"[{host}] {before}{clean(error.what)}", file=sys.stderr)
    show_next(terminal_of(sys.stderr, flags.color), flags.nexts(errors))


def say_unasked(flags: CommonFlags, unasked: Iterable[str], about: str = "") -> None:
    """What --limit and --exclude left out is not verified: a verdict names it. `about`: " for ..."."""
    names = tuple(unasked)
    if names and not flags.quiet:
        print(f"{fold_names(names)} {'was' if len(names) == 1 else 'were'} not asked{about} (--limit/--exclude)", file=sys.stderr)


@contextmanager
def open_fleet(flags: CommonFlags) -> Iterator[SshFleet]:
    from tfdeploy.transport.fleet import SshFleet

    fleet = SshFleet(parallel=flags.parallel)
    try:
        yield fleet
    finally:
        fleet.close()


@dataclass(frozen=True)
class Holder:
    """Who asks: for locks, and for `tfdeploy runs`."""

    user: str
    machine: str

    @property
    def words(self) -> str:
        return f"{self.user}@{self.machine}"

    def as_json(self, now: float) -> LockHolder:
        return {"user": self.user, "machine": self.machine, "pid": os.getpid(), "time": now}


def holder() -> Holder:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return Holder(user, socket.gethostname())


def new_run_id(job: str, now: float) -> str:
    """<job>-<UTC yyyymmdd-hhmmss>-<4 hex>."""
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{os.urandom(2).hex()}"


def checked_run_name(name: str) -> str:
    if not NAME.match(name):
        raise UsageError(
            f"{name!r} cannot name a run", where="--name", next="letters, digits, '.', '_' and '-', at most 63, no '-' first"
        )
    return name


def asking(flags: CommonFlags) -> Callable[[str], bool]:
    """Whether the operator agrees to what would happen: by -y, or asked on a terminal, once for each."""

    @lru_cache(maxsize=64)
    def agree(what: str) -> bool:
        if flags.yes:
            return True
        if flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        print(f"{what}. Go on? (yes/no) ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return agree
