"""make_plan: from inventory, job and facts to the plan that a launch carries out. Pure: same values, same plan.

Opens no file and no socket, reads no clock and no environment: run id and time are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Mode, StallAction
from tfdeploy.model.modes import Rules, rules
from tfdeploy.model.plan import Plan, TaskPlan
from tfdeploy.planning import checks, datasets, environment, keep, notes
from tfdeploy.planning.cluster import addresses, ports, restarts
from tfdeploy.planning.cluster.addresses import Called
from tfdeploy.planning.cluster.layout import Layout, lay_out, ports_needed
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.cluster.role_requests import RoleRequest, role_hosts, wishes
from tfdeploy.planning.keep import Going
from tfdeploy.planning.options import Options
from tfdeploy.planning.program import (
    command_line,
    compat,
    flag_conflicts,
    interpreters,
    keep_wipes,
    legacy_keras,
    servers,
    source,
    word_lengths,
)
from tfdeploy.planning.program.command_line import Appended
from tfdeploy.planning.program.compat import Compat
from tfdeploy.planning.program.servers import Served
from tfdeploy.planning.program.source import Program
from tfdeploy.planning.task_plans import Shared, host_plan, task_plan


@dataclass(frozen=True)
class _Asked:
    """The values that a plan is made from."""

    inventory: Inventory
    job: Job
    mode: Mode
    facts: dict[str, HostFacts]
    sources: Mapping[str, str]
    options: Options
    run: str

    @property
    def rules(self) -> Rules:
        return rules(self.mode)


@dataclass(frozen=True)
class _Placed:
    """Which task runs on which host. `used`: the facts of the hosts that get a task; `hosts`: all that were probed."""

    wished: dict[str, RoleRequest]
    hosts: dict[str, Host]
    seats: tuple[Seat, ...]
    going: Going
    used: dict[str, HostFacts]


@dataclass(frozen=True)
class _Read:
    """What the program's source says. `links`: path in the code -> data set's name."""

    program: Program
    links: dict[str, str]
    compat: Compat


@dataclass(frozen=True)
class _LaidOut:
    """The cluster, and what was found of its addresses. `exposed`: notes on those that the internet reaches."""

    layout: Layout
    called: dict[str, Called]
    exposed: tuple[str, ...]


@dataclass(frozen=True)
class _Commanded:
    """What each task is started with. `data`: name -> path on the hosts; `keras`: variables that choose a Keras."""

    tasks: tuple[TaskPlan, ...]
    added: Appended
    served: Served
    keras: dict[str, str]
    data: dict[str, str]


def make_plan(
    inventory: Inventory,
    job: Job,
    facts: dict[str, HostFacts],
    *,
    release: str,
    sources: Mapping[str, str],
    run: str,
    now: float,
    operator: str,
    options: Options,
) -> Plan:
    """The plan of one run.

    `facts`: host name -> facts, of at least the hosts of `hosts_to_probe`; a `keep` on any other counts too.
    `sources`: path in the code -> text, of the release's *.py files. `now`: UTC seconds. Raises UsageError (mode,
    roles, placeholders) and Refused.
    """
    asked = _Asked(inventory, job, checks.mode(job), facts, sources, options, run)
    placed = _place(asked)
    read = _read_program(asked, placed)
    laid = _lay_out(asked, placed)
    commanded = _command(asked, placed, read, laid)
    return _written(asked, placed, read, laid, commanded, _Stamp(release=release, created=now, operator=operator))


def _place(asked: _Asked) -> _Placed:
    """Tasks on hosts, with their GPUs; where training goes on."""
    wished = wished_roles(asked.inventory, asked.job, asked.options)
    hosts = _probed(asked.inventory, asked.mode, asked.facts)
    seats, going = keep.seat_tasks(wished, hosts, asked.facts, asked.job, asked.options)
    checks.same_gpus(asked.job, seats)
    seated = {seat.host for seat in seats}
    used = {name: asked.facts[name] for name in hosts if name in seated}
    checks.one_machine(used)
    checks.live(used)
    return _Placed(wished, hosts, seats, going, used)


def _read_program(asked: _Asked, placed: _Placed) -> _Read:
    """What the command starts, and whether the hosts can run it."""
    job, used = asked.job, placed.used
    program = source.read(job.command, asked.sources)
    links = datasets.links(job)
    checks.program(job, program, asked.options.files, links)
    interpreters.check(job, used, program)
    for name in used:
        checks.host(placed.hosts[name], used[name], program, asked.options)
    as_written = compat.decide(job, program, used)
    compat.check(as_written, program)
    return _Read(program, links, as_written)


def _lay_out(asked: _Asked, placed: _Placed) -> _LaidOut:
    """Addresses and ports: the cluster as TensorFlow will see it."""
    mode, used, seats = asked.rules, placed.used, placed.seats
    called = {name: addresses.called(placed.hosts[name], used[name]) for name in used}
    exposed = () if mode.single else addresses.check(called, used, allow_public=asked.options.allow_public)
    where = {name: each.address for name, each in called.items()}
    given = ports.assign(ports_needed(mode, seats, used), placed.hosts, asked.facts, where)
    return _LaidOut(lay_out(mode, seats, where, given), called, exposed)


def _command(asked: _Asked, placed: _Placed, read: _Read, laid: _LaidOut) -> _Commanded:
    """Each task's command line and environment."""
    job, program, cluster = asked.job, read.program, laid.layout.cluster
    added = command_line.appended(job, program)
    served = servers.served(job, program, cluster)
    running = [seat for seat in placed.seats if seat.role not in served.roles]
    given = {seat.task: command_line.values(laid.layout, seat, asked.mode, asked.run) for seat in running}
    flag_conflicts.check(job, program, added, given)
    keras = legacy_keras.environment(job, program, placed.used)
    data = datasets.places(job, asked.options.file_data)
    chosen = {"TFDEPLOY_TASK_COMPAT": read.compat.choice, **keras}
    shared = Shared(job, asked.run, data, added.flags, served, chosen, compat.stands(job, read.compat))
    tasks = tuple(task_plan(shared, laid.layout, seat, asked.facts[seat.host]) for seat in placed.seats)
    word_lengths.check(job, tasks)
    return _Commanded(tasks, added, served, keras, data)


