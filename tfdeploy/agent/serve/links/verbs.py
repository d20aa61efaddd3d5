"""check.listen, check.knock, check.measure: whether hosts reach each other, without a run.
`tfdeploy check` asks them."""

from __future__ import annotations

import re
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.serve.links.knock import Knock
    from tfdeploy.agent.shapes import Answer

MOST_S = 3600.0
MOST_PORTS = 64
MOST_LINKS = 20_000
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_ADDRESS = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:%-]{0,254}\Z|::[0-9A-Fa-f:.]*\Z")


def listen(call: Call) -> Answer:
    """Listen on these ports until the call is cancelled, and send the token, nothing else, to
    whoever connects. Who answers it with the key, which only hosts of this preflight have, may
    measure the link.

    Args: ports, token, key, seconds (at most).

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links.listener import Listener

    ports = [_port(port) for port in call.rows("ports")[:MOST_PORTS]]
    until = time.monotonic() + min(call.number("seconds") or 60.0, MOST_S)
    with Listener(ports, _hex(call, "token"), _hex(call, "key")) as listener:
        call.item({"ports": listener.ports, "taken": listener.taken}, b"")
        listener.serve(lambda: call.cancelled.is_set() or time.monotonic() >= until)
    return {}


def knock(call: Call) -> Answer:
    """Connect to all the links at once, and say which do not work.

    Args: links [[address, port, token], ...].

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links.knock import knock_all

    asked = [_knock_of(row) for row in call.rows("links")[:MOST_LINKS]]
    failed = knock_all(asked)
    return {
        "asked": len(asked),
        "failed": [(place, each.why, each.detail) for place, each in sorted(failed.items())],
    }


def measure(call: Call) -> Answer:
    """Measure the link to one host that listens: there and back, and half a second in each
    direction.

    Args: link [address, port, token], key.

    Raises VerbError bad_argument.
    """
    from tfdeploy.agent.serve.links import speed as link_speed

    asked, key = _knock_of(call.rows("link")), _hex(call, "key")
    try:
        ms, to, back = link_speed.measure(asked, key)
    except (OSError, ValueError, link_speed.Unmeasured) as error:
        return {
            "ms": None,
            "to_mbit_s": None,
            "from_mbit_s": None,
            "why": (str(error) or type(error).__name__)[:200],
        }
    return {"ms": ms, "to_mbit_s": to, "from_mbit_s": back, "why": ""}


def _knock_of(row: Any) -> Knock:
    from tfdeploy.agent.serve.links.knock import Knock

    if (
        not isinstance(row, (list, tuple))
        or len(row) != 3
        or not all(isinstance(word, str) for word in (row[0], row[2]))
    ):
        raise VerbError("bad_argument", "%.200r is not [address, port, token]" % (row,))
    if not _ADDRESS.match(row[0]) or not _HEX.match(row[2]):
        raise VerbError("bad_argument", "%.200r is not [address, port, token]" % (row,))
    return Knock(row[0], _port(row[1]), row[2])


def _port(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise VerbError("bad_argument", "%.200r is no port" % (value,))
    return value


def _hex(call: Call, key: str) -> str:
    value = call.text(key)
    if not _HEX.match(value):
        raise VerbError("bad_argument", "%s is not 32 hexadecimal digits" % key)
    return value


VERBS: Dict[str, Verb] = {"check.listen": listen, "check.knock": knock, "check.measure": measure}
