"""`tfdeploy setup`: the job's Python environment on every host, and how they differ.

A host that has the environment (by its digest) gets one call only. The others make it at the same time; versions on hosts
with the same Python are pinned, so that a host added later does not get newer packages.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdeploy.errors import BadAnswer, TfdeployError, UsageError
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.answers.programs import ENV_MAKE, ENV_STATE, EnvState
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.folding import fold_names
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import WHEELS, Job
from tfdeploy.model.units import count
from tfdeploy.operations.broadcast.data_set import DataSet
from tfdeploy.operations.broadcast.data_sets import DataSent, Outcome, send_data_sets
from tfdeploy.operations.emit import emit_host, note
from tfdeploy.operations.lock import JobLock, locked_where_possible
from tfdeploy.operations.outcomes import split
from tfdeploy.operations.withheld_files import withheld_files
from tfdeploy.transport.protocols import AgentChannel, Fleet, Session
from tfdeploy.tree import Recipe, read_recipe
from tfdeploy.tree.withheld_files import NONE, WithheldFiles

MAKE_S = 12 * 3600.0  # pip may compile for hours, and wait for another setup that does
MAX_OUTPUT_BYTES = 64 << 20  # of the output of uv or pip
ITEM_BYTES = 100  # counted for a line besides its text


@dataclass(frozen=True)
class Environment:
    """One host's environment. `made`: by this setup; `seconds` and `bytes_sent`: of this setup."""

    folder: str
    python_version: str
    by: str  # uv or pip
    packages: dict[str, str] = field(default_factory=dict)
    made: bool = False
    seconds: float = 0.0
    bytes_sent: int = 0


@dataclass(frozen=True)
class Difference:
    """A package, or Python, whose version differs: version -> hosts; "": hosts that do not have it."""

    package: str
    versions: dict[str, tuple[str, ...]]

    @property
    def words(self) -> str:
        return f"{self.package}: " + ", ".join(
            f"{version or 'none'} on {fold_names(on)}" for version, on in self.versions.items()
        )


def recipe_of(job: Job, cache: Path | None, withhold: WithheldFiles = NONE) -> Recipe | None:
    """The recipe of the job's environment; None for a job without one. `withhold`: files that must not be sent.

    Raises ConfigError, Refused.
    """
    if job.setup_requirements is None:
        return None
    wheels = Path(job.setup_wheels) if job.setup_wheels else None
    return read_recipe(Path(job.setup_requirements), wheels, cache, where=f"{job.source}: setup", withhold=withhold)


def setup_job(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    holder: LockHolder,
    cache: Path | None,
    emit: Emit,
    known: tuple[Host, ...] = (),
) -> dict[str, Environment | TfdeployError]:
    """Every host's outcome. `known`: the hosts of the whole inventory, whose keys must not be sent. Raises UsageError for a
    job without `setup`."""
    recipe = recipe_of(job, cache, withheld_files(job, known or hosts))
    if recipe is None:
        raise UsageError(
            "the job asks for no environment",
            where=job.source or None,
            next="write `setup: {requirements: requirements.txt}` in the job file",
        )
    answered, lost = split(_find(fleet, hosts, job, recipe))
    there = {host: found for host, found in answered.items() if found is not None}
    wanted = tuple(host for host in hosts if host.name in answered and host.name not in there)
    made: dict[str, Environment | TfdeployError] = {}
    if wanted:
        with locked_where_possible(fleet, wanted, job.name, "setup", holder, emit) as (lock, failed):
            made = {**failed, **_make(fleet, lock.hosts, job, recipe, there, emit, lock)}
    everything = {**there, **lost, **made}
    return {host.name: everything[host.name] for host in hosts}


def _find(fleet: Fleet, hosts: tuple[Host, ...], job: Job, recipe: Recipe) -> dict[str, Environment | TfdeployError | None]:
    """Each host's environment; None where it is not made yet."""

    def ask(session: Session) -> Environment | None:
        began = time.monotonic()
        found = session.agent().call(ENV_STATE, _environment_args(session.host, job, recipe))
        return _environment(found, seconds=time.monotonic() - began) if found.ready else None

    return fleet.each(hosts, ask)


