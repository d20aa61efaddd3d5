"""Keep a ps alive until the end of the run, although its program has ended successfully.

In many programs a ps does not call `server.join()`, which never returns. Instead, the ps waits
until every worker has put an element into a queue ("done_queue"), and then ends with 0. At that
time the chief may still evaluate, save or close its session.

Without the patch, tfdeploy would take this early end for a failure. It would restart the ps or, in
synchronous mode, all tasks together, and values that are not saved would be lost. With the patch,
the ps waits for the signal TERM before it ends. A ps that fails ends at once, and so does a ps that
never had a session in which it could wait.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import Any, List, Tuple

from . import task
from .wrapping import call_after_init, wrap_function

# (pid of the process that started a server, the server). A server serves only as long as a variable
# refers to it.
_served: List[Tuple[int, Any]] = []
_had_session: List[bool] = []
_failed: List[bool] = []


def patch_module(module: Any) -> None:
    """Patch `module`, which is tensorflow.python.training.server_lib or
    tensorflow.python.client.session."""
    if task.role() != "ps" or not task.has_trait("lasting_ps"):
        return
    if hasattr(module, "Server"):
        call_after_init(module.Server, _record_server)
        _record_failed_exits()
    else:
        call_after_init(module.BaseSession, lambda _: _had_session.append(True))


def _record_server(server: Any) -> None:
    if not _served:
        atexit.register(_wait_for_sigterm)
    _served.append((os.getpid(), server))


def _record_failed_exits() -> None:
    @wrap_function(sys, "exit")
    def leave_noted(leave: Any, status: Any = None, /) -> Any:
        if status not in (None, 0):
            _failed.append(True)
        leave(status)


def _wait_for_sigterm() -> None:
    """Wait for the signal TERM, which ends the process. Return at once if the program has failed,
    if this process never had a session, or if it is a fork of the process with the server."""
    if _failed or not _had_session or hasattr(sys, "last_value") or _served[0][0] != os.getpid():
        return
    task.print_once("this ps is done; it waits for the end of the run")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(3600)
