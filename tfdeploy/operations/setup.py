"""Make the job's Python environment on every host, and compare the hosts (`tfdeploy setup`).

A host that has the environment already (same digest) gets only one call. The other hosts make it at
the same time. Hosts with the same Python version get the same package versions. So a host that is
added later does not get newer packages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdeploy.errors import BadAnswer, TfdeployError, UsageError
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.answers.programs import ENV_MAKE, ENV_STATE, EnvState
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import WHEELS, Job
from tfdeploy.model.text.folding import fold_names, group
from tfdeploy.model.text.units import count
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.data_sets import send_data_sets
from tfdeploy.operations.broadcast.delivery import DataSent, Outcome
from tfdeploy.operations.emit import emit_host, emit_note
from tfdeploy.operations.lock import HostLocks, locked_where_possible
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.sending.withheld_files import withheld_files
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import Recipe, read_recipe
from tfdeploy.tree.withheld_files import NONE, WithheldFiles

MAKE_S = 12 * 3600.0  # time limit: pip may compile for hours, or wait for another setup
MAX_OUTPUT_BYTES = 64 << 20  # limit for the output of uv or pip on one host
ITEM_BYTES = 100  # bytes that are counted for each line of output in addition to its content


@dataclass(frozen=True)
class Environment:
    """The environment of one host.

    `made` is True if this setup has made the environment. `seconds` and `bytes_sent` are the time
    and the data that this setup needed on the host.
    """

    folder: str
    python_version: str
    by: str  # the installer that made it: uv or pip
    packages: dict[str, str] = field(default_factory=dict)
    made: bool = False
    seconds: float = 0.0
    bytes_sent: int = 0


def recipe_of(job: Job, cache: Path | None, withhold: WithheldFiles = NONE) -> Recipe | None:
    """Return the recipe (files and digest) of the job's environment; None if the job has none.

    `withhold` are files that must not be sent. Raises ConfigError, Refused.
    """
    if job.setup_requirements is None:
        return None
    wheels = Path(job.setup_wheels) if job.setup_wheels else None
    return read_recipe(
        Path(job.setup_requirements), wheels, cache, where=f"{job.source}: setup", withhold=withhold
    )


def setup_job(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    holder: LockHolder,
    cache: Path | None,
    emit: Emit,
    known: tuple[Host, ...] = (),
) -> dict[str, Environment | TfdeployError]:
    """Make the job's environment on all hosts, and return every host's outcome.

    `known` are all hosts of the inventory. Their private keys must not be sent. Raises UsageError
    for a job without `setup`.
    """
    recipe = recipe_of(job, cache, withheld_files(job, known or hosts))
    if recipe is None:
        raise UsageError(
            "the job asks for no environment",
            where=job.source or None,
            next="write `setup: {requirements: requirements.txt}` in the job file",
        )
    setup = _Setup(fleet, job, recipe, emit)
    results = fleet.each(hosts, setup.find)
    outcomes = {host: each for host, each in results.items() if each is not None}
    wanted = tuple(host for host in hosts if host.name not in outcomes)
    if wanted:
        pins = common_versions(split_outcomes(outcomes)[0].values())
        with locked_where_possible(fleet, wanted, job.name, "setup", holder, emit) as (
            lock,
            failed,
        ):
            outcomes.update({**failed, **setup.make(lock, pins)})
    return {host.name: outcomes[host.name] for host in hosts}


@dataclass(frozen=True)
class _Setup:
    """Finds or makes one job's environment on hosts."""

    fleet: Fleet
    job: Job
    recipe: Recipe
    emit: Emit

    def find(self, session: Session) -> Environment | None:
        """Return the host's environment; None if it does not exist yet."""
        began = time.monotonic()
        state = self._state(session)
        return _environment(state, seconds=time.monotonic() - began) if state.ready else None

    def make(
        self, lock: HostLocks, pins: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Environment | TfdeployError]:
        """Make the environment on the locked hosts.

        `pins` is {Python version: {package: the version that the environment must have}}.
        """
        began = time.monotonic()
        sent, lost = split_outcomes(self._send_wheels(lock.hosts))

        def make_on_host(session: Session) -> Environment:
            state = self._state(session)
            # Another setup may have made the environment while this setup waited for the lock.
            made = not state.ready
            if made:
                state = self._install(session, pins.get(state.python_version, {}))
            lock.release_host(session)
            seconds, name = time.monotonic() - began, session.host.name
            packages = count(len(state.packages), "package")
            emit_host(self.emit, name, "ready", f"{packages} by {state.by} in {seconds:.1f} s")
            return _environment(
                state, made=made, seconds=seconds, bytes_sent=sent[name].received_bytes
            )

        return {
            **lost,
            **self.fleet.each(
                tuple(host for host in lock.hosts if host.name in sent), make_on_host
            ),
        }

    def _args(self, host: Host) -> Args:
        return {"job": self.job.name, "python": host.python, "digest": self.recipe.digest}

    def _state(self, session: Session) -> EnvState:
        return session.agent().call(ENV_STATE, self._args(session.host))

    def _send_wheels(self, hosts: tuple[Host, ...]) -> dict[str, Outcome]:
        if self.recipe.wheels is None:
            return {host.name: DataSent() for host in hosts}
        return send_data_sets(
            self.fleet, hosts, self.job.name, {WHEELS: DataSet(self.recipe.wheels)}, self.emit
        )

    def _install(self, session: Session, pins: Mapping[str, str]) -> EnvState:
        """Make the environment on one host. Emit the output of uv or pip as `detail` notes."""
        host, recipe = session.host.name, self.recipe
        emit_note(self.emit, "making the environment", host=host)
        wheels = WHEELS if recipe.wheels else None
        args = {
            **self._args(session.host),
            "files": recipe.files,
            "main": recipe.main,
            "wheels": wheels,
            "pins": pins,
        }
        weight, give_up = 0, time.monotonic() + MAKE_S
        with closing(session.agent().stream(ENV_MAKE, args, silence_s=MAKE_S)) as stream:
            for item, _ in stream:
                weight += ITEM_BYTES + len(item.line or "")
                if weight > MAX_OUTPUT_BYTES or time.monotonic() > give_up:
                    raise BadAnswer(
                        "it sends output without end while it makes the environment", where=host
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
            raise BadAnswer("it reports that it made the environment, but has none", where=host)
        return stream.value


def _environment(state: EnvState, **more: Any) -> Environment:
    return Environment(state.folder, state.python_version, str(state.by), state.packages, **more)


def common_versions(environments: Iterable[Environment]) -> dict[str, dict[str, str]]:
    """Return {Python version: {package: version}} of packages with one version everywhere.

    A package is left out if its version differs between environments of one Python version.
    """
    versions: dict[str, dict[str, str]] = {}
    for each in environments:
        before = versions.get(each.python_version, each.packages)
        versions[each.python_version] = dict(before.items() & each.packages.items())
    return versions


# {package or "Python": {version: hosts}}; the version "" stands for hosts without the package
Differences = dict[str, dict[str, list[str]]]


def differences(environments: Mapping[str, Environment]) -> Differences:
    """Return what differs between hosts: first the version of Python, then packages by name."""
    versions_of = {
        host: {"Python": each.python_version, **each.packages}
        for host, each in environments.items()
    }
    names = {name for versions in versions_of.values() for name in versions}
    differing: Differences = {}
    for name in sorted(names, key=lambda name: (name != "Python", name)):
        versions = group((has.get(name, ""), host) for host, has in versions_of.items())
        if len(versions) > 1:
            differing[name] = versions
    return differing


def describe_difference(package: str, versions: Mapping[str, list[str]]) -> str:
    return f"{package}: " + ", ".join(
        f"{version or 'none'} on {fold_names(on)}" for version, on in versions.items()
    )
