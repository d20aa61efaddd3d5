"""Let a worker start within a second after the chief has initialised the model.

The problem: a worker that is not the chief checks whether the model is ready, and nearly always a
moment too early. The worker checks again only after `recovery_wait_secs`. The default is 30 s in
Supervisor and in SessionManager (tensorflow/python/training/session_manager.py), and a program that
uses MonitoredTrainingSession cannot change it. The same wait delays a worker after the restart of a
ps.

The patch: the default of `recovery_wait_secs` is one second. A value that the program passes is
kept.
"""

from __future__ import annotations

from typing import Any

from .wrapping import set_default_argument

WAIT_S = 1


def patch_module(session_manager_module: Any) -> None:
    """Patch the module tensorflow.python.training.session_manager, so that a worker checks every
    second whether the model is ready."""
    set_default_argument(session_manager_module.SessionManager, "recovery_wait_secs", WAIT_S)
