"""Finds the function that answers a verb. A module is loaded when one of its verbs is called."""

from __future__ import annotations

import importlib
import threading
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, List, Mapping
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

ANSWER_S = 0.01  # pause before further modules are loaded, so that the answer is sent first
# Maps verbs to modules. A key is a verb, or the part of the verb before the dot. A verb whose
# module has the same name is not listed.
MODULES = {
    "broadcast": "broadcast.verbs",
    "check": "links.verbs",
    "clean": "clean.verbs",
    "data": "datasets.verbs",
    "data.copy": "datasets.origin",
    "data.look": "datasets.origin",
    "env": "env.verbs",
    "keep": "keep_verbs",
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
    "unlock": "lock",
}


def ping(call: Call) -> Answer:
    """Return the time of this host's clock."""
    return {"clock": time.time()}


def find_verb(verb_name: Any) -> Verb:
    """Return the function that answers the verb, with the lock check and the audit entry that the
    verb's decorators demand. Raises VerbError unknown_verb."""
    verb = _verbs_of_module(verb_name).get(verb_name) if isinstance(verb_name, str) else None
    if verb is None:
        raise VerbError("unknown_verb", "this agent knows no verb %r" % (verb_name,))
    audit = vars(verb).get("audited")
    if "fenced" in vars(verb):
        verb = _with_job_lock(verb)
    elif verb_name == "lock":
        verb = _with_module_preloading(verb)
    return _with_audit_entry(verb, *audit) if audit else verb


def _verbs_of_module(verb_name: str) -> Mapping[str, Verb]:
    """Return all verbs of the module that would implement this verb, or {} if there is no such
    module."""
    group = verb_name.partition(".")[0]
    if not group.isidentifier():
        return {}
    module = "tfdeploy.agent.serve." + (MODULES.get(verb_name) or MODULES.get(group) or group)
    try:
        table: Mapping[str, Verb] = getattr(importlib.import_module(module), "VERBS", {})
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return {}
    return table


def _with_job_lock(verb: Verb) -> Verb:
    def checked(call: Call) -> Any:
        from tfdeploy.agent.serve import lock

        lock.ensure_job_lock(call)
        return verb(call)

    return checked


def _with_module_preloading(verb: Verb) -> Verb:
    """Return a function that calls `verb`, and then loads the modules of the verbs that the
    argument `soon` names. The loading begins after the answer is sent, while the caller asks other
    hosts."""

    def load(verbs: List[object]) -> None:
        time.sleep(ANSWER_S)
        for each in verbs:
            try:
                find_verb(each)
            except VerbError:  # a later call of that verb reports the error
                return

    def answered(call: Call) -> object:
        value, soon = verb(call), call.rows("soon")
        if soon:
            threading.Thread(target=load, args=(soon,), name="load", daemon=True).start()
        return value

    return answered


def _with_audit_entry(verb: Verb, operation: str, outcome: str) -> Verb:
    """Return a function that calls `verb`, and writes an audit entry when it has ended. TensorBoard
    runs for the whole session, so its entry is written when it begins."""

    def audited(call: Call) -> object:
        from tfdeploy.agent.serve import audit_log

        if operation == "tensorboard":
            audit_log.record_action(call, operation, outcome)
        try:
            value: Any = verb(call)
        except Exception as error:
            failure = "failed: %s" % getattr(error, "code", type(error).__name__)
            audit_log.record_action(call, operation, failure)
            raise
        alive = value.get("survivors") if isinstance(value, dict) else None
        result = "%d processes alive" % len(alive) if alive else outcome
        audit_log.record_action(call, operation, result)
        return value

    return audited


VERBS = {"ping": ping}
