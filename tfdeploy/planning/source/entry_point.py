"""Finds the Python file or module that a command starts, and where the program's flags end."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

Command = tuple[str, ...]  # the words of a command line
# If a command begins with one of these words, tfdeploy replaces the word by the path of a Python:
# the Python that the inventory names, or that of the environment that `tfdeploy setup` made.
PYTHON = ("python", "python3")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh", "fish")
_INTERPRETER = re.compile(r"~?/([^{}]*/)?python[\d.]*\Z")
# Programs that choose the Python of the command after them.
_CHOOSERS = ("conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pixi", "pdm", "hatch")
# Matches a Python in the code folder, such as venv/bin/python.
_IN_CODE = re.compile(r"[^~/{}][^{}]*/python[\d.]*\Z")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def program_file(
    command: Command, text_by_path: Mapping[str, str], cwd: str
) -> tuple[str, str] | None:
    """Return (path of the program, folder in which its imports are looked up).

    The program is the command's first word that ends with .py, or the module after -m. Returns None
    if the command contains neither. A module is looked up in the folder `cwd`, and then in its
    subfolder `src`, because many projects put `src` on the PYTHONPATH.
    """
    at = program_index(command)
    if at is None:
        return None
    if not command[at].endswith(".py"):
        candidates = [
            (path, folder)
            for folder in (cwd, posixpath.join(cwd, "src"))
            for path in [_module_path(command[at], text_by_path, folder)]
        ]
        return next((each for each in candidates if each[0] in text_by_path), candidates[0])
    path = posixpath.normpath(posixpath.join(cwd, command[at]))
    return path, posixpath.dirname(path)


def program_index(command: Command) -> int | None:
    """Return the position of the program in the command.

    The program is the first word that ends with .py, or the module after -m. Returns None if the
    command contains neither, starts a shell, or is `python -c`.
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


def named_interpreter(command: Command) -> str:
    """Return the command's first word if it is the path of a Python, such as /opt/bin/python3.

    Otherwise return "". The hosts run the program with the named Python, and not with the Python of
    the inventory.
    """
    return command[0] if command and _INTERPRETER.match(command[0]) else ""


def chooses_python(command: Command) -> bool:
    """Return whether the program's Python is unknown before the start, as with `uv run
    train.py`."""
    first = command[0] if command else ""
    return posixpath.basename(first) in _CHOOSERS or bool(_IN_CODE.match(first))


def python_target(command: Command) -> tuple[str, bool]:
    """Return (the script or module that a `python` command runs, whether it is a module).

    Returns ("", False) for other commands. Unlike `program_file`, this function also returns a
    script whose name does not end with .py.
    """
    if not command or command[0] not in PYTHON:
        return "", False
    for before, word in pairwise(("", *command[1:])):
        if word == "-c":
            break
        if before == "-m" or not (word.startswith("-") or before in _WITH_VALUE):
            return word, before == "-m"
    return "", False


def flags_end_index(command: Command) -> int:
    """Return the position at which the program's flags end.

    They end at the first `--` after the program, or else at the end of the command.
    """
    at = program_index(command)
    return len(command) if at is None or "--" not in command[at:] else command.index("--", at)


def files_of_template(path: str, sources: Iterable[str]) -> list[str]:
    """Return the files of the code that match a path such as `{job_name}{task_index}.py`."""
    pattern = re.compile("[^/]*".join(re.escape(part) for part in re.split(r"\{\w+\}", path)))
    return sorted(file for file in sources if pattern.fullmatch(file))


def _module_path(module: str, text_by_path: Mapping[str, str], cwd: str) -> str:
    path = posixpath.join(cwd, module.replace(".", "/"))
    return f"{path}/__main__.py" if f"{path}/__main__.py" in text_by_path else f"{path}.py"
