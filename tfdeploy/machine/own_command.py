"""Build the command that runs a module of tfdeploy in a new process, with this interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tfdeploy


def own_command(arguments: Sequence[str], module: str = "tfdeploy") -> list[str]:
    """Return the command that runs `module` of this tfdeploy with the arguments `arguments`.

    The new process gets the sys.path of this process, but without the current folder: a file
    `queue.py` there would hide Python's module of that name. So the command uses `-I` and not
    `python -m`, which adds the current folder. With -I, Python also ignores PYTHONPATH, in which an
    empty entry means the current folder.
    """
    package_parent = str(Path(tfdeploy.__file__).resolve().parents[1])
    # The sys.path of this process may lead to another copy of tfdeploy. So the new process imports
    # this copy first, and sets its own sys.path to that of this process only afterwards.
    program = (
        f"import runpy, sys; sys.path.insert(0, {package_parent!r}); import tfdeploy; "
        f"sys.path[:] = {_absolute_sys_path()!r}; "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    options = [
        *(["-X", "utf8"] if sys.flags.utf8_mode else []),
        *(["-B"] if sys.dont_write_bytecode else []),
    ]
    return [sys.executable, "-I", *options, "-c", program, *arguments]


def _absolute_sys_path() -> list[str]:
    """Return the absolute folders of sys.path, without the current folder."""
    try:
        current = os.getcwd()
    except FileNotFoundError:
        current = ""
    return [path for path in sys.path if os.path.isabs(path) and path != current]
