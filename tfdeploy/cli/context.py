"""What most verbs begin with: the inventory, the job, the fleet and the store that the command line selects."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.errors import Refused, UsageError
from tfdeploy.model.folding import fold_names
from tfdeploy.model.inventory import NAME, Host, Inventory
from tfdeploy.model.selection import select
from tfdeploy.store.places import check_state_root, state_root

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags, OfRun
    from tfdeploy.config import FoundFile
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.hosts import LockHolder
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan
    from tfdeploy.store.runs import RunStore
    from tfdeploy.transport.fleet import SshFleet
    from tfdeploy.transport.protocols import Fleet


def state_folder() -> Path:
    """The state folder. Raises Refused where another user of this machine can change what is in it."""
    root = state_root(os.environ)
    _check_state_root(root)
    return root


_check_state_root = lru_cache(maxsize=1)(check_state_root)


def store() -> RunStore:
    from tfdeploy.store.runs import RunStore

    return RunStore(state_folder())


def load_job(flags: CommonFlags) -> Job:
    """The job file's job. Raises ConfigError, also if there is no job file, and Refused: see refuse_files_of_others."""
    from tfdeploy import config

    return _load_job(flags, config.find_job(flags.job, Path.cwd()))


def job_here(flags: CommonFlags) -> Job | None:
    """The job of the job file, where there is one."""
    from tfdeploy import config

    found = config.find_job(flags.job, Path.cwd()) if flags.job is not None else config.find_own_job(Path.cwd())
    return _load_job(flags, found) if found else None


def _load_job(flags: CommonFlags, found: FoundFile) -> Job:
    from tfdeploy import config

    if not found.named and found.path.parent != Path.cwd():
        _say(flags, f"job: {os.path.relpath(found.path)}")
    refuse_files_of_others(found, f"-j {_quoted(found.path)}{_inventory_words(flags, found)}")
    return config.load_job(found.path, environ=os.environ)


def load_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """The inventory of `whole_inventory`, with the hosts that --limit and --exclude select."""
    return select(whole_inventory(flags, job), flags.limit, flags.exclude)


def whole_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """The inventory with all its hosts. Raises UsageError and Refused."""
    from tfdeploy import config

    return config.load_inventory(inventory_file(flags, job))


def inventory_file(flags: CommonFlags, job: Job | None) -> Path:
    """The inventory that config.find_inventory finds. Prints which one it is if the command line and folder do not show that.

    Raises ConfigError and Refused.
    """
    from tfdeploy import config

    job_file = config.find_job(flags.job, Path.cwd()) if job else None
    found = config.find_inventory(flags.inventory, os.environ, job.inventory if job else None, Path.cwd(), job_file)
    if found.unused is not None or not (found.named or found.path.parent.parent == Path.cwd()):
        _say(flags, f"inventory: {os.path.relpath(found.path)}{_unused(found)}")
    refuse_files_of_others(found, f"-i {_quoted(found.path)}")
    return found.path


def _unused(found: FoundFile) -> str:
    if found.unused is None:
        return ""
    unused = f"{os.path.relpath(found.unused)} is not used"
    return f" (TFDEPLOY_INVENTORY; the project's {unused})" if found.named else f" (beside the job file; {unused})"


def refuse_files_of_others(found: FoundFile, words: str) -> None:
    """Raises Refused if another user can change a file that was searched for; prints a warning if the file was named.

    `words`: the flags that name the file.
    """
    from tfdeploy.machine.ownership import find_exposure

    exposure = find_exposure(found.path)
    if exposure is None:
        return
    itself = Path(exposure.place) == found.path
    harm = "and decides what runs as you" if itself else f"so {found.path} may be replaced, and it decides what runs as you"
    if found.named:
        _warn_once(f"{exposure.what}, {harm}: {exposure.fix}")
        return
    remedy = f"{exposure.fix}; or, if you trust it, name it: {words}"
    raise Refused(f"{exposure.what}, {harm}", where=os.path.relpath(found.path), next=remedy)


def _inventory_words(flags: CommonFlags, job_file: FoundFile) -> str:
    """Return the -i that the next command needs too, if the inventory of this job file is exposed as well; else ""."""
    from tfdeploy import config
    from tfdeploy.machine.ownership import find_exposure

    if job_file.named or flags.inventory:
        return ""
    try:
        found = config.find_inventory(None, {}, None, Path.cwd(), job_file)
    except UsageError:
        return ""
    return f" -i {_quoted(found.path)}" if find_exposure(found.path) else ""


def _quoted(path: Path) -> str:
    return shlex.quote(os.path.relpath(path))


def _say(flags: CommonFlags, text: str) -> None:
    if not flags.quiet:
        _print_once(text)


def _warn_once(text: str) -> None:
    _print_once(f"warning: {text}")


@lru_cache(maxsize=64)
def _print_once(text: str) -> None:
    print(text, file=sys.stderr)


