"""Pass sockets from one process of the agent to the next. The agent uses these sockets to keep
connections from outside the run away from the run's ports (host/network/guarded_ports.py). The
environment variable VARIABLE lists the sockets as "PORT=FD,..."."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Any, Dict, Mapping

VARIABLE = "TFDEPLOY_DESCRIPTORS"


def popen_arguments(fd_by_port: Mapping[int, int]) -> Dict[str, Any]:
    """Return the arguments of Popen that pass the sockets to a child process. `fd_by_port`: port ->
    descriptor of the socket. The child reads the descriptors with `inherited_descriptors`. Return
    {} if there are no sockets."""
    if not fd_by_port:
        return {}
    value = ",".join("%d=%d" % pair for pair in fd_by_port.items())
    return {"env": dict(os.environ, **{VARIABLE: value}), "pass_fds": list(fd_by_port.values())}


def inherited_descriptors() -> Dict[int, int]:
    """Return port -> descriptor, for the sockets that this process has inherited and that are open.
    From now on, child processes inherit them only if `popen_arguments` passes them."""
    descriptors = {}
    for each in os.environ.pop(VARIABLE, "").split(","):
        port, _, descriptor = each.partition("=")
        try:
            os.set_inheritable(int(descriptor), False)
            descriptors[int(port)] = int(descriptor)
        except (OSError, ValueError):
            continue
    return descriptors
