"""What most verbs begin with: the inventory, the job, the fleet and the store, out of args."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import UsageError
from tfdeploy.model.inventory import NAME, Host, Inventory
from tfdeploy.store.places import state_root
from tfdeploy.store.runs import RunStore

if TYPE_CHECKING:
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan
    from tfdeploy.transport.fleet import SshFleet
    from tfdeploy.transport.seam import Fleet


def state_folder() -> Path:
    return state_root(os.environ)


def store() -> RunStore:
    return RunStore(state_folder())


def load_job(args: argparse.Namespace) -> Job:
    """The job file's job. Raises ConfigError, also when there is none."""
    from tfdeploy import config

    return config.load_job(config.find_job(args.job, Path.cwd()), environ=os.environ)


def load_inventory(args: argparse.Namespace, job: Job | None) -> Inventory:
    """The inventory that the contract's order finds, cut down by --limit and --exclude."""
    from tfdeploy import config
    from tfdeploy.model.selection import select

    path = config.find_inventory(args.inventory, os.environ, job.inventory if job else None, Path.cwd())
    return select(config.load_inventory(path), args.limit, args.exclude)


def inventory_here(args: argparse.Namespace) -> Inventory:
    """The inventory, found with the help of the job file where there is one."""
    here = args.job is not None or Path("tfdeploy.yaml").is_file()
    return load_inventory(args, load_job(args) if here else None)


def run_meant(args: argparse.Namespace, fleet: Fleet, *, live_first: bool = False) -> tuple[Plan, int]:
    """(the plan of the run that is meant, the exit code of what is wrong with hosts' own plans of it, which is said here)."""
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.find import find_run
    from tfdeploy.ui.sanitise import clean

    hosts, job = _hosts_and_job(args)
    refused: dict[str, TfdeployError] = {}
    name, metrics = (job.name, job.metrics) if job else (None, {})
    plan = find_run(fleet, hosts, store(), wanted=args.wanted, job=name, live_first=live_first, metrics=metrics, refused=refused)
    for host, error in refused.items():
        print(f"[{host}] {clean(error.what)}" + (f"\n  next: {clean(error.next)}" if error.next else ""), file=sys.stderr)
    return plan, worst(error.exit_code for error in refused.values())


def where_to_look(args: argparse.Namespace) -> tuple[tuple[Host, ...], str | None]:
    """(the hosts to ask for runs, the job's name or None)."""
    hosts, job = _hosts_and_job(args)
    return hosts, job.name if job else None


def _hosts_and_job(args: argparse.Namespace) -> tuple[tuple[Host, ...], Job | None]:
    """To read or stop a run, neither file needs to be in order: a broken job file is said and passed over, and a run that the
    store knows has its own hosts."""
    here = args.job is not None or Path("tfdeploy.yaml").is_file()
    job, broken = None, None
    try:
        job = load_job(args) if here else None
    except UsageError as error:
        broken = error
    try:
        hosts = load_inventory(args, job).hosts
    except UsageError:
        if not any(run.startswith(args.wanted or "\0") for run in store().runs()):
            if broken is not None:
                raise broken from None
            raise
        hosts = ()
    if broken is not None:
        print(f"the job file is passed over: {broken.what} ({broken.where})", file=sys.stderr)
    return hosts, job


@contextmanager
def open_fleet(args: argparse.Namespace) -> Iterator[SshFleet]:
    from tfdeploy.transport.fleet import SshFleet

    fleet = SshFleet(parallel=int(args.parallel))
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

    def as_json(self, now: float) -> dict[str, Any]:
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


def names_of(hosts: tuple[Host, ...]) -> str:
    return ", ".join(host.name for host in hosts[:6]) + (f" and {len(hosts) - 6} more" if len(hosts) > 6 else "")
