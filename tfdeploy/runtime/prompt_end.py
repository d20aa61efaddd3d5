"""Let a synchronous program end soon after its last step, with exit code 0.

The problem: the chief's queue runner for the tokens of SyncReplicasOptimizer blocks in a step that
no worker completes. Coordinator.join waits 120 s for it. Then MonitoredTrainingSession ends with 0,
and `sv.stop()` raises "Coordinator stopped with threads still running"
(tensorflow/python/training/coordinator.py, supervisor.py).

The patch: after a stop is requested, Coordinator.join waits at most 5 s for threads of queue
runners. Such threads are daemons and may still run when the program ends. All other threads, for
example one that writes a checkpoint, keep the grace period that the program gives.

Closing the session cancels the step in which a runner blocks. The runner's thread reports that as
an error: `sv.stop()` raises it, or the thread prints it after the join. The patch drops this error,
because the runner has just stopped.
"""

from __future__ import annotations

import threading
import time
from typing import Any, List

from . import synchronous
from .wrapping import around

# Most seconds to wait for threads of queue runners.
CAP_S = 5.0
# Seconds between two checks which threads are alive.
_POLL_S = 0.05
# TensorFlow's messages about a closed session.
_CLOSED = (
    "Session::Close()",
    "Session has been closed",
    "Session is closed",
    "Attempted to use a closed Session",
)


def apply(coordinator: Any) -> None:
    """Patch the module tensorflow.python.training.coordinator."""

    @around(coordinator.Coordinator, "join")
    def join_promptly(
        join: Any,
        self: Any,
        threads: Any = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> Any:
        if not synchronous.is_synchronous():
            return join(self, threads, stop_grace_period_secs, ignore_live_threads)
        waited = list(threads or ()) + list(getattr(self, "_registered_threads", ()))
        while _alive(waited) and not self.wait_for_stop(1.0):
            pass
        deadline = time.monotonic() + stop_grace_period_secs
        stuck = _only_runners_left(waited, stop_grace_period_secs)
        left_s = 0.0 if stuck else max(0.0, deadline - time.monotonic())
        return join(self, threads, left_s, ignore_live_threads or stuck)

    @around(coordinator.Coordinator, "request_stop")
    def request_stop_quietly(request_stop: Any, self: Any, ex: Any = None) -> Any:
        mine = _are_runners([threading.current_thread()])
        return request_stop(self, None if mine and _says_closed(ex) else ex)


def _says_closed(error: Any) -> bool:
    """Return True if the error only says that the session is closed. `error`: an exception, a tuple
    of sys.exc_info(), or None."""
    one = error[1] if isinstance(error, tuple) and len(error) == 3 else error
    return type(one).__name__ in ("CancelledError", "RuntimeError") and any(
        words in str(one) for words in _CLOSED
    )


def _only_runners_left(threads: List[Any], grace_s: float) -> bool:
    """Wait until all threads have ended, at most `grace_s`, and at most CAP_S if only queue runners
    are alive. Return True if queue runners, and no other threads, are alive then."""
    began = time.monotonic()
    alive = _alive(threads)
    while alive and time.monotonic() < began + grace_s:
        if _are_runners(alive) and time.monotonic() >= began + CAP_S:
            break
        time.sleep(_POLL_S)
        alive = _alive(threads)
    return bool(alive) and _are_runners(alive)


def _alive(threads: List[Any]) -> List[Any]:
    return [thread for thread in threads if thread.is_alive()]


def _are_runners(threads: List[Any]) -> bool:
    return all(thread.daemon and thread.name.startswith("QueueRunnerThread") for thread in threads)
