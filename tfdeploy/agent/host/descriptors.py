"""Sockets that keep ports closed to strangers: one process of the agent leaves its descriptors to
the next, as "PORT=FD,..." in a variable of its environment."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Any, Dict, Mapping

VARIABLE = "TFDEPLOY_DESCRIPTORS"


def leave(listening: Mapping[int, int]) -> Dict[str, Any]:
    """Arguments for Popen: the child finds port -> descriptor by `take`. No environment is changed
    where there are none."""
    if not listening:
        return {}
    value = ",".join("%d=%d" % pair for pair in listening.items())
    return {"env": dict(os.environ, **{VARIABLE: value}), "pass_fds": list(listening.values())}


def inherited_descriptors() -> Dict[int, int]:
    """Port -> descriptor of those that are open. From now on children get them only by `leave`."""
    descriptors: Dict[int, int] = {}
    for each in os.environ.pop(VARIABLE, "").split(","):
        port, _, descriptor = each.partition("=")
        try:
            os.set_inheritable(int(descriptor), False)
            descriptors[int(port)] = int(descriptor)
        except (OSError, ValueError):
            continue
    return descriptors
