"""make_plan: from inventory, job and facts to the plan that a launch carries out. Pure: same values, same plan.

Opens no file and no socket, reads no clock and no environment: run id and time are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Mode
from tfdeploy.model.modes import rules
from tfdeploy.model.plan import Plan
from tfdeploy.planning import checks, datasets, environment, keep, notes
from tfdeploy.planning.cluster import addresses, ports, restarts
from tfdeploy.planning.cluster.layout import lay_out, ports_needed
from tfdeploy.planning.cluster.role_requests import Wish, role_hosts, wishes
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
from tfdeploy.planning.task_plans import Recipe, host_plan, task_plan


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
    mode = checks.mode(job)
    made_of = rules(mode)
    wished = wished_roles(inventory, job, options)
    hosts = _probed(inventory, mode, facts)

    seats, kept = keep.seat_tasks(wished, hosts, facts, job, options)
    checks.same_gpus(job, seats)
    seated = {seat.host for seat in seats}
    used = {name: facts[name] for name in hosts if name in seated}
    checks.one_machine(used)
    checks.live(used)

    started = source.read(job.command, sources)
    links = datasets.links(job)
    checks.program(job, started, options.files, links)
    interpreters.check(job, used, started)
    for name in used:
        checks.host(hosts[name], used[name], started, options)
    as_written = compat.decide(job, started, used)
    compat.check(as_written, started)

    called = {name: addresses.called(hosts[name], used[name]) for name in used}
    exposed = () if made_of.single else addresses.check(called, used, allow_public=options.allow_public)
    where = {name: each.address for name, each in called.items()}
    layout = lay_out(made_of, seats, where, ports.assign(ports_needed(made_of, seats, used), hosts, facts, where))

    added = command_line.appended(job, started)
    served = servers.served(job, started, layout.cluster)
    running = [seat for seat in seats if seat.role not in served.roles]
    given = {seat.task: command_line.values(layout, seat, mode, run) for seat in running}
    flag_conflicts.check(job, started, added, given)
    keras = legacy_keras.environment(job, started, used)
    data = datasets.places(job, options.file_data)
    chosen = {"TFDEPLOY_TASK_COMPAT": as_written.choice, **keras}
    recipe = Recipe(job, run, data, added.flags, served, chosen, compat.stands(job, as_written))
    tasks = tuple(task_plan(recipe, layout, seat, facts[seat.host]) for seat in seats)
    word_lengths.check(job, tasks)
    return Plan(
        run=run,
        job=job.name,
        mode=mode,
        created=now,
        operator=operator,
        release=release,
        command=job.command,
        cluster=layout.cluster,
        hosts=tuple(host_plan(layout, hosts[name], facts[name]) for name in used),
        tasks=tasks,
        deciding=layout.deciding,
        flags_appended=tuple(flag.name for flag in added.flags),
        keep=job.keep,
        data=data,
        links=links,
        secrets=job.secrets,
        ready_after_s=job.ready_after_s,
        ready_timeout_s=job.ready_timeout_s,
        finish_grace_s=job.finish_grace_s,
        stop_grace_s=job.stop_grace_s,
        logs_max_bytes=job.logs_max_bytes,
        metrics=job.metrics,
        resume=keep.resume(job, facts[kept.host]),
        keep_from=kept.copied_from,
        restart=restarts.words(job, tuple(dict.fromkeys(seat.role for seat in seats))),
        restart_max=job.restart_max,
        restart_backoff_s=job.restart_backoff_s,
        restart_wait_s=job.restart_wait_s,
        stall_after_s=job.stall_after_s,
        stall_action=job.stall_action,
        supply_from=restarts.supply_from(job, seats),
        notes=(
            *notes.counts(inventory, mode, wished, seats),
            *kept.notes,
            *keep_wipes.notes(job, started),
            *([served.note] if served.note else []),
            added.note,
            *flag_conflicts.notes(added),
            *interpreters.notes(job, used),
            *legacy_keras.notes(keras, job, started, used),
            *compat.notes(job, as_written, layout.cluster),
            *(() if made_of.single else addresses.notes(called)),
            *notes.of_hosts(layout, hosts, used, job.logs_max_bytes),
            *exposed,
            *(checks.tensorflow_notes(used) if made_of.tensorflow else ()),
            *(() if made_of.single else environment.proxy_notes(used)),
            *environment.preset_notes(options.preset, used),
        ),
    )


def wished_roles(inventory: Inventory, job: Job, options: Options) -> dict[str, Wish]:
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
