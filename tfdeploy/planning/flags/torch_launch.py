"""Finds launchers of PyTorch in commands, and provides what PyTorch programs expect from them.

torchrun, `torch.distributed.launch`, `accelerate launch`, deepspeed and mpirun start several
processes on a host and number these processes themselves. tfdeploy starts one process for each
rank. If the command contained such a launcher, each rank would start a group of processes that are
numbered from 0. Older launchers also pass the flag `--local_rank`, and a program that defines this
flag may not read the environment variables at all.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import dropwhile, pairwise

from tfdeploy.errors import ConfigError
from tfdeploy.model.job import Job
from tfdeploy.planning.flags import flag_definitions, flags
from tfdeploy.planning.flags.flag_definitions import Flags
from tfdeploy.planning.source.entry_point import Command
from tfdeploy.planning.source.expressions import argument, dotted_name, last_name
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.text import placeholders

_PROGRAMS = "torchrun deepspeed horovodrun mpirun mpiexec orterun srun composer"
_WITH_VERB = ("accelerate launch", "colossalai run", "fabric run")
_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
# {end of a function's name: its arguments by position}
_MEETINGS = {
    ".init_process_group": ("backend", "init_method", "timeout", "world_size", "rank"),
    ".distributed.initialize": ("coordinator_address", "num_processes", "process_id"),
}
_OWN_MODULES = re.compile(r"\.(dist|distributed|c10d|distributed_c10d)\.\w+\Z")
# {argument of a function of _MEETINGS: its value in the run}
_MEETING_ARGUMENTS = {
    "rank": "{rank}",
    "process_id": "{rank}",
    "world_size": "{world_size}",
    "num_processes": "{world_size}",
    "init_method": "tcp://{chief_host}:{chief_port}",
    "coordinator_address": "{chief_host}:{chief_port}",
}
_SPAWNS = ("mp.spawn", "multiprocessing.spawn", "notebook_launcher")
_ONE_EACH = (
    "let the program start no processes itself, or run one rank on each host "
    "(`roles: {worker: {per_host: 1}}`)"
)
# A command with one of these placeholders gives the launcher its number.
_RANK_PLACEHOLDERS = {"rank", "local_rank", "task_index"}
_KEEP_TORCHRUN = (
    "; to keep torchrun, give it --node_rank={rank}, --master_addr={chief_host} and "
    "--master_port={chief_port}, and no c10d"
)


def refuse_launcher(job: Job) -> None:
    """Raise ConfigError if the command contains a launcher such as torchrun that numbers the ranks
    itself.

    The checkpoint of rank 0 would then not be on the host of tfdeploy's rank 0. The error suggests
    a command without the launcher.
    """
    launcher = launcher_name(job.command)
    used = {name for word in job.command for name in placeholders.placeholder_names(word)}
    # With this rendezvous, torchrun ignores --node_rank and numbers the hosts anew at each start.
    numbers_hosts = any("c10d" in word for word in job.command)
    if launcher is None or (used & _RANK_PLACEHOLDERS and not numbers_hosts):
        return
    own = [*dropwhile(lambda word: not word.endswith(".py"), job.command)] or ["train.py"]
    raise ConfigError(
        f"`{launcher}` starts processes and numbers them itself, and mode {job.mode} starts one "
        "process for each rank",
        where=job.command_place,
        next=f"write `command: [python, {', '.join(own)}]`"
        + _KEEP_TORCHRUN * ("torch" in launcher),
    )


def local_rank_flag(program: Program, command: Command) -> Flags:
    """Return the program's flag --local_rank or --local-rank, as a tuple of one flag.

    Returns () if the program defines neither, or if the command already contains the flag.
    """
    return tuple(
        replace(flag, name="local_rank")
        for flag in flags.flags_spelled("local_rank", flag_definitions.defined_flags(program))
        if flag.form == "value" and not flag_definitions.is_in_command(flag, command)
    )[:1]


def spawning_note(program: Program) -> str | None:
    """Return a note if the program itself starts further processes; None if it does not.

    The note is needed because every rank would start such processes.
    """
    for call in program.find(ast.Call):
        name = dotted_name(call.func)
        if name.endswith(_SPAWNS):
            may_start = f"{place_of(call)} may start processes by itself ({name})"
            return f"{may_start}, and every rank would start such processes: {_ONE_EACH}"
    return None


def rank_flags_note(program: Program, command: Command) -> str | None:
    """Return a note if the program takes its rank from flags that the command lacks, else None.

    Without these flags, each rank of such a program may train alone, and no error would show this.
    """
    where, words = missing_rank_words(program, command)
    if not words:
        return None
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"{where} gets no rank unless you write {quoted} into the command"


def missing_rank_words(program: Program, command: Command) -> tuple[str, list[str]]:
    """Return where the program takes its rank from flags, and the words with these flags that the
    command lacks. Return ("", []) if it lacks none."""
    defined = {flag.dest: flag for flag in flag_definitions.defined_flags(program)}
    # In the programs of OpenMMLab, --launcher says whether to read the variables.
    flag = defined.get("launcher")
    if (
        flag
        and flag.default == "none"
        and "pytorch" in flag.choices
        and not flag_definitions.is_in_command(flag, command)
    ):
        return flag.where, [f"{flag.spelling}=pytorch"]
    # torchrun numbers the processes that it starts: {rank} is no process's rank.
    for call in () if launcher_name(command) else program.find(ast.Call):
        function = f".{dotted_name(call.func)}"
        names = next((each for end, each in _MEETINGS.items() if function.endswith(end)), ())
        # Another function of the same name may have its arguments in another order.
        has_positions = _OWN_MODULES.search(function)
        taken = {
            name: defined[dest]
            for position, name in enumerate(names)
            if name in _MEETING_ARGUMENTS
            and (dest := last_name(argument(call, name, position if has_positions else None)))
            in defined
            and defined[dest].form == "value"
        }
        # A program that can use flags or variables, such as PyTorch's ImageNet example, reads the
        # variables only if the address flag is env://. So another default means that it uses flags.
        elsewhere = any(flag.default.startswith(("tcp:", "file:")) for flag in taken.values())
        by_variables = program.has_string_constant("RANK") and not elsewhere
        given = any(
            flag.dest == "local_rank" or flag_definitions.is_in_command(flag, command)
            for flag in taken.values()
        )
        words = [
            f"{flag.spelling}={_MEETING_ARGUMENTS[name]}"
            for name, flag in taken.items()
            if not flag.default.startswith("env:")
        ]
        if {"rank", "process_id"} & {*taken} and words and not (by_variables or given):
            return place_of(call), words
    return "", []


def other_launcher_note(program: Program, variables: Collection[str]) -> str | None:
    """Return a note if the program gets its rank only from another launcher, else None.

    Without that launcher, each rank of a Horovod program trains alone, and no error shows this.
    `variables`: the variables that the job sets.
    """
    for call in program.find(ast.Call):
        name = dotted_name(call.func)
        if re.fullmatch(r"(hvd|horovod[\w.]*)\.init", name) and "HOROVOD_RANK" not in variables:
            return (
                f"{place_of(call)} calls {name}, which does not read these variables: with this "
                "call, each worker trains alone, as rank 0 of 1 (docs/recipes/from-horovodrun.md)"
            )
        is_bare = f".{name}".endswith(".distributed.initialize") and not (
            call.args or call.keywords
        )
        if is_bare and program.imports_any("jax") and "SLURM_PROCID" not in variables:
            return (
                f"{place_of(call)} calls {name} without arguments; JAX then does not read these "
                "variables: pass their values, or set those of Slurm (docs/recipes/jax.md)"
            )
    return None


def launcher_name(command: Sequence[str]) -> str | None:
    """Return the launcher in the command, such as "torchrun", or None if there is none."""
    is_prefix = re.compile(r"env\Z|[A-Za-z_]\w*=").match
    program, *arguments = [*dropwhile(is_prefix, command)] or [""]
    first, second = posixpath.basename(program), "".join(arguments[:1])
    if first in _PROGRAMS.split():
        return first
    if f"{first} {second}" in _WITH_VERB:
        return f"{first} {second}"
    module = next((after for before, after in pairwise(arguments) if before == "-m"), "")
    return f"python -m {module}" if first.startswith("python") and module in _MODULES else None
