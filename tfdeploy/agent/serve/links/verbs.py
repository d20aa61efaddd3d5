"""Answers check.listen, check.knock and check.measure, which test whether hosts reach each other.
`tfdeploy check` calls them; no run is needed."""

from __future__ import annotations

import re
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.serve.links.knock import PortTarget
    from tfdeploy.agent.shapes import Answer

MOST_S = 3600.0
MOST_PORTS = 64
MOST_LINKS = 20_000
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_ADDRESS = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:%-]{0,254}\Z|::[0-9A-Fa-f:.]*\Z")


def listen_on_ports(call: Call) -> Answer:
    """Listen on these ports until the call is cancelled, and send the token to every client. A
    client that answers with the key may measure the link. Only hosts of this preflight have the
    key.

    Args: ports, token, key, seconds (end after this time).

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links.listener import Listener

    ports = [_checked_port(port) for port in call.rows("ports")[:MOST_PORTS]]
    until = time.monotonic() + min(call.number("seconds") or 60.0, MOST_S)
    with Listener(ports, _checked_hex(call, "token"), _checked_hex(call, "key")) as listener:
        call.item({"ports": listener.ports, "taken": listener.taken}, b"")
        listener.serve(lambda: call.cancelled.is_set() or time.monotonic() >= until)
    return {}


def try_links(call: Call) -> Answer:
    """Connect to these ports of other hosts at once, and report those that do not work.

    Args: links [[address, port, token], ...].

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links.knock import find_failing_ports

    targets = [_parse_target(row) for row in call.rows("links", str, int, str)[:MOST_LINKS]]
    failures = sorted(find_failing_ports(targets).items())
    return {"asked": len(targets), "failed": [(index, *failure) for index, failure in failures]}


def measure_one_link(call: Call) -> Answer:
    """Measure the link to one listening host: the round-trip time, and half a second of data in
    each direction.

    Args: link [address, port, token], key.

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links import speed as link_speed

    target, key = _parse_target(call.rows("link")), _checked_hex(call, "key")
    answer: Answer = dict.fromkeys(("ms", "to_mbit_s", "from_mbit_s"))
    try:
        ms, to, back = link_speed.measure_link(target, key)
    except (OSError, ValueError, link_speed.MeasurementFailed) as error:
        return {**answer, "why": (str(error) or type(error).__name__)[:200]}
    return {"ms": ms, "to_mbit_s": to, "from_mbit_s": back, "why": ""}


def _parse_target(row: Any) -> PortTarget:
    from tfdeploy.agent.serve.links.knock import PortTarget

    types = [str, int, str]
    if [*map(type, row)] != types or not _ADDRESS.match(row[0]) or not _HEX.match(row[2]):
        raise VerbError("bad_argument", "%.200r is not [address, port, token]" % (row,))
    return PortTarget(row[0], _checked_port(row[1]), row[2])


def _checked_port(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 65535:
        raise VerbError("bad_argument", "%.200r is no port" % (value,))
    return value


def _checked_hex(call: Call, key: str) -> str:
    value = call.text(key)
    if not _HEX.match(value):
        raise VerbError("bad_argument", "%s is not 32 hexadecimal digits" % key)
    return value


VERBS: Dict[str, Verb] = {
    "check.listen": listen_on_ports,
    "check.knock": try_links,
    "check.measure": measure_one_link,
}
