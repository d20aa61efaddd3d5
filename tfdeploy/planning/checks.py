"""Checks the mode and the command of a job before anything is sent to hosts.

The module `host_checks` checks the hosts. A failed check raises an error that names the rule, the
host and a remedy. The checks open no file and contact no host.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection

from tfdeploy.errors import ConfigError, Refused, UsageError
from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job, Mode, RoleRule
from tfdeploy.model.modes import ROLES, rules_of
from tfdeploy.model.plan import TaskPlan
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.cluster.role_requests import RoleRequest, RoleRequests, role_hosts
from tfdeploy.planning.flags import torch_launch
from tfdeploy.planning.options import Options
from tfdeploy.planning.source.entry_point import PYTHON, python_target
from tfdeploy.planning.source.imports import own_modules
from tfdeploy.planning.source.source import Program
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import did_you_mean

_COMMON_PROGRAMS = ("python", "python3", "bash", "env", "torchrun", "mpirun")


def require_mode(job: Job) -> Mode:
    """Return the mode of the run. Raises UsageError if the job has none."""
    if job.mode is None:
        raise UsageError(
            "no mode is set",
            where=job.source or None,
            next="add --mode MODE, or `mode: MODE` to the job file; `tfdeploy docs modes` says "
            "which fits",
        )
    return job.mode


def require_command(job: Job) -> None:
    """Raise UsageError if there is no program to run."""
    if not job.command:
        raise UsageError(
            "no command to run",
            where=job.source,
            next="write `command: [python, train.py]` in the job file, or the command after --",
        )


def check_roles(inventory: Inventory, job: Job, options: Options, requested: RoleRequests) -> None:
    """Raise ConfigError if the roles of the inventory, the job or the options do not fit the mode.

    Examples: `--ps` in a mode without parameter servers, two chiefs, or no host for a role that the
    mode needs.
    """
    mode = rules_of(job.mode)
    for role in job.roles:
        if role not in mode.usable_roles:
            raise _role_not_taken_error(
                job, role, f"{job.source or 'job'}: roles.{role}", f"remove `roles: {role}`"
            )
        _refuse_renamed_role(job, role)
    if options.ps is not None and "ps" not in mode.usable_roles:
        raise _role_not_taken_error(job, "ps", "--ps", "leave --ps out")
    if mode.ranks:
        _refuse_settings_without_ranks(job)
    if mode.single:
        _refuse_several_workers(job, requested.get("worker"))
    ps = requested.get("ps")
    if ps is not None and ps.gpus:
        raise ConfigError(
            "a ps uses no GPU",
            where=f"{job.source or 'job'}: roles.ps.gpus",
            next="remove `gpus` there",
        )
    _refuse_several_chiefs(inventory, requested.get("chief"))
    for name in mode.required_roles:
        if not role_hosts(inventory, name) and not _is_omitted(job, options, name):
            # If --limit or --exclude removes all hosts of a role, the role stays in the inventory,
            # without hosts.
            is_left_out = name in inventory.roles
            why = (
                "--limit or --exclude removes all hosts of this role"
                if is_left_out
                else "no host has this role"
            )
            raise ConfigError(
                f"mode {job.mode} needs at least one {name}, but {why}",
                where=f"{inventory.source or 'inventory'}: roles.{name}",
                next="select a host of this role too: `tfdeploy inventory` lists the roles"
                if is_left_out
                else f"write `roles: {{{name}: [HOST, ...]}}` in the inventory (in an Ansible "
                f"inventory, a group [{name}])",
            )


def check_seats(job: Job, options: Options, seats: Collection[Seat]) -> None:
    """Raise ConfigError unless there is at least one task of each role that the mode needs."""
    have = Counter(seat.role for seat in seats)
    mode = rules_of(job.mode)
    for name in mode.required_roles:
        # In a mode with `all_decide`, the chief trains like a worker. So it can replace the
        # required worker.
        is_replaced = mode.all_decide and have["chief"]
        if not (have[name] or is_replaced or _is_omitted(job, options, name)):
            raise ConfigError(
                f"mode {job.mode} needs at least one {name}, but the requested numbers leave none",
                where=f"role {name}",
                next="add hosts for workers: the chief uses all GPUs of the present hosts"
                if name == "worker" and have["chief"]
                else f"correct --{'workers' if name == 'worker' else name} or `roles: {name}`",
            )


def _is_omitted(job: Job, options: Options, role: str) -> bool:
    """Return True if 0 tasks of the role are requested, and the mode accepts this."""
    rule = job.roles.get(role, RoleRule())
    counts = (rule.count, rule.per_host) if options.ps is None else (options.ps,)
    return role in rules_of(job.mode).omissible_roles and 0 in counts


def refuse_unequal_gpus(job: Job, seats: Collection[Seat]) -> None:
    """Raise Refused if training tasks differ in their number of GPUs in a mode that forbids it."""
    mode = rules_of(job.mode)
    training = [
        seat
        for seat in seats
        if seat.role == "worker" or (seat.role == "chief" and mode.all_decide)
    ]
    if not mode.same_gpus or not training:
        return
    few, many = (pick(training, key=lambda seat: len(seat.gpus)) for pick in (min, max))
    fewest, most = len(few.gpus), len(many.gpus)
    if fewest < most:
        raise Refused(
            f"mode {job.mode} needs equally many GPUs in each worker: {many.task} on {many.host} "
            f"has {most}, {few.task} on {few.host} has {fewest}",
            where=f"host {few.host}",
            next=f"write `roles: {{worker: {{gpus: {fewest}}}}}`, or leave hosts out with "
            "--exclude",
        )


def refuse_missing_cwd(job: Job, files: Collection[str]) -> None:
    """Raise Refused if the folder in which the command starts is not in the code.

    `files`: the paths of the code. If it is empty, the paths are not known, and nothing is refused.
    """
    folders = sorted({posixpath.dirname(path) for path in files})
    if job.cwd and files and not any(_is_inside(folder, job.cwd) for folder in folders):
        check = f"check that {job.code}/{job.cwd} exists, and that git does not ignore its files"
        raise Refused(
            f"the folder {job.cwd} is not in the code",
            where=job.places.get("cwd") or "cwd",
            next=did_you_mean(job.cwd, folders, check),
        )


def _is_inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def refuse_missing_file(
    job: Job, program: Program, files: Collection[str], links: Collection[str]
) -> None:
    """Raise Refused if the file that the command starts is not in the code.

    `files`: the paths of the code. If it is empty, the paths are not known, and nothing is refused.
    `links`: paths in the code that are links to data sets on the host.
    """
    path = _started_file(job, program)
    if (
        not files
        or path is None
        or path in files
        or f"{path}/__main__.py" in files
        or path.startswith(("/", "..", "~"))
        or "{" in path
        or any(_is_inside(path, folder) for folder in (*links, *job.keep))
    ):
        return
    check = f"check that the code ({job.code}) contains the file, and that git does not ignore it"
    raise Refused(
        f"the program {path} is not in the code",
        where=job.command_place,
        next=did_you_mean(path, sorted(files), check),
    )


def program_needed_on_path(job: Job) -> str | None:
    """Return the name of the program that each host must have on PATH.

    Returns None if the command begins with a path, or if the job sets PATH in `env`. Also returns
    None if the command begins with `python`, because the inventory names the interpreter.
    """
    first = job.command[0] if job.command and "PATH" not in job.env else ""
    return None if first in ("", *PYTHON) or {"/", "{"} & {*first} else first


def refuse_missing_program(
    job: Job, tasks: Collection[TaskPlan], facts_by_host: FactsByHost
) -> None:
    """Raise Refused if a host with a task does not have the command's program on PATH."""
    name = program_needed_on_path(job)
    lacking = dict.fromkeys(
        task.host
        for task in tasks
        if task.argv[:1] == (name,) and facts_by_host[task.host].lacks_program
    )
    if lacking and name:
        install = f"install {name} there, or write its full path, or ./{name} if the code has it"
        if " " in name:
            install = f"write each word as its own list item: [{', '.join(name.split())}]"
        elif name.endswith(".py"):
            install = f"write python {name}"
        raise Refused(
            f"there is no program {name} on PATH of {fold_names(lacking)}",
            where=job.command_place,
            next=install
            if name in _COMMON_PROGRAMS
            else did_you_mean(name, _COMMON_PROGRAMS, install),
        )


