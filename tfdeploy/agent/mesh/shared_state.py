"""Define the state that all minders of a run share: whether the run is committed, how tasks have
ended, which restarts there were, and why the run was aborted. A minder is the agent's daemon for
the run on one host. The gang consists of the tasks that restart together, and a round is one start
of the gang. This module only computes values.

Joining two states is idempotent, commutative and monotone, so the order and the number of messages
do not matter.
"""

from __future__ import annotations

import hashlib
import json

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Tuple,
    Union,
    V,
)
from tfdeploy.agent.mesh import bounded_json
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Abort, Death, Ending, GangRound, SharedState

# The maximum length of each text in the state, in characters. A receiver shortens longer texts. So
# a sender must not send longer ones, or the two states would never become equal.
MAX_TEXT = 300
ABORT_KINDS = ("abort", "failed", "stop")
MAX_ROUND = 10**6  # the largest count of anything in the state: a receiver rejects larger ones
RoundStage = Tuple[int, int]
Absence = Tuple[int, float]


class KnownRunState(NamedTuple):
    """The shared state, as far as one minder knows it.

    `ended`: task -> how the latest attempt that has ended did so. If this ending is not `final`,
    the task restarts.
    `round`: the last restart of the gang, or None before the first restart.
    `stands`: host -> (number of a round, the stage of this round that the host has reached).
    `decided`: the time (UTC seconds) at which the run became a success, because all deciding tasks
    (the tasks that must succeed) had succeeded. A later round does not change this time.
    `unminded`: host -> (n, since). If n is odd, the host has had no minder since `since` (UTC
    seconds). If n is even, the host has a minder again.
    """

    committed: bool = False
    abort: Optional[Abort] = None
    ended: Dict[str, Ending] = {}
    round: Optional[GangRound] = None
    stands: Dict[str, RoundStage] = {}
    decided: Optional[float] = None
    unminded: Dict[str, Absence] = {}

    def join(self, other: KnownRunState) -> KnownRunState:
        """Return the state that contains everything in both states. If both have a value for the
        same thing, keep the value with the lower sort key."""
        return KnownRunState(
            self.committed or other.committed,
            _choose_lower(
                self.abort, other.abort, lambda abort: (abort["time"], _canonical_json(abort))
            ),
            _merge_tables(self.ended, other.ended, _task_ending_sort_key),
            # Keep the round with the higher number. If two hosts have announced the same round,
            # keep the one whose cause, the death of a task, is earlier.
            _choose_lower(
                self.round,
                other.round,
                lambda gang: (-gang["n"], gang["time"], _canonical_json(gang)),
            ),
            _merge_tables(self.stands, other.stands, lambda stand: (-stand[0], -stand[1])),
            _choose_lower(self.decided, other.decided, float),
            _merge_tables(self.unminded, other.unminded, lambda absence: (-absence[0], absence[1])),
        )

    @property
    def round_number(self) -> int:
        return 1 if self.round is None else self.round["n"]

    @property
    def is_over(self) -> bool:
        """True if the run was aborted or has succeeded. How the remaining tasks end is then no
        longer urgent news for other hosts."""
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
        return hashlib.sha256(_canonical_json(self.as_json()).encode("utf-8")).hexdigest()


