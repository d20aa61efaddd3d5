"""Knows what PyTorch programs expect from their launcher, and finds launchers in commands.

torchrun, `torch.distributed.launch`, `accelerate launch`, deepspeed and mpirun start several
processes on a host and number these processes themselves. tfdeploy starts one process for each
rank. With such a launcher in the command, each rank would start a group of processes, each group
numbered from 0. Older launchers also pass the flag `--local_rank`, and a program that defines this
flag may not read the environment variables at all.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Sequence

from tfdeploy.errors import ConfigError
from tfdeploy.model.job import Job
from tfdeploy.model.text import placeholders
from tfdeploy.planning.flags import flag_definitions
from tfdeploy.planning.flags.flag_definitions import Flag, plain
from tfdeploy.planning.source.expressions import dotted_name
from tfdeploy.planning.source.source import Program

_PROGRAMS = ("torchrun", "deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun", "srun")
_WITH_VERB = {"accelerate": "launch", "colossalai": "run", "fabric": "run", "composer": ""}
_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
_SPAWNS = ("mp.spawn", "multiprocessing.spawn", "notebook_launcher")
_ONE_EACH = "start it without that, or one rank on each host (`roles: {worker: {per_host: 1}}`)"
# A command that contains one of these placeholders is taken to use its launcher on purpose.
_RANK_PLACEHOLDERS = ("rank", "local_rank", "world_size", "chief_host", "task_index")


def check(job: Job) -> None:
    """Raise ConfigError if the command contains a launcher such as torchrun.

    The error suggests a command without the launcher.
    """
    launcher = _launcher(job.command)
    used = {name for word in job.command for name in placeholders.names(word)}
    if launcher is None or used & {*_RANK_PLACEHOLDERS}:
        return
    own = _without_launcher(job.command)
    raise ConfigError(
        f"`{launcher}` starts processes and numbers them itself, and mode {job.mode} starts one "
        "process for each rank",
        where=f"{job.source or 'job'}: command",
        next=f"write `command: [{', '.join(own)}]`"
        if own
        else "write `command: [python, train.py]` with the program's own flags",
    )


def local_rank(program: Program, command: tuple[str, ...]) -> tuple[Flag, ...]:
    """Return the program's flag --local_rank or --local-rank, as a tuple of one flag.

    () if the program defines neither, or the command already contains it.
    """
    given = flag_definitions.given_in(command)
    for flag in flag_definitions.definitions(program):
        spelling = next((each for each in flag.spellings if plain(each) == "local_rank"), None)
        is_given = any(each.lstrip("-") in given for each in flag.spellings)
        if spelling is not None and flag.form == "value" and not is_given:
            return (
                Flag(
                    "local_rank",
                    spelling,
                    where=flag.where,
                    spellings=flag.spellings,
                    dest=flag.dest,
                ),
            )
    return ()


def spawning(program: Program) -> str | None:
    """Return a note if the program starts further processes itself; None otherwise.

    Every rank would start such processes.
    """
    calls = ((path, call, dotted_name(call.func)) for path, call in program.find(ast.Call))
    return next(
        (
            f"{path}:{call.lineno} may start processes by itself ({name}), and each rank would: "
            f"{_ONE_EACH}"
            for path, call, name in calls
            if name.endswith(_SPAWNS)
        ),
        None,
    )


def _launcher(command: Sequence[str]) -> str | None:
    arguments = [word for word in command if word != "env"]
    first = posixpath.basename(arguments[0]) if arguments else ""
    if first in _PROGRAMS:
        return first
    if (
        first in _WITH_VERB
        and len(arguments) > 1
        and (arguments[1] == _WITH_VERB[first] or not _WITH_VERB[first])
    ):
        return f"{first} {_WITH_VERB[first]}".strip()
    if first.startswith("python") and "-m" in arguments and arguments[-1] != "-m":
        module = arguments[arguments.index("-m") + 1]
        return f"python -m {module}" if module in _MODULES else None
    return None


def _without_launcher(command: Sequence[str]) -> list[str]:
    """Return the command without its launcher: `python`, the program and its flags.

    [] if the command names no *.py file.
    """
    at = next((number for number, word in enumerate(command) if word.endswith(".py")), None)
    return [] if at is None else ["python", *command[at:]]
