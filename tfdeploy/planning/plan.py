"""Makes the plan that a launch carries out, from the inventory, the job and the facts of the hosts.

The same arguments always give the same plan: this module opens no file and no socket, and reads no
clock and no environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Mode, Protection
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import HostPlan, Notes, Plan, TaskPlan
from tfdeploy.planning import (
    argument_lengths,
    checks,
    datasets,
    environment,
    host_checks,
    interpreters,
    keep,
    keep_aside,
    notes,
    protection,
)
from tfdeploy.planning.cluster import addresses, ports, restarts
from tfdeploy.planning.cluster.addresses import AdvertisedAddress
from tfdeploy.planning.cluster.layout import Layout, count_task_and_agent_ports, lay_out
from tfdeploy.planning.cluster.placement import Seats
from tfdeploy.planning.cluster.role_requests import RoleRequests
from tfdeploy.planning.flags import role_programs
from tfdeploy.planning.keep import ResumePoint
from tfdeploy.planning.options import Options
from tfdeploy.planning.program import (
    checkpoint_paths,
    command_line,
    compat,
    downloads,
    flagged_program,
    job_names,
    mode_signs,
    servers,
    task_identity,
)
from tfdeploy.planning.program.compat import Compat
from tfdeploy.planning.seats import requested_roles, require_probed_hosts
from tfdeploy.planning.source import source, syntax
from tfdeploy.planning.source.entry_point import chooses_python
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.task_plans import SharedByTasks, host_plan, task_plan
from tfdeploy.planning.versions import legacy_keras, numpy_changes
from tfdeploy.planning.versions.legacy_keras import KerasChoice


@dataclass(frozen=True)
class _Inputs:
    """The values from which a plan is made."""

    inventory: Inventory
    job: Job
    mode: Mode
    facts: dict[str, HostFacts]  # with --fresh, these facts contain no `keep` folders
    all_facts: dict[str, HostFacts]  # the facts with their `keep` folders, even with --fresh
    sources: Mapping[str, str]
    options: Options
    run: str
    release: str
    now: float  # UTC seconds
    operator: str


@dataclass(frozen=True)
class _PlacedTasks:
    """The result of placing the tasks on hosts.

    `used`: facts of the hosts that get a task. `hosts`: all hosts that were probed.
    """

    requested: RoleRequests
    hosts: dict[str, Host]
    seats: Seats
    resume_point: ResumePoint
    used: dict[str, HostFacts]


@dataclass(frozen=True)
class _CheckedProgram:
    """The result of reading the program.

    `links`: {path of a link in the code: name of the data set to which the link leads}.
    """

    program: Program
    links: dict[str, str]
    compat: Compat
    mode_note: str | None


@dataclass(frozen=True)
class _LaidOutCluster:
    """The cluster, and the addresses of its hosts. `address_notes`: notes on these addresses."""

    layout: Layout
    advertised: dict[str, AdvertisedAddress]
    address_notes: tuple[str, ...]


@dataclass(frozen=True)
class _Commands:
    """The command and environment of each task."""

    tasks: tuple[TaskPlan, ...]
    shared: SharedByTasks
    keras: KerasChoice


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
    """Return the plan of one run.

    `facts`: {host name: facts}, at least for the hosts of `hosts_to_probe`. Of facts about other
    hosts, only those about `keep` folders are used. `sources`: {path in the code: text}, for the
    *.py files of the code. `now`: UTC seconds. Raises UsageError for a wrong mode, command, role or
    placeholder, and Refused if the hosts cannot run the job.
    """
    without_keep = {name: replace(each, keep=()) for name, each in facts.items()}
    inputs = _Inputs(
        inventory,
        job,
        checks.require_mode(job),
        without_keep if options.fresh else facts,
        facts,
        sources,
        options,
        run,
        release,
        now,
        operator,
    )
    checks.require_command(job)
    datasets.refuse_split_without_workers(job)
    placed = _place_tasks(inputs)
    read = _read_and_check_program(inputs, placed)
    laid = _lay_out(inputs, placed, read.program)
    commands = _make_commands(inputs, placed, read, laid)
    plan = _assemble_plan(inputs, placed, read, laid, commands)
    if not options.allow_open:
        protection.refuse_unprotected_hosts(plan, placed.used)
    return plan


def _place_tasks(inputs: _Inputs) -> _PlacedTasks:
    """Decide which host and GPUs each task gets, and on which host training resumes."""
    requested = requested_roles(inputs.inventory, inputs.job, inputs.options)
    hosts = require_probed_hosts(inputs.inventory, inputs.mode, inputs.facts)
    seats, resume_point = keep.seat_tasks_and_find_resume_point(
        requested, hosts, inputs.facts, inputs.job, inputs.options
    )
    checks.refuse_unequal_gpus(inputs.job, seats)
    seated = {seat.host for seat in seats}
    used = {name: inputs.facts[name] for name in hosts if name in seated}
    host_checks.refuse_same_machine(used)
    host_checks.refuse_live_run(used)
    return _PlacedTasks(requested, hosts, seats, resume_point, used)


def _read_and_check_program(inputs: _Inputs, placed: _PlacedTasks) -> _CheckedProgram:
    """Read the program that the command starts, and check that the hosts can run it."""
    job, used = inputs.job, placed.used
    checks.refuse_missing_cwd(job, inputs.options.files)
    programs = role_programs.read_programs(job, inputs.sources)
    program = source.merge_programs(programs)
    links = datasets.data_links(job)
    for command, each in zip(role_programs.distinct_commands(job), programs, strict=True):
        checks.refuse_missing_file(replace(job, command=command), each, inputs.options.files, links)
    interpreters.refuse_missing_setup_python(job, used, program)
    usual = host_checks.most_used_python(used.values(), program)
    for name in used:
        host_checks.check_host(
            placed.hosts[name],
            used[name],
            program,
            inputs.options,
            usual,
            job.command,
        )
    checks.refuse_missing_module(job, used, inputs.options.files)
    syntax.refuse_unparsable(job, program, used.values())
    mode_note = mode_signs.refuse_or_note_mode(job, program, force=inputs.options.any_mode)
    as_written = compat.decide_compat(job, program, used)
    compat.refuse_incompatible(as_written, program)
    return _CheckedProgram(program, links, as_written, mode_note)


def _lay_out(inputs: _Inputs, placed: _PlacedTasks, program: Program) -> _LaidOutCluster:
    """Choose addresses and ports, and return the cluster as TensorFlow sees it."""
    mode, used, seats = servers.mode_rules(inputs.job, program), placed.used, placed.seats
    advertised = {
        name: addresses.advertised_address(placed.hosts[name], used[name]) for name in used
    }
    exposed = (
        ()
        if mode.single
        else addresses.refuse_or_note_addresses(
            advertised, used, allow_public=inputs.options.allow_public
        )
    )
    where = {name: each.address for name, each in advertised.items()}
    given = ports.assign_ports(
        count_task_and_agent_ports(mode, seats, used),
        placed.hosts,
        inputs.facts,
        where,
        avoid_waiting=mode.ranks,
    )
    return _LaidOutCluster(lay_out(mode, seats, where, given), advertised, exposed)


def _make_commands(
    inputs: _Inputs, placed: _PlacedTasks, read: _CheckedProgram, laid: _LaidOutCluster
) -> _Commands:
    """Return each task's command line and environment."""
    job, program, cluster = inputs.job, read.program, laid.layout.cluster
    served = servers.decide_server_roles(job, program, cluster)
    roles = tuple(dict.fromkeys(seat.role for seat in placed.seats))
    names = job_names.role_names(job, program)
    own = command_line.renamed_role_values(laid.layout, names)
    running = [role for role in roles if role not in served.roles]
    role_sources = role_programs.group_by_program(job, program, running, inputs.sources)
    if not inputs.options.any_mode:
        for each in role_sources:
            job_names.refuse_fixed_job(job, each, names)
    flagged = (
        flagged_program.add_flags(each, roles, laid.layout, own, inputs.run)
        for each in role_sources
    )
    programs = {role: each for each in flagged for role in each.role_program.roles}
    keras = legacy_keras.decide_keras_version(
        job, program, placed.used, version1=read.compat.choice == "v1"
    )
    by_flag = any(
        flag.name == "task_index" for each in programs.values() for flag in each.added.given
    )
    shared = SharedByTasks(
        job,
        inputs.run,
        datasets.data_paths(job, inputs.options.file_data),
        programs,
        served,
        extra_variables={"TFDEPLOY_TASK_COMPAT": read.compat.choice, **keras.variables},
        keeps_written_addresses=compat.keeps_written_addresses(job, read.compat),
        identity=task_identity.decide_task_identity(job, program, cluster, index_by_flag=by_flag),
        renamed_values=own,
    )
    tasks = (task_plan(shared, laid.layout, seat, inputs.facts[seat.host]) for seat in placed.seats)
    made = tuple(argument_lengths.check_argument_lengths(job, tasks))
    checks.refuse_missing_program(job, made, placed.used)
    return _Commands(made, shared, keras)


