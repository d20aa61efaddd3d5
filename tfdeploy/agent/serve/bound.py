"""Runs a program until standard input closes (`bound FOLDER PROGRAM WORD...`), then ends the
program and all processes that it started.

The agent's `serve` process holds the other end of standard input. When that process ends, for
whatever reason, the program is ended too. FOLDER is the working directory and TMPDIR of the
program. The folder is created first and removed at the end.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time

from tfdeploy.agent.annotations import List, Set
from tfdeploy.agent.host import processes

GRACE_S = 3.0  # time between TERM and KILL
_POLL_S = 0.05
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main(argv: List[str]) -> int:
    """Run the program and return its exit code, or 128 + signal if a signal ended it."""
    if len(argv) < 2 or not os.path.isabs(argv[0]):
        sys.stderr.write("usage: bound ABSOLUTE_FOLDER PROGRAM WORD...\n")
        return 2
    os.umask(0o077)
    for ignored in _SIGNALS:
        # Ignore these signals, so that only the end of standard input ends this process. Otherwise
        # this process could die before it has ended the program.
        signal.signal(ignored, signal.SIG_IGN)
    processes.become_subreaper()
    os.makedirs(argv[0], exist_ok=True)
    try:
        return _run_until_input_closes(argv[0], argv[1:])
    finally:
        shutil.rmtree(argv[0], ignore_errors=True)


def _run_until_input_closes(folder: str, argv: List[str]) -> int:
    parent = os.getpid()

    def begin() -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        processes.die_with_parent(parent)

    try:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=dict(os.environ, TMPDIR=folder),
            preexec_fn=begin,
        )
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write("cannot start %s: %s\n" % (argv[0], error))
        return 127
    while program.poll() is None:
        if select.select([0], [], [], _POLL_S)[0] and not os.read(0, 4096):
            break
    _end_descendants()
    code = program.wait()
    return code if code >= 0 else 128 - code


def _end_descendants() -> None:
    """Send TERM to all descendants, and KILL to those that are alive after GRACE_S. Return when
    none is alive."""
    kill_at = time.monotonic() + GRACE_S
    signalled: Set[int] = set()
    while True:
        table = processes.all_processes()
        alive = processes.descendants([os.getpid()], table)
        if not alive:
            return
        if time.monotonic() >= kill_at:
            processes.send_signals(alive, table, signal.SIGKILL)
        else:
            processes.send_signals(alive - signalled, table, signal.SIGTERM)
            signalled |= alive
        time.sleep(_POLL_S)