def _canonical_json(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _choose_lower(first: Optional[V], second: Optional[V], key: Callable[[V], Any]) -> Optional[V]:
    """Return the value for which the function `key` gives the lower sort key. If one of the values
    is None, return the other."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second, key=key)


def _merge_tables(
    first: Dict[str, V], second: Dict[str, V], key: Callable[[V], Any]
) -> Dict[str, V]:
    """Return a table with the entries of both tables. If a name is in both, keep the value for
    which the function `key` gives the lower sort key."""
    joined = dict(first)
    for name, value in second.items():
        joined[name] = min(joined[name], value, key=key) if name in joined else value
    return joined


def _task_ending_sort_key(ending: Ending) -> Any:
    """Return the sort key of an ending: a later attempt comes before an earlier one. Within an
    attempt, a final ending comes before one that is not final, and then an earlier ending before a
    later one."""
    return -ending.get("attempt", 1), not is_final(ending), ending["time"], _canonical_json(ending)


def is_final(ending: Ending) -> bool:
    return ending.get("final", True)


_count, _seconds = bounded_json.integer_check(0, MAX_ROUND), bounded_json.number_check(0.0, 1e9)
_text_check = bounded_json.shortened_text_check(MAX_TEXT)
_STAGE = bounded_json.fixed_list_check(_count, bounded_json.integer_check(0, 3))
_ABSENCE = bounded_json.fixed_list_check(_count, bounded_json.clamp_time)
_ABORT = {
    "kind": bounded_json.choice_check(ABORT_KINDS),
    "reason": _text_check,
    "time": bounded_json.clamp_time,
    "grace_s": _seconds,
}
_ENDING = {
    **dict.fromkeys(("attempt", "round"), _count),
    **dict.fromkeys(("final", "again", "up"), bounded_json.check_bool),
    "outcome": bounded_json.choice_check(wire.OUTCOMES),
    "time": bounded_json.clamp_time,
    "exit_code": bounded_json.integer_check(-(1 << 31), 1 << 31),
    "signal": bounded_json.integer_check(0, 256),
    "reason": _text_check,
}
_NEEDED_OF_ROUND = ("n", "time", "task", "count", "quick", "delay_s")
_ROUND = {
    **dict.fromkeys(("n", "count", "quick", "same"), _count),
    "time": bounded_json.clamp_time,
    "reason": _text_check,
    "delay_s": _seconds,
    **dict.fromkeys(("error", "first"), _text_check),
}


def from_json(value: Any, part: wire.HostPart) -> KnownRunState:
    """Return the state that is in a message of a peer or in this host's own file. Raises ValueError
    if `value` is not a valid state of this run."""
    tasks = {peer.task: peer for peer in part.peers}
    hosts = {peer.host for peer in part.peers} | {address.host for address in part.mesh}
    fields, choice = bounded_json.pick_checked_fields, bounded_json.choice_check

    def ending(task: str, received: Any) -> Any:
        checks = {**_ENDING, "host": choice((tasks[task].host,))}
        return fields(received, checks, ("outcome", "time"))

    def by_host(check: bounded_json.Check) -> bounded_json.Check:
        return lambda received: {
            host: check(value)
            for host, value in bounded_json.check_object_keys(received, hosts).items()
        }

    checks: Dict[str, bounded_json.Check] = {
        "committed": bounded_json.check_bool,
        "abort": lambda received: fields(
            received, {**_ABORT, "host": choice(hosts)}, ("kind", "reason", "time")
        ),
        "ended": lambda received: {
            task: ending(task, fields_of_task)
            for task, fields_of_task in bounded_json.check_object_keys(received, tasks).items()
        },
        "round": lambda received: fields(
            received, {**_ROUND, "task": choice(tasks)}, _NEEDED_OF_ROUND
        ),
        "stands": by_host(_STAGE),
        "decided": bounded_json.clamp_time,
        "unminded": by_host(_ABSENCE),
    }
    return KnownRunState(**fields(value, checks, ()))


def next_capped_count(number: int) -> int:
    """Return `number` + 1, but at most MAX_ROUND, because a receiver rejects a larger count."""
    return min(number + 1, MAX_ROUND)


def next_attempt(known: KnownRunState, task: str) -> int:
    """Return the number of the next attempt of the task. This is 1 if no attempt of the task has
    ended."""
    ending = known.ended.get(task)
    return next_capped_count(0 if ending is None else ending.get("attempt", 0))


def make_ending(
    status: wire.TaskStatus, is_final: bool = True, would_restart: bool = False
) -> Ending:
    """Return the ending of an attempt, in the form of the shared state. `is_final`: False if the
    task restarts. `would_restart`: True if the task restarts, or if only the end of the run has
    prevented that. The task's death then does not make the run fail."""
    ending: Ending = {
        "attempt": min(max(1, status.attempt), MAX_ROUND),
        "round": status.round,
        "final": is_final,
        "outcome": status.outcome or "lost",
        "time": status.ended if status.ended is not None else status.started or 0.0,
        "host": status.host,
        "up": status.up,
    }
    if would_restart:
        ending["again"] = True
    if status.exit_code is not None:
        ending["exit_code"] = status.exit_code
    if status.signal is not None:
        ending["signal"] = status.signal
    if status.reason:
        ending["reason"] = status.reason[:MAX_TEXT]
    return ending


def run_success_time(peers: List[wire.Peer], known: KnownRunState) -> Optional[float]:
    """Return when the run became a success: the time (UTC seconds) at which the last deciding task
    succeeded. The deciding tasks are those that must succeed. Return None if one of them has not
    succeeded yet."""
    if known.decided is not None:
        return known.decided
    times = []
    for peer in peers:
        if peer.deciding:
            fields = known.ended.get(peer.task)
            if (
                fields is None
                or fields["outcome"] != "succeeded"
                or is_premature_success(peer, fields)
                or is_from_earlier_round(peer, fields, known)
            ):
                return None
            times.append(fields["time"])
    return max(times, default=None)


def keep_only_run_end_fields(peers: List[wire.Peer], known: KnownRunState) -> KnownRunState:
    """Return a state with only those fields of `known` that say why the run is over. Another host
    needs no more than these to end its tasks."""
    death = first_fatal_death(peers, known)
    needed = {peer.task for peer in peers if peer.deciding} | ({death["task"]} if death else set())
    ended = {task: fields for task, fields in known.ended.items() if task in needed}
    return KnownRunState(known.committed, known.abort, ended, known.round, {}, known.decided)


def first_fatal_death(peers: List[wire.Peer], known: KnownRunState) -> Optional[Death]:
    """Return the earliest ending that makes the run fail, or None."""
    limit = run_success_time(peers, known)
    deaths = []
    for peer in peers:
        fields = known.ended.get(peer.task)
        if (
            fields is not None
            and is_final(fields)
            and not fields.get("again")
            # The run is a success once all deciding tasks (such as the chief) have succeeded.
            # Failures after this time do not count.
            and (limit is None or fields["time"] < limit)
            and is_death(peer, fields)
        ):
            deaths.append(make_death(fields, peer.task, peer.host))
    return min(deaths, key=lambda death: (death["time"], death["task"]), default=None)


def make_death(ending: Ending, task: str, host: str) -> Death:
    return {**ending, "task": task, "host": host}


def is_from_earlier_round(peer: wire.Peer, ending: Ending, known: KnownRunState) -> bool:
    """Return True if the ending belongs to an earlier round of the gang. Such an ending no longer
    counts."""
    return peer.gang and ending.get("round", 1) < known.round_number


def is_death(peer: wire.Peer, ending: Ending) -> bool:
    """Return True if the task has failed by this ending. A task that was stopped has not failed."""
    return ending["outcome"] in wire.DEATHS or is_premature_success(peer, ending)


def is_premature_success(peer: wire.Peer, ending: Ending) -> bool:
    """Return True if the task exited with code 0 too early, which counts as a failure. This is so
    if the task is a server, which must not end by itself, or was not ready yet."""
    return ending["outcome"] == "succeeded" and (is_server(peer) or not ending.get("up"))


def is_server(task: Union[wire.Peer, wire.TaskSpec]) -> bool:
    """Return True if the task is a server, which does not end by itself. Every ps is a server."""
    return task.serves or task.role == "ps"


def describe_death(death: Death) -> str:
    """Return text such as "worker:1 on n2 failed with exit code 3"."""
    ending = wire.describe_task_death(
        death["outcome"], death.get("exit_code"), death.get("signal"), death.get("reason")
    )
    return "%s on %s %s" % (death["task"], death["host"], ending)
