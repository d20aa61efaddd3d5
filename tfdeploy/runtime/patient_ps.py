"""A ps whose own program ends well, after it has served, waits for the end of the run.

Cause: in place of `server.join()`, which never returns, many programs let each ps wait on a queue ("done_queue") into which
every worker puts a word when it is done; then the ps ends with 0. The chief may still evaluate, save or close its session
then. To the run such an end is a death: it would start the ps again, in synchronous mode the whole gang, and lose
what was not saved. So the ps waits until it is told to end, as every other does. One that fails ends at once.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import time
from typing import Any, List, Tuple

from . import task

_served: List[Tuple[int, Any]] = []  # the process that started a server, and the server: it serves as long as it is referred to
_failed: List[bool] = []


def apply(server_lib: Any) -> None:
    """`server_lib`: the module tensorflow.python.training.server_lib."""
    if task.role() != "ps" or task.mode() not in ("async", "sync"):
        return
    start, leave = server_lib.Server.__init__, sys.exit

    @functools.wraps(start)
    def start_noted(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        if not _served:
            atexit.register(_wait)
        _served.append((os.getpid(), self))

    @functools.wraps(leave)
    def leave_noted(status: Any = None, /) -> Any:
        if status not in (None, 0):
            _failed.append(True)
        leave(status)

    server_lib.Server.__init__ = start_noted
    sys.exit = leave_noted


def _wait() -> None:
    """Until TERM, which ends the process as ever. Not after an error, and not in a process that the server's has forked."""
    if _failed or hasattr(sys, "last_value") or _served[0][0] != os.getpid():
        return
    task.say("this ps is done; it waits for the end of the run")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(3600)