def inventory_here(flags: CommonFlags) -> Inventory:
    """The selected inventory; the job file names it where there is one."""
    return load_inventory(flags, job_here(flags))


def secret_paths_here(flags: CommonFlags) -> dict[str, dict[str, list[str]]]:
    """Return the `secret_paths` of the job here; {} if there is no job, or its files cannot be read."""
    from tfdeploy.operations.withheld_files import secret_paths

    try:
        job = job_here(flags)
        return secret_paths(job, whole_inventory(flags, job).hosts) if job is not None else {}
    except UsageError:
        return {}


@dataclass(frozen=True)
class LookupScope:
    """Where runs are looked for. `inventory`: the whole one; it has no hosts where it cannot be read. `job`: of the job file."""

    flags: CommonFlags
    inventory: Inventory
    job: Job | None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts to ask for runs."""
        return select(self.inventory, self.flags.limit, self.flags.exclude).hosts if self.inventory.hosts else ()

    @property
    def unasked(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.inventory.hosts if host not in self.hosts)

    def only(self, plan: Plan) -> frozenset[str] | None:
        """The hosts of the run that --limit and --exclude select; None: all. They can also name the run's own hosts and roles.
        Raises UsageError where they select none."""
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


class ChosenRun(NamedTuple):
    """The run that the verb is about, its selected hosts (None: all), and the worst exit code of hosts whose plan of it cannot
    be used. Those errors have been printed."""

    plan: Plan
    only: frozenset[str] | None
    exit_code: int


def chosen_run(flags: OfRun, fleet: Fleet, *, live_first: bool = False) -> ChosenRun:
    from tfdeploy.errors import worst
    from tfdeploy.operations.find_run import find_run

    scope = lookup_scope(flags, flags.wanted)
    refused: dict[str, TfdeployError] = {}
    warnings: list[str] = []
    name, metrics = (scope.job.name, scope.job.metrics) if scope.job else (None, {})
    # the store's plan has the run's own hosts, which the inventory may lack
    plan = store().plan(flags.wanted, name) if flags.wanted else None
    plan = plan or find_run(
        fleet,
        scope.hosts,
        store(),
        wanted=flags.wanted,
        job=name,
        live_first=live_first,
        metrics=metrics,
        refused=refused,
        warnings=warnings,
    )
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    show_errors(flags, refused)
    return ChosenRun(plan, scope.only(plan), worst(error.exit_code for error in refused.values()))


def lookup_scope(flags: CommonFlags, wanted: str | None = None) -> LookupScope:
    """To read or stop a run, neither file needs to be valid: a broken job file is ignored with a message, and the store knows
    the hosts of `wanted`. Raises UsageError where no hosts are known."""
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
    return LookupScope(flags, inventory, job)


def show_errors(flags: CommonFlags, errors: Mapping[str, TfdeployError], before: str = "") -> None:
    """Prints the errors of hosts, and what to type next. `before`: a prefix of each text."""
    from tfdeploy.ui.reports import show_next
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    for host, error in errors.items():
        print(f"[{host}] {before}{clean(error.what)}", file=sys.stderr)
    show_next(terminal_of(sys.stderr, flags.color), flags.nexts(errors))


def show_unasked(flags: CommonFlags, unasked: Iterable[str], about: str = "") -> None:
    """Names the hosts that --limit and --exclude left out: they are not verified. `about`: " for ..."."""
    names = tuple(unasked)
    if names and not flags.quiet:
        print(f"{fold_names(names)} {'was' if len(names) == 1 else 'were'} not asked{about} (--limit/--exclude)", file=sys.stderr)


def begin_dialling(hosts: Iterable[Host]) -> None:
    """Before the modules that connect are imported, which takes as long as some hosts take to answer."""
    from tfdeploy.transport.ssh import early

    early.begin(hosts)


def show_notice(host: str, text: str) -> None:
    """Says on stderr what a host is waited for, where no view of a verb shows it."""
    print(f"[{host}] {text}", file=sys.stderr, flush=True)


@contextmanager
def open_fleet(flags: CommonFlags) -> Iterator[SshFleet]:
    from tfdeploy.transport.fleet import SshFleet

    fleet = SshFleet(
        parallel=flags.parallel,
        operator=holder().words,
        bwlimit=flags.bwlimit,
        on_notice=show_notice,
    )
    try:
        yield fleet
    finally:
        fleet.close()


@dataclass(frozen=True)
class Holder:
    """The operator and machine, for locks and for `tfdeploy runs`."""

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


def consent_of(flags: CommonFlags) -> Callable[[str], bool]:
    """Return a function that asks the operator a question once. -y answers yes; without a terminal the answer is no."""

    @lru_cache(maxsize=64)
    def agree(question: str) -> bool:
        if flags.yes:
            return True
        if flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        from tfdeploy.ui.question import agrees

        return agrees(question)

    return agree
