"""Accept arguments and methods that later TensorFlow versions dropped.

A dropped argument is ignored, and a dropped method calls its replacement.

Programs from before TensorFlow 1.2 pass `SyncReplicasOptimizer(replica_id=...)` and
`BasicLSTMCell(input_size=...)`. They call `get_clean_up_op()`, which returned the operation that
closes the queue of tokens, and `FLAGS._parse_flags()`, which TensorFlow 1.5 dropped. Programs from
before TensorFlow 1.0 import `rnn` from `tensorflow.python.ops`. The patch is active only with
TFDEPLOY_TASK_COMPAT=v1.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from .. import task
from ..wrapping import wrap_function

# Class -> the argument of its constructor that TensorFlow dropped.
_ARGUMENTS = {
    "SyncReplicasOptimizer": "replica_id",
    "BasicRNNCell": "input_size",
    "GRUCell": "input_size",
    "BasicLSTMCell": "input_size",
    "LSTMCell": "input_size",
}
# Functions of tensorflow.python.ops.rnn whose present names begin with "static_".
_STATIC = ("rnn", "bidirectional_rnn", "state_saving_rnn")


def patch_module(module: Any) -> None:
    """Patch a module of TensorFlow or tf_keras. Names in this file that the module does not have
    are skipped."""
    for name, argument in _ARGUMENTS.items():
        if hasattr(module, name):
            _ignore_argument(getattr(module, name), name, argument)
    for old in _STATIC:
        if hasattr(module, "static_" + old):
            _set_if_missing(module, old, getattr(module, "static_" + old))
    if hasattr(module, "SyncReplicasOptimizer"):
        _set_if_missing(module.SyncReplicasOptimizer, "get_clean_up_op", _get_clean_up_op)
    if hasattr(module, "_FlagValuesWrapper"):
        _set_if_missing(module.FlagValues, "_parse_flags", _parse_flags)


def _ignore_argument(cls: Any, name: str, argument: str) -> None:
    taken = inspect.signature(cls.__init__).parameters

    @wrap_function(cls, "__init__")
    def init_without(init: Any, *args: Any, **kwargs: Any) -> None:
        if argument in kwargs and argument not in taken:
            del kwargs[argument]
            task.print_once(
                "%s(%s=...) means nothing in this TensorFlow and is ignored" % (name, argument)
            )
        init(*args, **kwargs)


def _set_if_missing(where: Any, name: str, value: Any) -> None:
    if not hasattr(where, name):
        setattr(where, name, value)


def _get_clean_up_op(self: Any) -> Any:
    """Return the operation that closes the queue of tokens.

    SyncReplicasOptimizer.get_clean_up_op did the same. Raises ValueError if apply_gradients has not
    been called before."""
    if self._sync_token_queue is None:
        raise ValueError("get_clean_up_op() should be called after apply_gradients().")
    return self._sync_token_queue.close(cancel_pending_enqueues=True)


def _parse_flags(self: Any, args: Any = None) -> None:
    self(sys.argv if args is None else [sys.argv[0], *args])
