"""Keep a list of the running rsync processes, so that a fleet can end the transfers of its hosts.

A fleet imports only this module, and not the code that starts rsync.
"""

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
_ended: set[subprocess.Popen[bytes]] = set()  # processes that `end_transfers` has ended


def add_transfer(process: subprocess.Popen[bytes], target: Target) -> None:
    """Add a started process to the list."""
    with _lock:
        _running[process] = target


def remove_transfer(process: subprocess.Popen[bytes]) -> bool:
    """Remove an ended process from the list. Return True if `end_transfers` ended the process."""
    with _lock:
        _running.pop(process, None)
        interrupted = process in _ended
        _ended.discard(process)
    return interrupted


def end_transfers(targets: Collection[Target]) -> None:
    """End the rsync processes of these targets, with their child processes.

    Targets are compared by identity. An equal target may belong to another fleet of this process,
    whose transfers must continue.
    """
    target_ids = {id(target) for target in targets}
    with _lock:
        processes = [process for process, target in _running.items() if id(target) in target_ids]
        _ended.update(processes)
    for process in processes:
        send_signal(process, signal.SIGTERM)


def send_signal(process: subprocess.Popen[bytes], signal_number: int) -> None:
    """Send the signal to all processes in the process's group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal_number)
