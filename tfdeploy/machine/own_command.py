"""Build the command that runs a module of tfdeploy in a new process, with this interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tfdeploy


def own_command(arguments: Sequence[str], module: str = "tfdeploy") -> list[str]:
    """Return the command that runs `module` of this tfdeploy with the arguments `arguments`.

    The new process has the sys.path of this process without the current folder. `python -m` is not
    used, because it would add the current folder, in which a `queue.py` would hide Python's module
    of that name. With -I, Python does not add the current folder. Python then also ignores
    PYTHONPATH, in which an empty entry would add the current folder.
    """
    package_parent = str(Path(tfdeploy.__file__).resolve().parents[1])
    # The sys.path of this process may lead to another tfdeploy. So the program imports this
    # tfdeploy before it takes over that sys.path.
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
