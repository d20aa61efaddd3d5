"""Define the state that all minders of a run share: whether the run is committed, how tasks have
ended, the round (the number of starts of the gang), and why the run was aborted. This module only
computes values.

To join two states is idempotent, commutative and monotone, so the order and the number of messages
do not matter.
"""

from __future__ import annotations

import hashlib
import json

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Dict,
    List,
    Mapping,
    Optional,
    Tuple,
    Union,
)
from tfdeploy.agent.mesh import bounded_json
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Abort, Death, Ending, GangRound, SharedState

# Limits the characters of each text in the state. A receiver shortens longer texts, so its state
# would always differ from the sender's.
MAX_TEXT = 300
ABORT_KINDS = ("abort", "failed", "stop")
MAX_ROUND = 10**6  # limits each number that counts something; a receiver rejects larger ones
RoundStage = Tuple[int, int]
Absence = Tuple[int, float]


class Knowledge(NamedTuple):
    """The shared state, as far as one minder knows it.

    `ended`: task -> how its last ended attempt ended; the task restarts unless this ending is
    `final`. `round`: the last restart of the gang, or None before the first one. `stands`: host ->
    (round, stage that the host has reached in the restart to this round). `decided`: when all
    deciding tasks had succeeded (UTC seconds); a later round does not change this. `unminded`: host
    -> (n, since); an odd n means that the host has had no minder since `since` (UTC seconds), an
    even n that it has one again.
    """

    committed: bool = False
    abort: Optional[Abort] = None
    ended: Dict[str, Ending] = {}
    round: Optional[GangRound] = None
    stands: Dict[str, RoundStage] = {}
    decided: Optional[float] = None
    unminded: Dict[str, Absence] = {}

    def join(self, other: Knowledge) -> Knowledge:
        ended = dict(self.ended)
        for task, fields in other.ended.items():
            ended[task] = _later_attempt(ended.get(task), fields)
        stands = dict(self.stands)
        for host, stand in other.stands.items():
            stands[host] = max(stands.get(host, stand), stand)
        abort = self.abort if other.abort is None else _earlier(self.abort, other.abort)
        began = _later_round(self.round, other.round)
        times = [one.decided for one in (self, other) if one.decided is not None]
        unminded = dict(self.unminded)
        for host, absence in other.unminded.items():
            unminded[host] = min(
                unminded.get(host, absence), absence, key=lambda one: (-one[0], one[1])
            )
        return Knowledge(
            self.committed or other.committed,
            abort,
            ended,
            began,
            stands,
            min(times, default=None),
            unminded,
        )

    @property
    def round_number(self) -> int:
        return 1 if self.round is None else self.round["n"]

    @property
    def is_over(self) -> bool:
        """True if it does not matter to other hosts how the remaining tasks end."""
        return self.abort is not None or self.decided is not None

    def as_json(self) -> SharedState:
        return {
            "committed": self.committed,
            "abort": self.abort,
            "ended": self.ended,
            "round": self.round,
            "stands": {host: list(stand) for host, stand in self.stands.items()},
            "decided": self.decided,
            "unminded": {host: list(absence) for host, absence in self.unminded.items()},
        }

    def digest(self) -> str:
        return hashlib.sha256(_text(self.as_json()).encode("utf-8")).hexdigest()


