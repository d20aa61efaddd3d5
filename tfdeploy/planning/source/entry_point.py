"""Finds the file that a command starts, and the words of the command that belong to the program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

# Each of these as the first word of a command stands for the job's interpreter.
PYTHON = ("python", "python3")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh", "fish")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def program_file(
    command: tuple[str, ...], sources: Mapping[str, str], cwd: str
) -> tuple[str, str] | None:
    """Return (path of the program, folder that its imports start from).

    The program is the first *.py word, or the module after -m; None if the command has neither.
    """
    at = program_index(command)
    if at is None:
        return None
    if not command[at].endswith(".py"):
        return _module_path(command[at], sources, cwd), cwd
    path = posixpath.normpath(posixpath.join(cwd, command[at]))
    return path, posixpath.dirname(path)


def program_index(command: tuple[str, ...]) -> int | None:
    """Return the position of the program in the command: its first *.py word, or the module after
    -m.

    None for a shell command, for `python -c`, and if there is no such word.
    """
    if not command or posixpath.basename(command[0]) in SHELLS:
        return None
    for at, (before, word) in enumerate(pairwise(("", *command[1:])), 1):
        if before in _WITH_VALUE:
            continue
        if word == "-c":
            return None
        if word.endswith(".py") or before == "-m":
            return at
    return 0 if command[0].endswith(".py") else None


def own_end(command: tuple[str, ...]) -> int:
    """Return where the program's own flags end: at the first `--` after the program, else at the
    end."""
    at = program_index(command)
    return len(command) if at is None or "--" not in command[at:] else command.index("--", at)


def one_per_task(path: str, sources: Iterable[str]) -> list[str]:
    """Return the files that a path such as `{job_name}{task_index}.py` can stand for."""
    pattern = re.compile("[^/]*".join(re.escape(part) for part in re.split(r"\{\w+\}", path)))
    return sorted(file for file in sources if pattern.fullmatch(file))


def shell_script(command: tuple[str, ...], cwd: str) -> str | None:
    """Return the script that the command's shell runs.

    None if the command is not a shell with a script.
    """
    shell = command and posixpath.basename(command[0]) in SHELLS
    plain = len(command) > 1 and not command[1].startswith("-")
    return posixpath.normpath(posixpath.join(cwd, command[1])) if shell and plain else None


def _module_path(module: str, sources: Mapping[str, str], cwd: str) -> str:
    path = posixpath.join(cwd, module.replace(".", "/"))
    return f"{path}/__main__.py" if f"{path}/__main__.py" in sources else f"{path}.py"
