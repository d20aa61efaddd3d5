"""Closes the queue of tokens once a synchronous chief has finished, so that no worker waits for
tokens.

Only a queue runner of the chief puts tokens into the queue. A chief that stops it (`sv.stop()`,
MonitoredTrainingSession) closes the queue. If its program just ends, as in many tutorials, the
other workers wait in `dequeue` forever (tensorflow/python/training/sync_replicas_optimizer.py). The
agent's minder writes a file once the deciding tasks have succeeded. Remaining tokens can still be
taken; then comes OutOfRangeError, the end of training (left_behind.py).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, List

from . import task
from .wrapping import after_init, around

_POLL_S = 1.0
_closing: List[Any] = []  # operations that close a queue of tokens
_sessions: Any = weakref.WeakSet()  # opened by this process


def chief_has_finished() -> bool:
    folder = os.environ.get("TFDEPLOY_TASK_FOLDER")  # agent/minder/minder.py writes there
    return folder is not None and os.path.exists(os.path.join(folder, "decided"))


def apply(module: Any) -> None:
    """`module`: tensorflow.python.training.sync_replicas_optimizer, or
    tensorflow.python.client.session."""
    if hasattr(module, "BaseSession"):
        after_init(module.BaseSession, _sessions.add)
    if hasattr(module, "SyncReplicasOptimizer"):
        _add_close(module.SyncReplicasOptimizer)


def _add_close(cls: Any) -> None:
    @around(cls, "apply_gradients")
    def apply_with_close(apply_gradients: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        train = apply_gradients(self, *args, **kwargs)
        try:
            _closing.append(self._sync_token_queue.close(name="no_more_tokens"))
            if len(_closing) == 1:
                threading.Thread(target=_watch, name="no_more_tokens", daemon=True).start()
        except Exception as error:  # noqa: BLE001 the program trains as it did
            task.say_failed("no_more_tokens", error)
        return train


def _watch() -> None:
    while True:
        time.sleep(_POLL_S)
        while _sessions and chief_has_finished():
            _close_queues_of_one_session()


def _close_queues_of_one_session() -> None:
    try:
        session = _sessions.pop()
    except KeyError:  # garbage collected since
        return
    for close in _closing:
        try:
            if close.graph is session.graph:
                task.say("the chief has finished: no tokens come any more")
                session.run(close)
        except Exception:  # noqa: BLE001 closed by the chief, by another worker, or with its session
            pass