def _text(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _earlier(first: Optional[Abort], second: Abort) -> Abort:
    if first is None:
        return second
    return min(first, second, key=lambda fields: (fields["time"], _text(fields)))


def _later_attempt(first: Optional[Ending], second: Ending) -> Ending:
    """Of two endings of a task, return the one of the later attempt. If both are of the same
    attempt, return the final one, or else the earlier one."""
    if first is None:
        return second
    return min(
        first,
        second,
        key=lambda fields: (
            -_attempt_number(fields),
            not is_final(fields),
            fields["time"],
            _text(fields),
        ),
    )


def _later_round(first: Optional[GangRound], second: Optional[GangRound]) -> Optional[GangRound]:
    """Of two restarts of the gang, return the later one. If both have the same number, return the
    one that an earlier death caused."""
    if first is None or second is None:
        return first or second
    return min(first, second, key=lambda fields: (-fields["n"], fields["time"], _text(fields)))


def _attempt_number(ending: Ending) -> int:
    return ending.get("attempt", 1)


def is_final(ending: Ending) -> bool:
    return ending.get("final", True)


_count, _seconds = bounded_json.integer_check(0, MAX_ROUND), bounded_json.number_check(0.0, 1e9)
_text_check = bounded_json.text_check(MAX_TEXT)
_STAGE = bounded_json.pair_check(_count, bounded_json.integer_check(0, 3))
_ABSENCE = bounded_json.pair_check(_count, bounded_json.check_time)
_ABORT = {
    "kind": bounded_json.choice_check(ABORT_KINDS),
    "reason": _text_check,
    "time": bounded_json.check_time,
    "grace_s": _seconds,
}
_ENDING = {
    **dict.fromkeys(("attempt", "round"), _count),
    **dict.fromkeys(("final", "again", "up"), bounded_json.check_bool),
    "outcome": bounded_json.choice_check(wire.OUTCOMES),
    "time": bounded_json.check_time,
    "exit_code": bounded_json.integer_check(-(1 << 31), 1 << 31),
    "signal": bounded_json.integer_check(0, 256),
    "reason": _text_check,
}
_NEEDED_OF_ROUND = ("n", "time", "task", "count", "quick", "delay_s")
_ROUND = {
    **dict.fromkeys(("n", "count", "quick", "same"), _count),
    "time": bounded_json.check_time,
    "reason": _text_check,
    "delay_s": _seconds,
    "error": _text_check,
}


def from_json(value: Any, part: wire.HostPart) -> Knowledge:
    """Return the state that is in a peer's message or in this host's own file. Raises ValueError if
    the value is not a valid state of this run."""
    tasks = {peer.task: peer for peer in part.peers}
    hosts = {peer.host for peer in part.peers} | {one.host for one in part.mesh}
    fields, word = bounded_json.check_fields, bounded_json.choice_check

    def ending(task: str, received: Any) -> Any:
        return fields(received, {**_ENDING, "host": word((tasks[task].host,))}, ("outcome", "time"))

    def by_host(check: bounded_json.Check) -> bounded_json.Check:
        return lambda received: {
            host: check(one) for host, one in bounded_json.check_table(received, hosts).items()
        }

    checks: Dict[str, bounded_json.Check] = {
        "committed": bounded_json.check_bool,
        "abort": lambda received: fields(
            received, {**_ABORT, "host": word(hosts)}, ("kind", "reason", "time")
        ),
        "ended": lambda received: {
            task: ending(task, one)
            for task, one in bounded_json.check_table(received, tasks).items()
        },
        "round": lambda received: fields(
            received, {**_ROUND, "task": word(tasks)}, _NEEDED_OF_ROUND
        ),
        "stands": by_host(_STAGE),
        "decided": bounded_json.check_time,
        "unminded": by_host(_ABSENCE),
    }
    return Knowledge(**fields(value, checks, ()))


def next_count(number: int) -> int:
    """Return `number` + 1, but at most MAX_ROUND, because a receiver rejects a larger count."""
    return min(number + 1, MAX_ROUND)


def next_attempt(known: Knowledge, task: str) -> int:
    """Return the number of the next attempt of the task: one more than the last attempt in `known`,
    or 1 if `known` contains none."""
    ending = known.ended.get(task)
    return next_count(0 if ending is None else ending.get("attempt", 0))


def make_ending(status: wire.TaskStatus, is_final: bool = True, again: bool = False) -> Ending:
    """Return the ending of an attempt, in the form of the shared state. `is_final`: False if the task
    restarts. `again`: True if the task would restart, but the run was over before; then its death
    does not make the run fail."""
    ending: Ending = {
        "attempt": min(max(1, status.attempt), MAX_ROUND),
        "round": status.round,
        "final": is_final,
        "outcome": status.outcome or "lost",
        "time": status.ended if status.ended is not None else status.started or 0.0,
        "host": status.host,
        "up": status.up,
    }
    if again:
        ending["again"] = True
    if status.exit_code is not None:
        ending["exit_code"] = status.exit_code
    if status.signal is not None:
        ending["signal"] = status.signal
    if status.reason:
        ending["reason"] = status.reason[:MAX_TEXT]
    return ending


def decision_time(peers: List[wire.Peer], known: Knowledge) -> Optional[float]:
    """Return when all deciding tasks had succeeded (UTC seconds). Return None if not all have
    succeeded yet."""
    if known.decided is not None:
        return known.decided
    times: List[float] = []
    for peer in peers:
        if peer.deciding:
            fields = known.ended.get(peer.task)
            if (
                fields is None
                or fields["outcome"] != "succeeded"
                or is_too_early(peer, fields)
                or is_outdated(peer, fields, known)
            ):
                return None
            times.append(fields["time"])
    return max(times) if times else None


def select_run_end(peers: List[wire.Peer], known: Knowledge) -> Knowledge:
    """Return only the fields of `known` that say why the run is over. They are enough for another
    host to end its tasks."""
    death = first_death(peers, known)
    needed = {peer.task for peer in peers if peer.deciding} | ({death["task"]} if death else set())
    ended = {task: fields for task, fields in known.ended.items() if task in needed}
    return Knowledge(known.committed, known.abort, ended, known.round, {}, known.decided)


def first_death(peers: List[wire.Peer], known: Knowledge) -> Optional[Death]:
    """Return the earliest ending that makes the run fail, or None."""
    limit = decision_time(peers, known)
    deaths: List[Death] = []
    for peer in peers:
        fields = known.ended.get(peer.task)
        if (
            fields is None
            or not is_final(fields)
            or fields.get("again")
            or (limit is not None and fields["time"] >= limit)
        ):
            continue  # After all deciding tasks have succeeded, no ending counts as a failure.
        if is_death(peer, fields):
            deaths.append(make_death(fields, peer.task, peer.host))
    return min(deaths, key=lambda death: (death["time"], death["task"]), default=None)


def make_death(ending: Ending, task: str, host: str) -> Death:
    return {**ending, "task": task, "host": host}


def is_outdated(peer: wire.Peer, ending: Ending, known: Knowledge) -> bool:
    """True if the ending belongs to an earlier round of the gang, so that it no longer counts."""
    return peer.gang and ending.get("round", 1) < known.round_number


def is_death(peer: wire.Peer, ending: Ending) -> bool:
    """True if this ending means that the task has failed. A task that was stopped has not
    failed."""
    return ending["outcome"] in ("failed", "killed", "gave_up", "lost") or is_too_early(
        peer, ending
    )


def is_too_early(peer: wire.Peer, ending: Ending) -> bool:
    """True if the task exited with code 0, but this counts as a failure. A server must not end by
    itself, and any other task must have been up before it ends."""
    return ending["outcome"] == "succeeded" and (is_server(peer) or not ending.get("up"))


def is_server(task: Union[wire.Peer, wire.TaskSpec]) -> bool:
    """True if the task is a server, which does not end by itself. Every ps is a server."""
    return task.serves or task.role == "ps"


def describe_death(death: Death) -> str:
    """Return text such as "worker:1 on n2 failed with exit code 3"."""
    ending = wire.ending_in_words(
        death["outcome"], death.get("exit_code"), death.get("signal"), death.get("reason")
    )
    return "%s on %s %s" % (death["task"], death["host"], ending)
