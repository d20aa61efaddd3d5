"""Make a program find this task when it looks up its own host name in a hard-coded list of hosts.

A program that calls `worker_hosts.index(socket.gethostname())` contains the names or addresses of
its author's machines. The plan assigns one of these names or addresses to each task
(planning/program/own_hosts.py). When the program's own code asks for the name or address of this
host, `socket` returns the assigned one. Other modules get the real name or address.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Callable

from . import task
from .wrapping import wrap_function

_ADDRESS = re.compile(r"[\d.]+")


def patch_module(socket_module: Any) -> None:
    """Patch the module socket. If a file of the program asks for the host name, it gets the host
    name that the plan assigns."""
    written = os.environ.get("TFDEPLOY_TASK_WRITTEN_HOST", "")
    if not written or not task.replaces_program_cluster():
        return
    folder, real = os.path.realpath(os.getcwd()) + os.sep, socket_module.gethostname()
    is_address = bool(_ADDRESS.fullmatch(written))
    resolve = socket_module.gethostbyname

    def replace(name: str, answer: Callable[..., str]) -> None:
        @wrap_function(socket_module, name)
        def replaced(original: Any, *args: Any) -> Any:
            if not _is_program_file(sys._getframe(2), folder):
                return original(*args)
            instead = answer(*args)
            task.print_once(
                "the program is told that its host is %s, which is in the program's list of hosts"
                % written
            )
            return instead

    def address_of(name: str) -> str:
        if name not in (real, written):
            return str(resolve(name))
        return written if is_address else str(resolve(real))

    replace("gethostname", lambda: real if is_address else written)
    replace("getfqdn", lambda *names: real if is_address else written)
    replace("gethostbyname", address_of)


def _is_program_file(frame: Any, folder: str) -> bool:
    """Return True if the file of the calling frame is in the program's folder."""
    path = os.path.realpath(frame.f_globals.get("__file__") or "")
    return path.startswith(folder)
