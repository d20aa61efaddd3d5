"""When a run starts and ends on this host: (part, what is known, own tasks, clock) -> actions. Pure.

Reads no clock and no file, so that every rule is a row in a table of tests.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Union

from tfdeploy.agent import wire
from tfdeploy.agent.knowledge import Knowledge, decided, first_death, in_words, serves

STOPPED_BY_OPERATOR = "stopped by an operator"
DECIDED = "the deciding task succeeded"


class Own(NamedTuple):
    """One task of this host, as it is now. `quiet_s`: since it last wrote anything (0 where that is unknown)."""

    status: wire.TaskStatus
    supervised: bool  # its supervisor is alive
    quiet_s: float = 0.0


class View(NamedTuple):
    """All that is decided upon. `now` and `marks` are monotonic seconds; marks: prepared, started, decided."""

    part: wire.HostPart
    phase: str
    known: Knowledge
    own: Dict[str, Own]
    now: float
    marks: Dict[str, float]
    words: Dict[str, Dict[str, object]]  # start, commit, abort, stop
    silent_s: Dict[str, float] = {}  # host -> since it was last heard of, where that is known


class Start(NamedTuple):
    task: str


class End(NamedTuple):
    """TERM to the task's tree, `grace_s`, KILL. Repeated until it has ended."""

    task: str
    reason: str
    grace_s: float


class Bury(NamedTuple):
    """Its supervisor is dead: kill what is left, write the status."""

    task: str
    outcome: str
    reason: str


class Phase(NamedTuple):
    phase: str


class Commit(NamedTuple):
    """Tell all hosts."""


class Abort(NamedTuple):
    """Tell all hosts that the run ends: kind as in knowledge.ABORT_KINDS."""

    kind: str
    reason: str
    grace_s: Optional[float] = None


Action = Union[Start, End, Bury, Phase, Commit, Abort]


def decide(view: View) -> List[Action]:
    """What to do now. Asked again whenever something changed, and from time to time."""
    if view.phase == "ended":
        return []
    news = _news(view)
    if news:
        return news
    burials: List[Action] = [Bury(task, *_epitaph(view)) for task, own in view.own.items() if _orphaned(own)]
    if burials:
        return burials
    if view.known.abort is not None:
        return _end_all(view)
    if view.phase == "prepared":
        return [Phase("started"), *(Start(task) for task in view.own)] if "start" in view.words else []
    if view.phase == "committed" and _all_ended(view):
        return [Phase("ended")]
    actions: List[Action] = [
        Start(task) for task, own in view.own.items() if own.status.state == "pending" and not own.supervised
    ]
    return actions + (_finish(view) if view.phase == "committed" else [])


def _news(view: View) -> List[Action]:
    """What this host learns by itself and must tell: commit, or why the run ends."""
    part, words, known = view.part, view.words, view.known
    if known.abort is not None:
        return []
    if "stop" in words:
        return [Abort("stop", STOPPED_BY_OPERATOR, _grace(words["stop"]))]
    if "abort" in words:
        return [Abort("abort", str(words["abort"].get("reason") or "rolled back"))]
    death = first_death(part.peers, known)
    if death is not None:
        return [Abort("failed", in_words(death))]
    if view.phase == "prepared" and "start" not in words and _since(view, "prepared") >= part.start_within_s:
        return [Abort("abort", "prepared, but not started within %g s" % part.start_within_s)]
    if view.phase == "started":
        if known.committed or "commit" in words:
            return [Commit(), Phase("committed")]
        if _since(view, "started") >= part.commit_within_s:
            return [Abort("abort", "started, but not committed within %g s" % part.commit_within_s)]
    return []


def _grace(word: Dict[str, object]) -> Optional[float]:
    grace = word.get("grace_s")
    return float(grace) if isinstance(grace, (int, float)) else None


def _since(view: View, mark: str) -> float:
    return view.now - view.marks.get(mark, view.now)


def _orphaned(own: Own) -> bool:
    return own.status.state in ("starting", "running") and not own.supervised


def _epitaph(view: View) -> "tuple[str, str]":
    if view.known.abort is not None:
        return "stopped", str(view.known.abort["reason"])
    return "lost", "its supervisor was killed"


def _all_ended(view: View) -> bool:
    return all(own.status.state in ("ended", "lost") for own in view.own.values())


def _end_all(view: View) -> List[Action]:
    abort = view.known.abort or {}
    if _all_ended(view):
        return [Phase("ended")]
    graces = [_grace(abort), _grace(view.words.get("stop", {}))]  # a later stop may have less patience
    grace_s = min((grace for grace in graces if grace is not None), default=view.part.stop_grace_s)
    actions: List[Action] = [] if view.phase == "ending" else [Phase("ending")]
    for task, own in view.own.items():
        if own.status.state == "pending" and not own.supervised:
            actions.append(Bury(task, "stopped", str(abort["reason"])))
        elif own.status.state in ("starting", "running"):
            actions.append(End(task, str(abort["reason"]), grace_s))
    return actions


def _finish(view: View) -> List[Action]:
    """The deciding tasks have succeeded: the others get their grace, then the servers end."""
    part = view.part
    if decided(part.peers, view.known) is None:
        return []
    actions: List[Action] = []
    waited = _since(view, "decided")
    done = all(_is_done(view, peer, waited) for peer in part.peers if not serves(peer))
    for spec in part.tasks:
        own = view.own[spec.task]
        if own.status.state in ("ended", "lost"):
            continue
        if done if serves(spec) else min(waited, own.quiet_s) >= part.finish_grace_s:
            actions.append(End(spec.task, DECIDED, part.stop_grace_s))
    return actions


def _is_done(view: View, peer: wire.Peer, waited: float) -> bool:
    """A task anywhere has ended, or its host has been silent for longer than it could have taken to say so."""
    if peer.task in view.known.ended:
        return True
    if peer.task in view.own:
        return False
    patience = view.part.finish_grace_s + view.part.stop_grace_s
    return min(waited, view.silent_s.get(peer.host, 0.0)) >= patience
