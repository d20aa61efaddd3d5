"""Let a synchronous program end soon after its last step, with exit code 0.

The problem: the chief has a queue runner (for the tokens of SyncReplicasOptimizer) that blocks in a
step that no worker completes. Coordinator.join waits 120 s for this queue runner. After that,
MonitoredTrainingSession ends with 0, but `sv.stop()` raises "Coordinator stopped with threads still
running" (tensorflow/python/training/coordinator.py, supervisor.py).

The patch: after a stop is requested, Coordinator.join waits at most 5 s for threads of queue
runners. Such threads are daemons, so the program can end while they still run. For all other
threads, for example one that writes a checkpoint, the grace period of the program remains.

Closing the session cancels the step in which a queue runner blocks. The thread of the queue runner
reports the cancellation as an error: `sv.stop()` raises this error, or the thread prints it after
the join. The patch drops the error, because it says only that the session is closed.
"""

from __future__ import annotations

import threading
import time
from typing import Any, List

from . import synchronous
from .wrapping import wrap_function

# The maximum number of seconds to wait for threads of queue runners.
CAP_S = 5.0
# Seconds between two checks of which threads are alive.
_POLL_S = 0.05
# TensorFlow's messages about a closed session.
_CLOSED = (
    "Session::Close()",
    "Session has been closed",
    "Session is closed",
    "Attempted to use a closed Session",
)


def patch_module(coordinator_module: Any) -> None:
    """Patch the functions `join` and `request_stop` of tensorflow.python.training.coordinator."""

    @wrap_function(coordinator_module.Coordinator, "join")
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
        while _select_alive(waited) and not self.wait_for_stop(1.0):
            pass
        deadline = time.monotonic() + stop_grace_period_secs
        stuck = _await_threads(waited, stop_grace_period_secs)
        left_s = 0.0 if stuck else max(0.0, deadline - time.monotonic())
        return join(self, threads, left_s, ignore_live_threads or stuck)

    @wrap_function(coordinator_module.Coordinator, "request_stop")
    def request_stop_quietly(request_stop: Any, self: Any, ex: Any = None) -> Any:
        mine = _are_queue_runners([threading.current_thread()])
        return request_stop(self, None if mine and _is_session_closed_error(ex) else ex)


def _is_session_closed_error(error: Any) -> bool:
    """Return True if the error says only that the session is closed. `error`: an exception, a tuple
    that sys.exc_info() has returned, or None."""
    exception = error[1] if isinstance(error, tuple) and len(error) == 3 else error
    return type(exception).__name__ in ("CancelledError", "RuntimeError") and any(
        message in str(exception) for message in _CLOSED
    )


def _await_threads(threads: List[Any], grace_s: float) -> bool:
    """Wait until all threads have ended, but at most `grace_s` seconds, or at most CAP_S seconds if
    only queue runners are alive. Return True if some threads are alive after the wait and all of
    them are queue runners."""
    begin_s = time.monotonic()
    alive = _select_alive(threads)
    while alive and time.monotonic() < begin_s + grace_s:
        if _are_queue_runners(alive) and time.monotonic() >= begin_s + CAP_S:
            break
        time.sleep(_POLL_S)
        alive = _select_alive(threads)
    return bool(alive) and _are_queue_runners(alive)


def _select_alive(threads: List[Any]) -> List[Any]:
    return [thread for thread in threads if thread.is_alive()]


def _are_queue_runners(threads: List[Any]) -> bool:
    return all(thread.daemon and thread.name.startswith("QueueRunnerThread") for thread in threads)