class _Stamp(TypedDict):
    """What the plan takes as it is given."""

    release: str
    created: float  # UTC seconds
    operator: str


class _Settings(TypedDict):
    """What the plan takes from the job as it is written there."""

    command: tuple[str, ...]
    keep: tuple[str, ...]
    secrets: tuple[str, ...]
    ready_after_s: float
    ready_timeout_s: float
    finish_grace_s: float
    stop_grace_s: float
    logs_max_bytes: int
    metrics: dict[str, str]
    restart_max: int
    restart_backoff_s: tuple[float, float]
    restart_wait_s: float
    stall_after_s: float
    stall_action: StallAction


def _settings(job: Job) -> _Settings:
    return _Settings(
        command=job.command,
        keep=job.keep,
        secrets=job.secrets,
        ready_after_s=job.ready_after_s,
        ready_timeout_s=job.ready_timeout_s,
        finish_grace_s=job.finish_grace_s,
        stop_grace_s=job.stop_grace_s,
        logs_max_bytes=job.logs_max_bytes,
        metrics=job.metrics,
        restart_max=job.restart_max,
        restart_backoff_s=job.restart_backoff_s,
        restart_wait_s=job.restart_wait_s,
        stall_after_s=job.stall_after_s,
        stall_action=job.stall_action,
    )


def _written(asked: _Asked, placed: _Placed, read: _Read, laid: _LaidOut, commanded: _Commanded, stamp: _Stamp) -> Plan:
    """All of it as one value, with its notes."""
    job, layout, going = asked.job, laid.layout, placed.going
    return Plan(
        **stamp,
        **_settings(job),
        run=asked.run,
        job=job.name,
        mode=asked.mode,
        cluster=layout.cluster,
        hosts=tuple(host_plan(layout, placed.hosts[name], facts) for name, facts in placed.used.items()),
        tasks=commanded.tasks,
        deciding=layout.deciding,
        flags_appended=tuple(flag.name for flag in commanded.added.flags),
        data=commanded.data,
        links=read.links,
        resume=keep.resume(job, asked.facts[going.host]),
        keep_from=going.copied_from,
        restart=restarts.words(job, tuple(dict.fromkeys(seat.role for seat in placed.seats))),
        supply_from=restarts.supply_from(job, placed.seats),
        notes=_notes(asked, placed, read, laid, commanded),
    )


def _notes(asked: _Asked, placed: _Placed, read: _Read, laid: _LaidOut, commanded: _Commanded) -> tuple[str, ...]:
    job, used, alone = asked.job, placed.used, asked.rules.single
    return (
        *notes.counts(asked.inventory, asked.mode, placed.wished, placed.seats),
        *placed.going.notes,
        *keep_wipes.notes(job, read.program),
        *([commanded.served.note] if commanded.served.note else []),
        commanded.added.note,
        *flag_conflicts.notes(commanded.added),
        *interpreters.notes(job, used),
        *legacy_keras.notes(commanded.keras, job, read.program, used),
        *compat.notes(job, read.compat, laid.layout.cluster),
        *(() if alone else addresses.notes(laid.called)),
        *notes.of_hosts(laid.layout, placed.hosts, used, job.logs_max_bytes),
        *laid.exposed,
        *checks.tensorflow_notes(used),
        *(() if alone else environment.proxy_notes(used)),
        *environment.preset_notes(asked.options.preset, used),
    )


def wished_roles(inventory: Inventory, job: Job, options: Options) -> dict[str, RoleRequest]:
    """What each role is asked for. Raises UsageError for a mode or roles that make no cluster, before any host is asked."""
    checks.mode(job)
    wished = wishes(inventory, job, options)
    checks.roles(inventory, job, options, wished)
    return wished


def hosts_to_probe(inventory: Inventory, mode: Mode | None) -> tuple[str, ...]:
    """The hosts whose facts a plan is made from: all that have a role which the mode uses, in the inventory's order."""
    asked = {name for role in rules(mode).takes for name in role_hosts(inventory, role)}
    return tuple(host.name for host in inventory.hosts if host.name in asked)


def _probed(inventory: Inventory, mode: Mode, facts: Mapping[str, HostFacts]) -> dict[str, Host]:
    asked = set(hosts_to_probe(inventory, mode))
    hosts = {host.name: host for host in inventory.hosts if host.name in asked}
    for name in hosts:
        if name not in facts:
            raise Refused(f"nothing is known of {name}: it was not probed", where=f"host {name}", next="launch again")
    return hosts
