"""Let a program delete and recreate a `keep` folder without deleting the files of earlier runs.

The job file lists these folders under `keep:`.

In a task's working directory, a `keep` folder is a symbolic link. `shutil.rmtree` refuses to delete
a link. TensorFlow's DeleteRecursively deletes all files in the target of the link and then fails
with FailedPreconditionError, because it calls DeleteDir for the link (file_system.cc).

The patch removes only the link. If the program then creates a folder in place of the link, the
agent keeps the new folder (keep_links.py).
"""

from __future__ import annotations

import os
from typing import Any, List

from . import task
from .wrapping import wrap_function

_NAMES = ("rmtree", "delete_recursively", "delete_recursively_v2")


def patch_module(module: Any) -> None:
    """Patch the functions of `module` that delete folders. `module`: shutil, or
    tensorflow.python.lib.io.file_io."""
    for name in _NAMES:
        if hasattr(module, name):
            wrap_function(module, name)(_delete_but_keep)


def _delete_but_keep(delete: Any, *args: Any, **kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("path", kwargs.get("dirname"))
    links = _find_keep_links(path)
    for link in links:
        os.unlink(link)
        task.print_once(
            "%s is a `keep` folder: the files of earlier runs in it are set aside, not deleted"
            % os.path.relpath(link)
        )
    return None if _path_text(path) in links else delete(*args, **kwargs)


def _path_text(path: Any) -> str:
    try:
        return os.fsdecode(path).rstrip("/")
    except TypeError:
        return ""


def _find_keep_links(path: Any) -> List[str]:
    """Return [path] if `path` itself is a link to a `keep` folder. Otherwise return all links to
    `keep` folders below `path`."""
    top = _path_text(path)
    if _is_keep_link(top):
        return [top]
    below = (os.path.join(folder, name) for folder, folders, _ in os.walk(top) for name in folders)
    return [each for each in below if _is_keep_link(each)]


def _is_keep_link(path: str) -> bool:
    job = os.environ.get("TFDEPLOY_TASK_JOB", "")
    return bool(job) and os.path.islink(path) and "/%s/keep/" % job in os.readlink(path)