def _protect_hosts(
    inputs: _Inputs, placed: _PlacedTasks, laid: _LaidOutCluster
) -> tuple[tuple[HostPlan, ...], Protection]:
    """Return the hosts of the plan, and how their ports are protected."""
    called = {
        name: addresses.resolved_addresses(each.address, placed.used)
        for name, each in laid.advertised.items()
    }
    hosts = tuple(
        host_plan(laid.layout, placed.hosts[name], facts, called[name])
        for name, facts in placed.used.items()
    )
    protect = protection.decide_protection(inputs.job, placed.used, hosts)
    if not (rules_of(inputs.mode).single or inputs.options.allow_public):
        protection.refuse_public_hosts(placed.used, protect)
    return hosts, protect


# Fields of Plan that have the same name and value in the job.
_SETTINGS = """
    command keep cwd secrets ready_after_s ready_timeout_s finish_grace_s stop_grace_s
    logs_max_bytes metrics restart_max restart_backoff_s restart_wait_s same_error_ends
    stall_after_s stall_action
"""


def _assemble_plan(
    inputs: _Inputs,
    placed: _PlacedTasks,
    read: _CheckedProgram,
    laid: _LaidOutCluster,
    commands: _Commands,
) -> Plan:
    """Return the plan with its notes."""
    hosts, protected = _protect_hosts(inputs, placed, laid)
    job, layout, resume_point = inputs.job, laid.layout, placed.resume_point
    return Plan(
        **{name: getattr(job, name) for name in _SETTINGS.split()},
        release=inputs.release,
        created=inputs.now,
        operator=inputs.operator,
        run=inputs.run,
        job=job.name,
        mode=inputs.mode,
        cluster=layout.cluster,
        hosts=hosts,
        tasks=commands.tasks,
        deciding=layout.deciding,
        flags_appended=tuple(
            dict.fromkeys(
                name
                for each in commands.shared.programs.values()
                for flag in each.added.flags
                for name in flag.names
            )
        ),
        data=commands.shared.data,
        links=read.links,
        parts=datasets.part_plans(job, placed.seats),
        resume=keep.resume_text(job, inputs.facts[resume_point.host]),
        hosts_tell_metrics=True,
        fresh=inputs.options.fresh,
        keep_from=resume_point.copied_from,
        restart=restarts.restart_summary(
            job, tuple(dict.fromkeys(seat.role for seat in placed.seats))
        ),
        supply_from=restarts.keep_source_host(job, placed.seats),
        protect=protected,
        notes=(
            *_notes(inputs, placed, read, laid, commands),
            *protection.notes(job, protected, hosts, commands.tasks),
        ),
    )


