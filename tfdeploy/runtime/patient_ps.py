"""A ps whose program ends successfully, after it has waited for the workers, stays until the end of
the run.

Instead of `server.join()`, which never returns, many programs let each ps wait on a queue
("done_queue") in which every worker puts an element when it is done; then the ps ends with 0. The
chief may still evaluate, save or close its session. The run takes such an end for a failure: it
would restart the ps, in synchronous mode the whole gang, and lose what was not saved. So the ps
waits for its TERM signal. A ps that fails ends at once, and so does one that never had a session to
wait in.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import Any, List, Tuple

from . import task
from .wrapping import after_init, around

# the process that started a server, and the server: it serves as long as it is referred to
_served: List[Tuple[int, Any]] = []
_had_session: List[bool] = []
_failed: List[bool] = []


def apply(module: Any) -> None:
    """`module`: tensorflow.python.training.server_lib, or tensorflow.python.client.session."""
    if task.role() != "ps" or not task.has("lasting_ps"):
        return
    if hasattr(module, "Server"):
        after_init(module.Server, _serves)
        _note_exits()
    else:
        after_init(module.BaseSession, lambda _: _had_session.append(True))


def _serves(server: Any) -> None:
    if not _served:
        atexit.register(_wait)
    _served.append((os.getpid(), server))


def _note_exits() -> None:
    @around(sys, "exit")
    def leave_noted(leave: Any, status: Any = None, /) -> Any:
        if status not in (None, 0):
            _failed.append(True)
        leave(status)


def _wait() -> None:
    """Wait for TERM, which ends the process. Not after an error, and not in a fork of the server's
    process."""
    if _failed or not _had_session or hasattr(sys, "last_value") or _served[0][0] != os.getpid():
        return
    task.say("this ps is done; it waits for the end of the run")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(3600)
