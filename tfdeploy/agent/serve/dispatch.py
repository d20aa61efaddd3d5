"""Which function answers which verb. A module is loaded when one of its verbs is asked for."""

from __future__ import annotations

import importlib
import threading
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Clock

ANSWER_S = 0.01
MODULES = {  # verb, or what stands before its dot -> the module that holds it
    "check": "check_links",
    "audit": "audit",
    "broadcast": "broadcast",
    "clean": "clean",
    "data": "dataset",
    "data.copy": "data_origin",
    "data.look": "data_origin",
    "env": "env",
    "fetch": "fetch",
    "keep": "keep_verbs",
    "lock": "lock",
    "logs": "logs",
    "probe": "probe",
    "release": "release",
    "release.change": "release_change",
    "release.put": "release_put",
    "release.state": "release_state",
    "run": "run_control",
    "run.known": "run_tell",
    "run.links": "run_links",
    "run.plan": "run_status",
    "run.resume": "run_resume",
    "run.status": "run_status",
    "run.tell": "run_tell",
    "runs": "run_status",
    "samples": "samples",
    "tensorboard": "tensorboard",
    "unlock": "lock",
}

FENCED = (  # they change a job's files: only for a session that holds its lock, see lock.check_fence
    "broadcast.join",
    "clean.remove",
    "data.begin",
    "data.commit",
    "data.copy",
    "data.lack",
    "env.make",
    "keep.aside",
    "keep.begin",
    "keep.place",
    "release.abort",
    "release.begin",
    "release.change",
    "release.commit",
    "release.put",
    "run.prepare",
)

ACTS = {  # they change this host, or read files from it: verb -> the operator's verb, and the outcome in the audit log
    "broadcast.offer": ("sync", "lent"),
    "clean.remove": ("clean", "removed"),
    "clean.workdir": ("clean", "removed"),
    "data.commit": ("sync", "sent"),
    "env.make": ("setup", "environment made"),
    "fetch.list": ("fetch", "files listed"),
    "keep.aside": ("launch", "keep set aside"),
    "keep.place": ("fetch", "files put in place"),
    "release.change": ("sync", "sent"),
    "release.commit": ("sync", "sent"),
    "run.abort": ("launch", "rolled back"),
    "run.commit": ("launch", "committed"),
    "run.prepare": ("launch", "prepared"),
    "run.resume": ("status", "resumed"),
    "run.stop": ("stop", "stopped"),
    "tensorboard": ("tensorboard", "served"),
}


def ping(call: Call) -> Clock:
    return {"clock": time.time()}


def find_verb(name: Any) -> Verb:
    """Raises VerbError unknown_verb."""
    if name == "ping":
        return ping
    if isinstance(name, str):
        module = MODULES.get(name) or MODULES.get(name.partition(".")[0])
        verbs: Dict[str, Verb] = importlib.import_module("tfdeploy.agent.serve." + module).VERBS if module else {}
        if name in verbs:
            verb = _fenced(verbs[name]) if name in FENCED else verbs[name]
            verb = _loading(verb) if name == "lock" else verb
            return _audited(verb, *ACTS[name]) if name in ACTS else verb
    raise VerbError("unknown_verb", "this agent knows no verb %r" % (name,))


def _fenced(verb: Verb) -> Verb:
    def checked(call: Call) -> Any:
        from tfdeploy.agent.serve import lock

        lock.check_fence(call)
        return verb(call)

    return checked


def _loading(verb: Verb) -> Verb:
    """Once its answer is out, the modules of the verbs that its caller will ask `soon` are loaded: while it asks other hosts."""

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
    """Writes its entry when it has ended. A program that runs for the whole session gets it when it begins."""

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
