"""Open descriptors that one process of the agent leaves to the next, by name: "NAME=FD,..." in a variable of its environment."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Any, Dict, Mapping, Optional

VARIABLE = "TFDEPLOY_DESCRIPTORS"
_PORT = "port."


def leave(named: Mapping[str, int]) -> Dict[str, Any]:
    """Arguments for Popen: the child finds them by `take`. No environment is changed where there are none."""
    if not named:
        return {}
    said = ",".join("%s=%d" % pair for pair in named.items())
    return {"env": dict(os.environ, **{VARIABLE: said}), "pass_fds": list(named.values())}


def take() -> Dict[str, int]:
    """Those that are open. From now on children get them only by `leave`."""
    found: Dict[str, int] = {}
    for each in os.environ.pop(VARIABLE, "").split(","):
        name, _, number = each.partition("=")
        try:
            os.set_inheritable(int(number), False)
        except (OSError, ValueError):
            continue
        found[name] = int(number)
    return found


def of_ports(listening: Mapping[int, int]) -> Dict[str, int]:
    """By name. `listening`: port -> the descriptor of the socket that keeps it closed to strangers."""
    return {_PORT + str(port): descriptor for port, descriptor in listening.items()}


def of_port(named: Mapping[str, int], port: Optional[int]) -> Optional[int]:
    return named.get(_PORT + str(port))
