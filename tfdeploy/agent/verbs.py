"""Which function answers which verb. A module is loaded when one of its verbs is asked for."""

from __future__ import annotations

import importlib
import time

from tfdeploy.agent.annotations import Any, Dict
from tfdeploy.agent.call import Call, Verb, VerbError

MODULES = {  # verb, or what stands before its dot -> the module that holds it
    "data": "datasets",
    "env": "environments",
    "fetch": "collect",
    "keep": "keepers",
    "lock": "locks",
    "logs": "logs",
    "probe": "probe",
    "release": "releases",
    "release.put": "parcels",
    "release.state": "presence",
    "run": "control",
    "run.known": "tidings",
    "run.links": "links",
    "run.plan": "runs",
    "run.resume": "resume",
    "run.status": "runs",
    "run.tell": "tidings",
    "runs": "runs",
    "tensorboard": "boards",
    "unlock": "locks",
}

FENCED = (  # they change a job's files: only by who holds its lock, see locks.check_fence
    "data.begin",
    "data.commit",
    "env.make",
    "keep.begin",
    "keep.place",
    "release.abort",
    "release.begin",
    "release.commit",
    "release.put",
    "run.prepare",
)


def ping(call: Call) -> Dict[str, Any]:
    return {"clock": time.time()}


def find_verb(name: Any) -> Verb:
    """Raises VerbError unknown_verb."""
    if name == "ping":
        return ping
    if isinstance(name, str):
        module = MODULES.get(name) or MODULES.get(name.partition(".")[0])
        verbs: Dict[str, Verb] = importlib.import_module("tfdeploy.agent." + module).VERBS if module else {}
        if name in verbs:
            return _fenced(verbs[name]) if name in FENCED else verbs[name]
    raise VerbError("unknown_verb", "this agent knows no verb %r" % (name,))


def _fenced(verb: Verb) -> Verb:
    def checked(call: Call) -> Any:
        from tfdeploy.agent import locks

        locks.check_fence(call)
        return verb(call)

    return checked
