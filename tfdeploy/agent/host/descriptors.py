"""Pass the sockets that keep ports closed to strangers from one process of the agent to the next.
An environment variable names them, as "PORT=FD,..."."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Any, Dict, Mapping

VARIABLE = "TFDEPLOY_DESCRIPTORS"


def leave(listening: Mapping[int, int]) -> Dict[str, Any]:
    """Return the arguments of Popen that pass the sockets to a child. `listening`: port ->
    descriptor. The child reads them with `inherited_descriptors`. Without sockets the environment
    stays unchanged."""
    if not listening:
        return {}
    value = ",".join("%d=%d" % pair for pair in listening.items())
    return {"env": dict(os.environ, **{VARIABLE: value}), "pass_fds": list(listening.values())}


def inherited_descriptors() -> Dict[int, int]:
    """Return port -> descriptor of the inherited sockets that are open. From now on, a child
    inherits them only through `leave`."""
    descriptors: Dict[int, int] = {}
    for each in os.environ.pop(VARIABLE, "").split(","):
        port, _, descriptor = each.partition("=")
        try:
            os.set_inheritable(int(descriptor), False)
            descriptors[int(port)] = int(descriptor)
        except (OSError, ValueError):
            continue
    return descriptors
