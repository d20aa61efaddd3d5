"""Connect a session to the cluster of the plan, even if its target is hard-coded in the program
(`tf.Session("grpc://localhost:2222")`)."""

from __future__ import annotations

from typing import Any

from . import planned_cluster, task
from .wrapping import wrap_function


def patch_module(session_module: Any) -> None:
    """Patch the module tensorflow.python.client.session, so that sessions connect to the cluster of
    the plan."""
    if not task.replaces_program_cluster():
        return

    @wrap_function(session_module.BaseSession, "__init__")
    def init_planned(init: Any, self: Any, target: Any = "", *args: Any, **kwargs: Any) -> None:
        text = target.decode() if isinstance(target, bytes) else target
        init(
            self,
            planned_cluster.replace_target(text) if isinstance(text, str) and text else target,
            *args,
            **kwargs,
        )
