"""The rsyncs that run now. A fleet that closes ends those of its hosts, without loading what starts
them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Collection

from tfdeploy.transport.ssh.target import Target

_lock = threading.Lock()
_running: dict[subprocess.Popen[bytes], Target] = {}
_ended: set[subprocess.Popen[bytes]] = set()  # by us


def begun(process: subprocess.Popen[bytes], target: Target) -> None:
    with _lock:
        _running[process] = target


def gone(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was ended by `end`."""
    with _lock:
        _running.pop(process, None)
        interrupted = process in _ended
        _ended.discard(process)
    return interrupted


def end(targets: Collection[Target]) -> None:
    """Ends the transfers to these targets, their processes with them."""
    with _lock:
        mine = [process for process, target in _running.items() if target in targets]
        _ended.update(mine)
    for process in mine:
        send_signal(process, signal.SIGTERM)


def send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To all of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
