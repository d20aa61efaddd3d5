"""Pass sockets from one process of the agent to the next. These sockets keep the ports of a run
closed to strangers. The environment variable VARIABLE lists them as "PORT=FD,..."."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Any, Dict, Mapping

VARIABLE = "TFDEPLOY_DESCRIPTORS"


def pass_to_child(listening: Mapping[int, int]) -> Dict[str, Any]:
    """Return the arguments of Popen that pass the sockets to a child process. `listening`: port ->
    descriptor of the socket. The child reads the descriptors with `inherited_descriptors`. If there
    are no sockets, there are no arguments."""
    if not listening:
        return {}
    value = ",".join("%d=%d" % pair for pair in listening.items())
    return {"env": dict(os.environ, **{VARIABLE: value}), "pass_fds": list(listening.values())}


def inherited_descriptors() -> Dict[int, int]:
    """Return port -> descriptor, for the inherited sockets that are open. From now on, child
    processes inherit these sockets only if `pass_to_child` passes them."""
    descriptors = {}
    for each in os.environ.pop(VARIABLE, "").split(","):
        port, _, descriptor = each.partition("=")
        try:
            os.set_inheritable(int(descriptor), False)
            descriptors[int(port)] = int(descriptor)
        except (OSError, ValueError):
            continue
    return descriptors
