"""Make the job's Python environment on every host, and compare the hosts (`tfdeploy setup`).

If a host already has the environment (one with the same digest), nothing more is done there. The
other hosts make the environment in parallel. Hosts with the same Python version get the same
package versions, so a host that is added later does not get newer packages.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdeploy.errors import BadAnswer, Refused, UsageError
from tfdeploy.model.answers.hosts import ENV_MAKE, ENV_STATE, EnvState, LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, Hosts, hosts_except, hosts_named
from tfdeploy.model.job import WHEELS, Job
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.data_sets import send_data_sets
from tfdeploy.operations.broadcast.delivery import Outcome, ReceivedFiles
from tfdeploy.operations.emit import emit_host_state, emit_note
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.withheld_files import list_withheld_files
from tfdeploy.text.names import fold_names, group_by_key
from tfdeploy.text.typed import Args
from tfdeploy.text.units import format_count, list_first
from tfdeploy.transport.protocols import Fleet, Outcomes, Session
from tfdeploy.tree import EnvironmentRecipe, read_recipe
from tfdeploy.tree.wheel_tags import find_unfit_wheels
from tfdeploy.tree.withheld_files import NONE, WithheldFiles

MAKE_S = 12 * 3600.0  # time limit in seconds: pip may compile for hours, or wait for another setup
MAX_OUTPUT_BYTES = 64 << 20  # limit for the output of uv or pip on one host
# Each line of output counts as this many bytes more than its length, so that a host cannot send
# empty lines without end.
ITEM_BYTES = 100


@dataclass(frozen=True)
class Environment:
    """The environment of one host.

    `made` is True if this setup has made the environment. `seconds` is how long this setup took on
    the host, and `bytes_sent` is how much it sent to the host.
    """

    folder: str
    python_version: str
    by: str  # the installer that made the environment: uv or pip
    packages: dict[str, str] = field(default_factory=dict)
    made: bool = False
    seconds: float = 0.0
    bytes_sent: int = 0


def read_environment_recipe(
    job: Job, cache: Path | None, withheld_files: WithheldFiles = NONE
) -> EnvironmentRecipe | None:
    """Return the recipe (files and digest) of the job's environment; None if the job has none.

    `withheld_files` are files that must not be sent. Raises ConfigError and Refused.
    """
    if job.setup_requirements is None:
        return None
    wheels = Path(job.setup_wheels) if job.setup_wheels else None
    return read_recipe(
        Path(job.setup_requirements),
        wheels,
        cache,
        setting=f"{job.source}: setup",
        withheld_files=withheld_files,
    )


def setup_job(
    fleet: Fleet,
    hosts: Hosts,
    job: Job,
    holder: LockHolder,
    cache: Path | None,
    emit: Emit,
    inventory_hosts: Hosts = (),
) -> Outcomes[Environment]:
    """Make the job's environment on all hosts, and return every host's outcome.

    `inventory_hosts` are all hosts of the inventory: the private keys with which this machine logs
    in to them must not be sent. Raises UsageError for a job without `setup`.
    """
    recipe = read_environment_recipe(job, cache, list_withheld_files(job, inventory_hosts or hosts))
    if recipe is None:
        raise UsageError(
            "the job has no `setup`, so there is no environment to make",
            where=job.source or None,
            next="write `setup: {requirements: requirements.txt}` in the job file",
        )
    setup = _Setup(fleet, job, recipe, emit)
    results = fleet.each(hosts, setup.find_environment)
    outcomes = {host: each for host, each in results.items() if each is not None}
    without_environment = hosts_except(hosts, outcomes)
    if without_environment:
        pins = common_package_versions(split_outcomes(outcomes)[0].values())
        lock = HostLocks(fleet, without_environment, job.name, "setup", holder, emit)
        with lock.hold_where_possible() as failed:
            outcomes.update({**failed, **setup.make_environments(lock, pins)})
    return {host.name: outcomes[host.name] for host in hosts}


@dataclass(frozen=True)
class _Setup:
    """Finds or makes one job's environment on hosts."""

    fleet: Fleet
    job: Job
    recipe: EnvironmentRecipe
    emit: Emit

    def find_environment(self, session: Session) -> Environment | None:
        """Return the host's environment; None if it does not exist yet.

        Raises Refused if the folder of wheels has a required package, but not for the host's
        version of Python.
        """
        began = time.monotonic()
        state = self._read_env_state(session)
        if state.ready:
            return _to_environment(state, seconds=time.monotonic() - began)
        if unfit := find_unfit_wheels(self.recipe, state.python_version):
            wheels, main = shlex.quote(self.job.setup_wheels or ""), self.job.setup_requirements
            raise Refused(
                f"no wheel in {wheels} fits Python {state.python_version}: {list_first(unfit, 4)}",
                where=session.host.name,
                next=f"put wheels for this Python into {wheels}. To get them from a package index: "
                f"`pip download -r {shlex.quote(main or '')} -d {wheels} "
                f"--python-version {state.python_version} --only-binary :all:`",
            )
        return None

    def make_environments(
        self, lock: HostLocks, pins_by_python_version: Mapping[str, Mapping[str, str]]
    ) -> Outcomes[Environment]:
        """Make the environment on the locked hosts.

        `pins_by_python_version` is {Python version: {package: the version that the environment must
        have}}.
        """
        began = time.monotonic()
        sent, lost = split_outcomes(self._send_wheels(lock.hosts))

        def make_on_host(session: Session) -> Environment:
            state = self._read_env_state(session)
            # Ask again: another setup may have made the environment before this one got the lock.
            made = not state.ready
            if made:
                state = self._make_environment(
                    session, pins_by_python_version.get(state.python_version, {})
                )
            lock.release_host(session)
            seconds, name = time.monotonic() - began, session.host.name
            packages = format_count(len(state.packages), "package")
            emit_host_state(
                self.emit, name, "ready", f"{packages} from {state.by}, after {seconds:.1f} s"
            )
            return _to_environment(
                state, made=made, seconds=seconds, bytes_sent=sent[name].received_bytes
            )

        return {
            **lost,
            **self.fleet.each(hosts_named(lock.hosts, sent), make_on_host),
        }

    def _env_args(self, host: Host) -> Args:
        return {"job": self.job.name, "python": host.python, "digest": self.recipe.digest}

    def _read_env_state(self, session: Session) -> EnvState:
        return session.agent().call(ENV_STATE, self._env_args(session.host))

    def _send_wheels(self, hosts: Hosts) -> dict[str, Outcome]:
        if self.recipe.wheels is None:
            return {host.name: ReceivedFiles() for host in hosts}
        return send_data_sets(
            self.fleet, hosts, self.job.name, {WHEELS: DataSet(self.recipe.wheels)}, self.emit
        )

    def _make_environment(
        self, session: Session, version_by_package: Mapping[str, str]
    ) -> EnvState:
        """Make the environment on one host. Emit the output of uv or pip as `detail` notes."""
        host, recipe = session.host.name, self.recipe
        emit_note(
            self.emit,
            "making the environment: all packages are installed, which may take minutes (see -v)",
            host=host,
        )
        wheels = WHEELS if recipe.wheels else None
        args = {
            **self._env_args(session.host),
            "files": recipe.files,
            "main": recipe.main_file,
            "wheels": wheels,
            "pins": version_by_package,
        }
        weight, give_up = 0, time.monotonic() + MAKE_S
        with closing(session.agent().stream(ENV_MAKE, args, silence_s=MAKE_S)) as stream:
            for item, _ in stream:
                weight += ITEM_BYTES + len(item.line or "")
                if weight > MAX_OUTPUT_BYTES or time.monotonic() > give_up:
                    raise BadAnswer(
                        "the host sends output without end while it makes the environment",
                        where=host,
                    )
                if item.line is not None:
                    emit_note(self.emit, item.line, level="detail", host=host)
                elif item.waiting is not None:
                    emit_note(
                        self.emit,
                        "waiting for another setup that makes this environment",
                        host=host,
                    )
        if stream.value is None or not stream.value.ready:
            raise BadAnswer(
                "the host does not report that the environment is ready",
                where=host,
            )
        return stream.value


