"""A worker that is not chief starts within a second of the model being ready.

It checks whether the chief has initialised the model, nearly always a moment too early, and checks again only
after `recovery_wait_secs`: 30 s in SessionManager (tensorflow/python/training/session_manager.py), which
MonitoredTrainingSession cannot change, and 30 s in Supervisor. The same wait delays it after a ps came back.
The patch replaces that default by one second; a program's own value is kept.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

WAIT_S = 1


def apply(session_manager: Any) -> None:
    """`session_manager`: the module tensorflow.python.training.session_manager."""
    cls = session_manager.SessionManager
    init = cls.__init__
    signature = inspect.signature(init)
    default = signature.parameters["recovery_wait_secs"].default

    @functools.wraps(init)
    def init_prompt(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        if given.arguments.get("recovery_wait_secs", default) == default:
            given.arguments["recovery_wait_secs"] = WAIT_S
        init(*given.args, **given.kwargs)

    cls.__init__ = init_prompt
