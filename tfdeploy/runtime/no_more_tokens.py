"""Close the queue of tokens when a synchronous chief has finished, so that no worker waits forever.

Only a queue runner of the chief puts tokens into the queue. A chief that stops the runner
(`sv.stop()`, MonitoredTrainingSession) also closes the queue. If the chief's program just ends, as
in many tutorials, the other workers wait in `dequeue` forever
(tensorflow/python/training/sync_replicas_optimizer.py).

When the tasks that decide the success of the run have succeeded, the agent on each host writes a
file. A worker that sees this file closes the queue. Workers can still take the remaining tokens.
After that they get OutOfRangeError, which means the end of training (left_behind.py).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, List

from . import task
from .wrapping import call_after_init, report_errors, wrap_function

# Seconds between two checks of whether the chief has finished.
_POLL_S = 1.0
# For each SyncReplicasOptimizer: the operation that closes its queue of tokens.
_closing: List[Any] = []
# Sessions that this process has opened and in which the operations of `_closing` have not run yet.
_sessions: Any = weakref.WeakSet()


def chief_has_finished() -> bool:
    """Return True if all deciding tasks, usually only the chief, have succeeded.

    The agent (agent/minder/minder.py) records this success in a file."""
    folder = os.environ.get("TFDEPLOY_TASK_FOLDER")
    return folder is not None and os.path.exists(os.path.join(folder, "decided"))


def patch_module(module: Any) -> None:
    """Patch `module`, which is tensorflow.python.training.sync_replicas_optimizer or
    tensorflow.python.client.session."""
    if hasattr(module, "BaseSession"):
        call_after_init(module.BaseSession, _sessions.add)
    if hasattr(module, "SyncReplicasOptimizer"):
        _add_close_operation(module.SyncReplicasOptimizer)


def _add_close_operation(cls: Any) -> None:
    @wrap_function(cls, "apply_gradients")
    def apply_with_close(apply_gradients: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        train = apply_gradients(self, *args, **kwargs)
        with report_errors("no_more_tokens"):
            _closing.append(self._sync_token_queue.close(name="no_more_tokens"))
            if len(_closing) == 1:
                threading.Thread(
                    target=_close_queues_after_chief, name="no_more_tokens", daemon=True
                ).start()
        return train


def _close_queues_after_chief() -> None:
    while True:
        time.sleep(_POLL_S)
        while _sessions and chief_has_finished():
            _close_queues_of_one_session()


def _close_queues_of_one_session() -> None:
    try:
        session = _sessions.pop()
    except KeyError:
        # The last session has just been garbage collected.
        return
    for close in _closing:
        try:
            if close.graph is session.graph:
                task.print_once("the chief has finished, so this worker gets no more tokens")
                session.run(close)
        except Exception:  # noqa: BLE001
            # The queue of tokens or the session is already closed, so no worker waits for it.
            pass
