"""What a verb is given and how it says no. Every verb is a function of one Call; see docs/agent-protocol.md.

A module of verbs ends in `VERBS = {"name": function}`; serve collects them. A verb returns JSON-able values; streams
hand out items with `call.item` and return when `call.cancelled` is set.
"""

from __future__ import annotations

import threading

from tfdeploy.agent.annotations import Any, Callable, Dict, Optional
from tfdeploy.agent.errors import NAME, VerbError


class Context:
    """One per serve process. `closing` holds what must be let go when the session ends (locks)."""

    def __init__(self, workdir: str, agent_dir: str, host: str = "") -> None:
        self.workdir = workdir  # absolute
        self.host = host  # what the inventory of this session calls this machine
        self.agent_dir = agent_dir  # the unpacked agent: `python -S -E agent_dir VERB` starts it again
        self.closing = {}  # type: Dict[str, Callable[[], None]]


class Call:
    def __init__(
        self,
        context: Context,
        args: Dict[str, Any],
        blob: bytes = b"",
        item: Optional[Callable[[Dict[str, Any], bytes], None]] = None,
        cancelled: Optional[threading.Event] = None,
    ) -> None:
        self.context = context
        self.args = args
        self.blob = blob
        self.item = item or (lambda header, blob: None)
        self.cancelled = cancelled or threading.Event()

    def name(self, key: str) -> str:
        """A name that is safe in a path: allow-list, or VerbError bad_name."""
        value = self.args.get(key)
        if not isinstance(value, str) or not NAME.match(value):
            raise VerbError("bad_name", "%s %r is not a name that tfdeploy uses" % (key, value))
        return value


Verb = Callable[[Call], Any]
