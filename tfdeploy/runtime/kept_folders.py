"""Let a program delete its `keep` folder and create it again, without deleting the files of earlier
runs.

In a task's working directory a `keep` folder is a symbolic link. `shutil.rmtree` refuses a link.
TensorFlow's DeleteRecursively deletes all files in the target and then fails with
FailedPreconditionError, because it calls DeleteDir for the link (file_system.cc).

The patch removes only the link. The agent (keep_links.py) keeps the folder that the program then
creates in its place.
"""

from __future__ import annotations

import os
from typing import Any, List

from . import task
from .wrapping import around

_NAMES = ("rmtree", "delete_recursively", "delete_recursively_v2")


def apply(module: Any) -> None:
    """Patch `module`: shutil, or tensorflow.python.lib.io.file_io."""
    for name in _NAMES:
        if hasattr(module, name):
            around(module, name)(_delete_but_keep)


def _delete_but_keep(delete: Any, *args: Any, **kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("path", kwargs.get("dirname"))
    links = _links(path)
    for link in links:
        os.unlink(link)
        task.say(
            "%s is a `keep` folder: what earlier runs saved there is set aside, not deleted"
            % os.path.relpath(link)
        )
    return None if _plain(path) in links else delete(*args, **kwargs)


def _plain(path: Any) -> str:
    try:
        return os.fsdecode(path).rstrip("/")
    except TypeError:
        return ""


def _links(path: Any) -> List[str]:
    """Return the links to `keep` folders at this path or below it."""
    top = _plain(path)
    if _is_kept(top):
        return [top]
    below = (
        (os.path.join(folder, name) for folder, folders, _ in os.walk(top) for name in folders)
        if top
        else ()
    )
    return [each for each in below if _is_kept(each)]


def _is_kept(path: str) -> bool:
    job = os.environ.get("TFDEPLOY_TASK_JOB", "")
    return bool(job) and os.path.islink(path) and "/%s/keep/" % job in os.readlink(path)
