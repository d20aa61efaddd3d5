"""Which function answers which verb. A module is loaded when one of its verbs is asked for."""

from __future__ import annotations

import importlib
import threading
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, List, Mapping
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Verb, audited_as, is_fenced

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

ANSWER_S = 0.01
# verb, or what stands before its dot -> the module that holds it, where that is not its name
MODULES = {
    "broadcast": "broadcast.verbs",
    "check": "links.verbs",
    "clean": "clean.verbs",
    "data": "datasets.verbs",
    "data.copy": "datasets.origin",
    "data.look": "datasets.origin",
    "env": "env.verbs",
    "keep": "keep_verbs",
    "lock": "lock.verbs",
    "ping": "dispatch",
    "release": "release.verbs",
    "release.state": "release.state",
    "run": "run.verbs",
    "run.known": "run.tell",
    "run.links": "run.links",
    "run.plan": "run.status",
    "run.resume": "run.resume",
    "run.status": "run.status",
    "run.tell": "run.tell",
    "runs": "run.status",
    "samples": "run.samples",
    "unlock": "lock.verbs",
}


def ping(call: Call) -> Answer:
    """Tell the time of this host's clock."""
    return {"clock": time.time()}


def find_verb(name: Any) -> Verb:
    """Return the function that answers the verb, guarded as its marks say. Raises VerbError
    unknown_verb."""
    verb = _verbs_beside(name).get(name) if isinstance(name, str) else None
    if verb is None:
        raise VerbError("unknown_verb", "this agent knows no verb %r" % (name,))
    audit = audited_as(verb)
    answering = _fenced(verb) if is_fenced(verb) else verb
    answering = _loading(answering) if name == "lock" else answering
    return _audited(answering, *audit) if audit else answering


def _verbs_beside(name: str) -> Mapping[str, Verb]:
    """Return the verbs of the module that would hold the verb; empty where there is no such
    module."""
    word = name.partition(".")[0]
    module = "tfdeploy.agent.serve." + (MODULES.get(name) or MODULES.get(word) or word)
    if not word.isidentifier():
        return {}
    try:
        table: Mapping[str, Verb] = getattr(importlib.import_module(module), "VERBS", {})
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return {}
    return table


def _fenced(verb: Verb) -> Verb:
    def checked(call: Call) -> Any:
        from tfdeploy.agent.serve.lock import verbs as lock

        lock.check_fence(call)
        return verb(call)

    return checked


def _loading(verb: Verb) -> Verb:
    """Once its answer is out, the modules of the verbs that its caller will ask `soon` are loaded:
    while it asks other hosts."""

    def load(verbs: List[object]) -> None:
        time.sleep(ANSWER_S)
        for each in verbs:
            try:
                find_verb(each)
            except VerbError:  # it is told so when it asks
                return

    def answered(call: Call) -> object:
        value, soon = verb(call), call.rows("soon")
        if soon:
            threading.Thread(target=load, args=(soon,), name="load", daemon=True).start()
        return value

    return answered


def _audited(verb: Verb, word: str, outcome: str) -> Verb:
    """Writes its entry when it has ended. A program that runs for the whole session gets it when it
    begins."""

    def noted(call: Call) -> object:
        from tfdeploy.agent.serve import audit_log

        if word == "tensorboard":
            audit_log.note(call, word, outcome)
        try:
            value: Any = verb(call)
        except Exception as error:
            audit_log.note(call, word, "failed: %s" % getattr(error, "code", type(error).__name__))
            raise
        alive = value.get("survivors") if isinstance(value, dict) else None
        audit_log.note(call, word, "%d processes alive" % len(alive) if alive else outcome)
        return value

    return noted


VERBS = {"ping": ping}