def _notes(
    inputs: _Inputs,
    placed: _PlacedTasks,
    read: _CheckedProgram,
    laid: _LaidOutCluster,
    commands: _Commands,
) -> Notes:
    job, used, alone = inputs.job, placed.used, rules_of(inputs.mode).single
    lines = (
        *notes.count_notes(inputs.inventory, inputs.mode, placed.requested, placed.seats),
        *notes.evaluator_notes(job, inputs.mode, inputs.inventory, read.program),
        *notes.literal_text_notes(job),
        *placed.resume_point.notes,
        *(
            keep_aside.notes(job, inputs.all_facts, inputs.run)
            if inputs.options.fresh
            else keep.later_step_notes(job, inputs.all_facts, placed.resume_point.host)
            if not inputs.options.ignore_keep
            else ()
        ),
        read.mode_note,
        *syntax.notes(read.program),
        *downloads.notes(job, read.program, inputs.options.files),
        *checkpoint_paths.notes(job, read.program, used),
        commands.shared.server_roles.note,
        *dict.fromkeys(text for each in commands.shared.programs.values() for text in each.notes),
        *commands.shared.identity.notes,
        *interpreters.notes(job, used),
        *commands.keras.notes,
        *compat.notes(job, read.compat, laid.layout.cluster),
        *numpy_changes.notes(job, read.program, used),
        *(() if alone else addresses.notes(laid.advertised)),
        *notes.host_notes(laid.layout, placed.hosts, used, job.logs_max_bytes),
        *laid.address_notes,
        *(() if chooses_python(job.command) else host_checks.tensorflow_notes(used)),
        *(() if alone else environment.proxy_notes(used)),
        *environment.preset_variable_notes(inputs.options.preset, used),
    )
    return tuple(filter(None, lines))
