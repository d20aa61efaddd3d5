"""A ps whose own program ends well, after it has waited for the workers, waits for the end of the run.

Cause: in place of `server.join()`, which never returns, many programs let each ps wait on a queue ("done_queue") into which
every worker puts a word when it is done; then the ps ends with 0. The chief may still evaluate, save or close its session
then. To the run such an end is a death: it would start the ps again, in synchronous mode the whole gang, and lose
what was not saved. So the ps waits until it is told to end, as every other does. One that fails ends at once, and so does
one that never had a session in which to wait: it forgot to, and is no success.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import time
from typing import Any, Callable, List, Tuple

from . import task

_served: List[Tuple[int, Any]] = []  # the process that started a server, and the server: it serves as long as it is referred to
_asked: List[bool] = []  # it had a session
_failed: List[bool] = []


def apply(module: Any) -> None:
    """`module`: tensorflow.python.training.server_lib, or tensorflow.python.client.session."""
    if task.role() != "ps" or not task.has("lasting_ps"):
        return
    if hasattr(module, "Server"):
        _note(module.Server, _serves)
        _note_exits()
    else:
        _note(module.BaseSession, lambda _: _asked.append(True))


def _note(cls: Any, made: Callable[[Any], None]) -> None:
    init = cls.__init__

    @functools.wraps(init)
    def init_noted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made(self)

    cls.__init__ = init_noted


def _serves(server: Any) -> None:
    if not _served:
        atexit.register(_wait)
    _served.append((os.getpid(), server))


def _note_exits() -> None:
    leave = sys.exit

    @functools.wraps(leave)
    def leave_noted(status: Any = None, /) -> Any:
        if status not in (None, 0):
            _failed.append(True)
        leave(status)

    sys.exit = leave_noted


def _wait() -> None:
    """Until TERM, which ends the process as ever. Not after an error, and not in a process that the server's has forked."""
    if _failed or not _asked or hasattr(sys, "last_value") or _served[0][0] != os.getpid():
        return
    task.say("this ps is done; it waits for the end of the run")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(3600)
