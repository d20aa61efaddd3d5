"""Which function answers which verb. A module is loaded when the first verb that it may hold is asked for."""

from __future__ import annotations

import importlib
import time
from typing import Any, Dict

from tfdeploy.agent.call import Call, Verb, VerbError

MODULES = ("runs", "logs", "locks", "releases", "datasets", "probe", "control")  # cheap ones first


def ping(call: Call) -> Dict[str, Any]:
    return {"clock": time.time()}


def find_verb(name: Any) -> Verb:
    """Raises VerbError unknown_verb."""
    if name == "ping":
        return ping
    for module in MODULES:
        verbs: Dict[str, Verb] = importlib.import_module("tfdeploy.agent." + module).VERBS
        if name in verbs:
            return verbs[name]
    raise VerbError("unknown_verb", "this agent knows no verb %r" % (name,))