def _to_environment(state: EnvState, **more: Any) -> Environment:
    return Environment(state.folder, state.python_version, str(state.by), state.packages, **more)


def common_package_versions(environments: Iterable[Environment]) -> dict[str, dict[str, str]]:
    """Return {Python version: {package: version}} for the packages on which environments agree.

    Only environments with the same Python version are compared. A package is left out if they have
    different versions of it, or if one of them lacks it.
    """
    versions: dict[str, dict[str, str]] = {}
    for each in environments:
        before = versions.get(each.python_version, each.packages)
        versions[each.python_version] = dict(before.items() & each.packages.items())
    return versions


# {package or "Python": {version: hosts}}; the version "" stands for hosts without the package
Differences = dict[str, dict[str, list[str]]]


def find_version_differences(environment_by_host: Mapping[str, Environment]) -> Differences:
    """Return what differs between hosts: the Python version first, then the packages by name."""
    versions_of = {
        host: {"Python": each.python_version, **each.packages}
        for host, each in environment_by_host.items()
    }
    names = {name for versions in versions_of.values() for name in versions}
    differing: Differences = {}
    for name in sorted(names, key=lambda name: (name != "Python", name)):
        versions = group_by_key((has.get(name, ""), host) for host, has in versions_of.items())
        if len(versions) > 1:
            differing[name] = versions
    return differing


def describe_difference(package: str, hosts_by_version: Mapping[str, list[str]]) -> str:
    return f"{package}: " + ", ".join(
        f"{version or 'none'} on {fold_names(hosts)}" for version, hosts in hosts_by_version.items()
    )