def refuse_missing_module(job: Job, facts_by_host: FactsByHost, files: Collection[str]) -> None:
    """Raise Refused if the module after `python -m` is neither in the code nor on the hosts."""
    word, is_module = python_target(job.command)
    name, own = word.partition(".")[0], own_modules(files)
    lacking = [host for host, facts in facts_by_host.items() if facts.modules.get(name) is False]
    if is_module and lacking and files and name not in own and "PYTHONPATH" not in job.env:
        install = (
            f"install the module on these hosts, or check that the code ({job.code}) contains it, "
            "and that git does not ignore it"
        )
        raise Refused(
            f"the module {name} is neither in the code nor in the Python of {fold_names(lacking)}",
            where=job.command_place,
            next=did_you_mean(name, own, install),
        )


def _started_file(job: Job, program: Program) -> str | None:
    """Return the path, in the code, of the file that the command starts; None if there is none."""
    command = job.command
    word, is_module = python_target(command)
    if "/" in command[0] and not command[0].startswith(("/", "~")):
        word, is_module = command[0], False
    if word and not is_module:
        return posixpath.normpath(posixpath.join(job.cwd, word))
    by_python = any(posixpath.basename(word).startswith("python") for word in command)
    return program.path if by_python and "-m" not in command else program.script


def _role_not_taken_error(job: Job, role: str, where: str, next: str) -> ConfigError:
    takes = ", ".join(each for each in ROLES if each in rules_of(job.mode).usable_roles)
    what = f"mode {job.mode} has no role {role} (its roles: {takes})"
    return ConfigError(what, where=where, next=f"{next}, or choose another mode")