def _make(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    job: Job,
    recipe: Recipe,
    there: Mapping[str, Environment],
    emit: Emit,
    lock: JobLock,
) -> dict[str, Environment | TfdeployError]:
    pins, began = agreed(there.values()), time.monotonic()
    sent, lost = split(_send_wheels(fleet, hosts, job, recipe, emit))

    def one(session: Session) -> Environment:
        agent, host = session.agent(), session.host
        found = agent.call(ENV_STATE, _environment_args(host, job, recipe))
        made = not found.ready  # another setup may have made it during the wait for the lock
        if made:
            known = pins.get(found.python_version, {})
            found = _install(agent, host, {**_environment_args(host, job, recipe), **_recipe_args(recipe), "pins": known}, emit)
        lock.release_host(session)
        seconds = time.monotonic() - began
        packages = count(len(found.packages), "package")
        emit_host(emit, host.name, "ready", f"{packages} by {found.by} in {seconds:.1f} s")
        return _environment(found, made=made, seconds=seconds, bytes_sent=sent[host.name].received_bytes)

    return {**lost, **fleet.each(tuple(host for host in hosts if host.name in sent), one)}


def _send_wheels(fleet: Fleet, hosts: tuple[Host, ...], job: Job, recipe: Recipe, emit: Emit) -> dict[str, Outcome]:
    if recipe.wheels is None:
        return {host.name: DataSent() for host in hosts}
    return send_data_sets(fleet, hosts, job.name, {WHEELS: DataSet(recipe.wheels)}, emit)


def agreed(environments: Collection[Environment]) -> dict[str, dict[str, str]]:
    """Python version -> the packages that all environments of that Python have in the same version.

    A package whose version differs between hosts is not pinned.
    """
    found: dict[str, dict[str, str]] = {}
    for each in environments:
        before = found.get(each.python_version, each.packages)
        found[each.python_version] = dict(before.items() & each.packages.items())
    return found


def _install(agent: AgentChannel, host: Host, args: Args, emit: Emit) -> EnvState:
    """Calls env.make; emits the output of uv or pip as notes of level detail."""
    note(emit, "making the environment", host=host.name)
    stream, weight, give_up = agent.stream(ENV_MAKE, args, silence_s=MAKE_S), 0, time.monotonic() + MAKE_S
    try:
        for item, _ in stream:
            weight += ITEM_BYTES + len(item.line or "")
            if weight > MAX_OUTPUT_BYTES or time.monotonic() > give_up:
                raise BadAnswer("its output of making the environment is without end", where=host.name)
            if item.line is not None:
                note(emit, item.line, level="detail", host=host.name)
            elif item.waiting is not None:
                note(emit, "waiting for another setup that makes this environment", host=host.name)
    finally:
        stream.close()
    if stream.value is None or not stream.value.ready:
        raise BadAnswer("it reports that it made the environment and that there is none", where=host.name)
    return stream.value


def _environment_args(host: Host, job: Job, recipe: Recipe) -> Args:
    return {"job": job.name, "python": host.python, "digest": recipe.digest}


def _recipe_args(recipe: Recipe) -> Args:
    return {"files": recipe.files, "main": recipe.main, "wheels": WHEELS if recipe.wheels else None}


def _environment(found: EnvState, **more: Any) -> Environment:
    return Environment(found.folder, found.python_version, str(found.by), found.packages, **more)


def differences(environments: Mapping[str, Environment]) -> tuple[Difference, ...]:
    """What differs between hosts: Python first, then packages by name."""
    versions_of = {host: {"Python": each.python_version, **each.packages} for host, each in environments.items()}
    names = sorted({name for versions in versions_of.values() for name in versions}, key=lambda name: (name != "Python", name))
    found = []
    for name in names:
        versions: dict[str, list[str]] = {}
        for host, has in versions_of.items():
            versions.setdefault(has.get(name, ""), []).append(host)
        if len(versions) > 1:
            found.append(Difference(name, {version: tuple(on) for version, on in versions.items()}))
    return tuple(found)
