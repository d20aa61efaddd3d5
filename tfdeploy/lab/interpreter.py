"""Find the folders that an isolated host needs to run a Python interpreter.

These are the interpreter's environment, the installation that the environment is based on, and the
folders of symbolic links between the two.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from tfdeploy.errors import Refused

_ASK = (
    "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, "
    "sys.base_exec_prefix]))"
)

_HAS_TENSORFLOW = (
    "import sys; from importlib.util import find_spec; sys.exit(not find_spec('tensorflow'))"
)


def find_tensorflow_python(environ: Mapping[str, str]) -> str | None:
    """Return an interpreter that has TensorFlow, or None.

    The first choice is the interpreter of this process, then that of the active environment
    (VIRTUAL_ENV), then python3 and python on PATH.
    """
    if find_spec("tensorflow"):
        return sys.executable
    active = environ.get("VIRTUAL_ENV")
    paths = [*([f"{active}/bin"] if active else []), environ.get("PATH", "")]
    interpreters = (
        shutil.which(name, path=path) for path in paths for name in ("python3", "python")
    )
    return next(filter(_has_tensorflow, filter(None, interpreters)), None)


def _has_tensorflow(python: str) -> bool:
    try:
        completed = subprocess.run([python, "-I", "-c", _HAS_TENSORFLOW], timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return completed.returncode == 0


def _list_link_folders(path: str) -> list[str]:
    """Follow the symbolic links from `path` to a program.

    Return the folders that contain these links, and last the folder that contains the program.
    """
    interpreter_folders = []
    while True:
        interpreter_folders.append(os.path.dirname(path))
        if not os.path.islink(path):
            return interpreter_folders
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def interpreter_folders(python: str) -> list[str]:
    """Return the folders that `python` needs on a host, at the same paths as on this machine.

    A folder inside another one of the result is left out. Raises Refused if the interpreter does
    not run.
    """
    try:
        completed = subprocess.run(
            [python, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60, check=True
        )
        prefixes = [os.path.abspath(path) for path in json.loads(completed.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refused(
            f"this interpreter does not run: {error}",
            where=python,
            next="name another interpreter with --python PATH",
        ) from error
    prefixes_and_links = {*prefixes, *_list_link_folders(os.path.abspath(python))}
    prefixes_and_links |= {os.path.realpath(path) for path in prefixes_and_links}
    outermost: list[str] = []
    for path in sorted(prefixes_and_links, key=lambda each: each.count("/")):
        if path not in ("/", "/usr") and not any(
            path.startswith(f"{outer}/") for outer in outermost
        ):
            outermost.append(path)
    return outermost
