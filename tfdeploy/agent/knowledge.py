"""What a minder knows of its run, on all hosts: committed, which tasks ended and how, abort. Values only.

Joining what two minders know is idempotent, commutative and monotone, so that it does not matter who tells whom, how
often, or in which order.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, NamedTuple, Optional, Union

from tfdeploy.agent import wire

_MAX_TEXT = 300
ABORT_KINDS = ("abort", "failed", "stop")
Fields = Dict[str, Any]


class Knowledge(NamedTuple):
    """`abort` {"kind", "reason", "host", "time", "task"?, "grace_s"?}; `ended` task -> {"outcome", "time", "host", "up", ...}."""

    committed: bool = False
    abort: Optional[Fields] = None
    ended: Dict[str, Fields] = {}

    def join(self, other: "Knowledge") -> "Knowledge":
        ended = dict(self.ended)
        for task, fields in other.ended.items():
            ended[task] = _earlier(ended.get(task), fields)
        abort = self.abort if other.abort is None else _earlier(self.abort, other.abort)
        return Knowledge(self.committed or other.committed, abort, ended)

    def as_json(self) -> Fields:
        return {"committed": self.committed, "abort": self.abort, "ended": self.ended}

    def digest(self) -> str:
        return hashlib.sha256(_text(self.as_json()).encode("utf-8")).hexdigest()


def _text(fields: Fields) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _earlier(one: Optional[Fields], other: Fields) -> Fields:
    if one is None:
        return other
    return min(one, other, key=lambda fields: (fields["time"], _text(fields)))


def from_json(value: Any, tasks: "Dict[str, wire.Peer]") -> Knowledge:
    """What a peer, or our own file, says. Raises ValueError on anything that is no knowledge of this run."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    abort = value.get("abort")
    ended = value.get("ended", {})
    if not isinstance(ended, dict) or not set(ended) <= set(tasks):
        raise ValueError("tasks of another run")
    return Knowledge(
        bool(value.get("committed")),
        None if abort is None else _checked(abort, "kind", ABORT_KINDS),
        {task: _checked(fields, "outcome", wire.OUTCOMES) for task, fields in ended.items()},
    )


def _checked(fields: Any, key: str, words: "tuple[str, ...]") -> Fields:
    if not isinstance(fields, dict) or fields.get(key) not in words:
        raise ValueError("unknown %s" % key)
    if isinstance(fields.get("time"), bool) or not isinstance(fields.get("time"), (int, float)):
        raise ValueError("no time")
    plain = (str, int, float, bool, type(None))
    if len(fields) > 12 or not all(isinstance(one, plain) for one in fields.values()):
        raise ValueError("not plain")
    return {str(name)[:40]: one[:_MAX_TEXT] if isinstance(one, str) else one for name, one in fields.items()}


def ending_of(status: wire.TaskStatus) -> Fields:
    """What the others must know of a task that ended."""
    fields = {
        "outcome": status.outcome or "lost",
        "time": status.ended if status.ended is not None else status.started or 0.0,
        "host": status.host,
        "up": status.up,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "reason": status.reason[:_MAX_TEXT] if status.reason else None,
    }
    return {name: one for name, one in fields.items() if one is not None}


def decided(peers: "List[wire.Peer]", known: Knowledge) -> Optional[float]:
    """When all deciding tasks had succeeded (UTC seconds); None: they have not."""
    times: List[float] = []
    for peer in peers:
        if peer.deciding:
            fields = known.ended.get(peer.task)
            if fields is None or fields["outcome"] != "succeeded" or _too_early(peer, fields):
                return None
            times.append(fields["time"])
    return max(times) if times else None


def first_death(peers: "List[wire.Peer]", known: Knowledge) -> Optional[Fields]:
    """The earliest end that fails the run, if there is one: {"task", "host", "outcome", "time", ...}."""
    limit = decided(peers, known)
    deaths: List[Fields] = []
    for peer in peers:
        fields = known.ended.get(peer.task)
        if fields is None or (limit is not None and fields["time"] >= limit):
            continue  # the training was decided by then: no end after that can undo it
        if fields["outcome"] in ("failed", "killed", "gave_up", "lost") or _too_early(peer, fields):
            deaths.append(dict(fields, task=peer.task, host=peer.host))
    return min(deaths, key=lambda death: (death["time"], death["task"]), default=None)


def _too_early(peer: wire.Peer, fields: Fields) -> bool:
    """A good exit code that is no success: a server never ends by itself, any other task must have been up."""
    return fields["outcome"] == "succeeded" and (serves(peer) or not fields.get("up"))


def serves(task: "Union[wire.Peer, wire.TaskSpec]") -> bool:
    """Whether it never ends by itself. A ps does not, whatever else is said."""
    return task.serves or task.role == "ps"


def in_words(death: Fields) -> str:
    """ "worker:1 on n2 failed with exit code 3"."""
    text = "%s on %s" % (death["task"], death["host"])
    if death["outcome"] == "succeeded":
        text += " ended too early, with exit code 0"
    elif death.get("exit_code") is not None and not death.get("reason"):
        text += " %s with exit code %s" % (death["outcome"], death["exit_code"])
    elif death.get("signal") is not None and not death.get("reason"):
        text += " %s by signal %s" % (death["outcome"], death["signal"])
    else:
        text += " %s" % death["outcome"].replace("_", " ")
    return text + (": %s" % death["reason"] if death.get("reason") else "")
