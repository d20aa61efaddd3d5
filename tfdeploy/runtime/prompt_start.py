"""A worker that is not chief starts within a second of the model being ready.

It checks whether the chief has initialised the model, nearly always a moment too early, and checks
again only after `recovery_wait_secs`: 30 s in SessionManager
(tensorflow/python/training/session_manager.py), which MonitoredTrainingSession cannot change, and
30 s in Supervisor. The same wait delays it after a ps came back. The patch replaces that default by
one second; a program's own value is kept.
"""

from __future__ import annotations

from typing import Any

from .wrapping import set_default

WAIT_S = 1


def apply(session_manager: Any) -> None:
    """`session_manager`: the module tensorflow.python.training.session_manager."""
    set_default(session_manager.SessionManager, "recovery_wait_secs", WAIT_S)