def _refuse_several_workers(job: Job, worker: RoleRequest | None) -> None:
    if worker is not None and worker.largest_count > 1:
        raise ConfigError(
            f"mode {job.mode} has one worker, but {worker.because} asks for {worker.largest_count}",
            where=worker.because.split(" ")[0]
            if worker.because.startswith("--")
            else f"{job.source or 'job'}: roles.worker",
            next="ask for one worker, or choose --mode mirrored for several workers",
        )


def _refuse_settings_without_ranks(job: Job) -> None:
    """Raise ConfigError for settings that are not allowed in a mode with ranks, such as plain.

    These settings are keys for TensorFlow clusters, and environment variables that tfdeploy itself
    sets for each task.
    """
    foreign = {"flags": ("auto", "classic"), "compat": ("v1",), "cluster": ("program",)}
    for key, values in foreign.items():
        if getattr(job, key) in values:
            raise ConfigError(
                f"`{key}: {getattr(job, key)}` is a setting of TensorFlow clusters, and mode "
                f"{job.mode} has no such cluster",
                where=f"{job.source or 'job'}: {key}",
                next=f"remove `{key}`; the program gets {', '.join(ranks.VARIABLES)}",
            )
    torch_launch.refuse_launcher(job)
    for name in (*job.env, *job.secrets):
        if name in ranks.VARIABLES:
            raise ConfigError(
                f"{name} is set by tfdeploy for each task in mode {job.mode}",
                where=f"{job.source or 'job'}: {'env' if name in job.env else 'secrets'}.{name}",
                next=f"remove {name}; `tfdeploy launch --dry-run` shows its value",
            )


def _refuse_renamed_role(job: Job, role: str) -> None:
    """Raise ConfigError if the job renames a role with `as` in a mode that fixes the role's name.

    The name is fixed in modes whose strategies know only TensorFlow's own role names. In mode
    ingraph, the role worker can have another name, but no other role can.
    """
    mode, called = rules_of(job.mode), job.roles[role].called
    if called and not mode.takes_flags and not (role == "worker" and "one_client" in mode.traits):
        raise ConfigError(
            f"mode {job.mode} fixes the name of the role {role}: the job cannot call it {called}",
            where=f"{job.source or 'job'}: roles.{role}.as",
            next=f"remove `as`, and name the role {role}",
        )


def _refuse_several_chiefs(inventory: Inventory, chief: RoleRequest | None) -> None:
    if chief is None:
        return
    count = max(chief.largest_count, 1 if chief.because else len(chief.hosts))
    if count > 1:
        raise ConfigError(
            f"a cluster has only one chief, but {count} are requested",
            where=f"{inventory.source or 'inventory'}: roles.chief",
            next="name one host for the role chief",
        )
