"""Keep a ps alive until the end of the run, although its program has ended successfully.

In many programs a ps does not call `server.join()`, which never returns. It waits on a queue
("done_queue") in which every worker puts an element when it is done, and then ends with 0. At that
time the chief may still evaluate, save or close its session.

The run would take this end for a failure. It would restart the ps, in synchronous mode the whole
gang, and lose values that are not saved. So the ps waits for its TERM signal. A ps that fails ends
at once, and so does a ps that never had a session in which it could wait.
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

# The pid that started a server, and the server, which serves only as long as it is referenced.
_served: List[Tuple[int, Any]] = []
_had_session: List[bool] = []
_failed: List[bool] = []


def apply(module: Any) -> None:
    """Patch `module`: tensorflow.python.training.server_lib, or
    tensorflow.python.client.session."""
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
    """Wait for TERM, which ends the process. Return at once after an error, without a session, or
    in a fork of the server's process."""
    if _failed or not _had_session or hasattr(sys, "last_value") or _served[0][0] != os.getpid():
        return
    task.say("this ps is done; it waits for the end of the run")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(3600)
