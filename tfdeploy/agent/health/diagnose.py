"""Find which tasks of this host are stalled, and why. The functions are pure: they turn facts about
all tasks into texts about the stalled ones.

Only monitor.py reads clocks, files and the network. So each diagnosis can be tested with one row of
a table. Servers and evaluators wait by design, so they are stalled only if they are frozen
(SIGSTOP). If one task causes the stall, the tasks that wait for this task are not blamed.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Iterable, List, Optional, Set
from tfdeploy.agent.health.activity import LifeSigns
from tfdeploy.agent.mesh.shared_state import is_final, is_server
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Ending

# A task is checked more closely if all its log lines of this many seconds say that it waits.
WAITING_S = 20.0
# A stalled task probably waits for the tasks that stalled at least this many seconds earlier.
EARLIER_S = 10.0
_NAMED_MOST = 3  # The text of a finding names at most this many tasks.
OPEN, CLOSED = "open", "closed"


class StallFacts(NamedTuple):
    """What this host knows about all tasks.

    `lockstep`: True if each step waits for the slowest task. `after_s`: the setting `stall.after`.
    `signs`: the signs of life of this host's tasks, and of the tasks of hosts that have just
    answered. `port_answers`: task -> result of a connection to its port. `hosts`: host -> result of
    a connection to its mesh port. A result is "open", "closed" or why there was no answer. Ports
    and hosts that were not tried are left out.
    """

    host: str
    lockstep: bool  # True if each step waits for the slowest task
    after_s: float
    peers: Dict[str, wire.Peer]
    signs: Dict[str, LifeSigns]
    ended: Dict[str, Ending] = {}  # task -> how it ended
    port_answers: Dict[str, str] = {}
    hosts: Dict[str, str] = {}
    # task -> text such as "n3 resolves to 127.0.1.1". Contains only the tasks whose address this
    # host wrongly resolves to a loopback address.
    loopback: Dict[str, str] = {}
    # task of this host -> the environment variable, such as "http_proxy", that makes the task reach
    # the other tasks through a proxy
    proxies: Dict[str, str] = {}


class Finding(NamedTuple):
    reason: str
    is_culprit: bool  # True if a restart of this task may help


def find_late_tasks(facts: StallFacts) -> Set[str]:
    """Return the tasks of this host that may be stalled and need a closer check."""
    return {
        task
        for task, sign in facts.signs.items()
        if facts.peers[task].host == facts.host and _is_late(facts, sign)
    }


def diagnose(facts: StallFacts) -> Dict[str, Finding]:
    """Return {task: what is wrong with it}, for the stalled tasks of this host only."""
    findings = {}
    for task in sorted(find_late_tasks(facts)):
        finding = _diagnose_task(facts, task)
        if finding is not None:
            findings[task] = finding
    return findings


def _is_late(facts: StallFacts, sign: LifeSigns) -> bool:
    return not sign.starting and (
        sign.still_s >= facts.after_s or sign.waiting_s >= min(WAITING_S, facts.after_s)
    )


def _diagnose_task(facts: StallFacts, task: str) -> Optional[Finding]:
    sign = facts.signs[task]
    if sign.stopped:
        return Finding(_describe_frozen(facts, task), True)
    if not is_training(facts.peers[task]):
        return None
    named = [other for other in sign.waits if other in facts.peers and other != task]
    if (
        not named
        and facts.lockstep
        and any(_is_training_and_not_late(facts, other) for other in _other_tasks(facts, task))
    ):
        return None  # this task waits for other tasks, which are computing
    blamed = _describe_culprits(facts, task, named or list(_other_tasks(facts, task)), bool(named))
    if blamed:
        reason = "waits for " + "; ".join(blamed[:_NAMED_MOST])
        if len(blamed) > _NAMED_MOST:
            reason += "; and %d more" % (len(blamed) - _NAMED_MOST)
        if "(succeeded)" in reason:
            reason += "; give all workers equally many steps"
        return Finding(reason, False)
    if named and all(
        _is_training_and_not_late(facts, other) or _is_starting(facts, other) for other in named
    ):
        return None  # the tasks for which this task waits are still starting or working
    if task in facts.proxies:
        return Finding(
            "%s is set in its environment, and no_proxy does not list the other tasks"
            % facts.proxies[task],
            True,
        )
    if sign.disk:
        return Finding("its process %d waits for a disk (state D)" % sign.disk, True)
    if named:
        return Finding(
            "waits for %s, which can be reached and does not answer"
            % ", ".join(_name_with_host(facts, one) for one in named),
            True,
        )
    still = [
        (facts.signs[other].still_s, other)
        for other in _other_tasks(facts, task)
        if other in facts.signs and is_training(facts.peers[other])
    ]
    longest_s, first = max(still, default=(0.0, ""))
    if longest_s >= sign.still_s + EARLIER_S:
        return Finding(
            "probably waits for %s, which stalled earlier" % _name_with_host(facts, first),
            False,
        )
    return Finding("no output, no CPU use, no traffic, and no visible problem in other tasks", True)


# --- what may be wrong with another task


def _describe_culprits(
    facts: StallFacts, task: str, others: List[str], is_named: bool
) -> List[str]:
    """Return texts that name the tasks because of which `task` stands still, with the reason. Only
    the tasks in `others` are considered. `is_named`: True if `task` itself has logged that it waits
    for these tasks."""
    problems = ((other, _find_problem(facts, other, is_named)) for other in others)
    blamed = [
        _name_with_host(facts, other) + ": " + problem
        for other, problem in problems
        if problem is not None
    ]
    gone = [other for other in _other_hosts(facts) if _is_host_silent(facts, other)]
    if blamed and len(gone) > 1 and len(gone) == len(_other_hosts(facts)):
        return [
            "all other hosts: none of these hosts can be reached from %s (%s)"
            % (facts.host, facts.hosts[gone[0]])
        ]
    return blamed


def _find_problem(facts: StallFacts, other: str, is_named: bool) -> Optional[str]:
    peer, sign, port = facts.peers[other], facts.signs.get(other), facts.port_answers.get(other)
    end = facts.ended.get(other)
    if end is not None and is_final(end):
        if is_named or end["outcome"] != "succeeded" or facts.lockstep:
            return "it has ended (%s)" % _describe_ending(end)
    elif end is not None and (sign is None or sign.starting):
        return "it ended (%s) and starts again" % _describe_ending(end)
    if other in facts.loopback:
        return "wrong address: on %s, %s (loopback)" % (facts.host, facts.loopback[other])
    if end is not None and is_final(end):
        return None
    if peer.host != facts.host and _is_host_silent(facts, peer.host):
        return "%s cannot be reached from %s (%s)" % (peer.host, facts.host, facts.hosts[peer.host])
    if sign is not None and sign.stopped:
        return _describe_frozen(facts, other)
    if port not in (None, OPEN, CLOSED):
        return "its port %s cannot be reached from %s (%s)" % (
            peer.address.rpartition(":")[2],
            facts.host,
            port,
        )
    is_closed = port == CLOSED and (is_named or is_server(peer))
    if is_closed or (sign is not None and sign.listens is False):
        return "its port %s is closed: no process listens there" % peer.address.rpartition(":")[2]
    return None


def _is_host_silent(facts: StallFacts, host: str) -> bool:
    return facts.hosts.get(host, OPEN) not in (OPEN, CLOSED)


def _describe_frozen(facts: StallFacts, task: str) -> str:
    pid = facts.signs[task].stopped
    return "frozen: its process %d is stopped; on %s `kill -CONT %d` continues it" % (
        pid,
        facts.peers[task].host,
        pid,
    )


def _describe_ending(end: Ending) -> str:
    if end["outcome"] == "succeeded":
        return "succeeded"
    return wire.summarize_ending(end["outcome"], end.get("exit_code"), end.get("signal"))


# --- properties of tasks


def is_training(peer: wire.Peer) -> bool:
    """Return whether the task is expected to make progress all the time. Servers wait for work, and
    evaluators wait for checkpoints, so the answer for both is False."""
    return not is_server(peer) and peer.role != "evaluator"


def _is_training_and_not_late(facts: StallFacts, task: str) -> bool:
    sign, end = facts.signs.get(task), facts.ended.get(task)
    if sign is None or sign.starting or (end is not None and is_final(end)):
        return False
    return is_training(facts.peers[task]) and not _is_late(facts, sign)


def _is_starting(facts: StallFacts, task: str) -> bool:
    sign = facts.signs.get(task)
    return sign is not None and sign.starting


def _other_tasks(facts: StallFacts, task: str) -> Iterable[str]:
    """Return the tasks other than `task`. Servers come first, because a task usually waits for a
    server."""
    return sorted(
        (other for other in facts.peers if other != task),
        key=lambda other: (is_training(facts.peers[other]), other),
    )


def _other_hosts(facts: StallFacts) -> List[str]:
    return sorted({peer.host for peer in facts.peers.values()} - {facts.host})


def _name_with_host(facts: StallFacts, task: str) -> str:
    return "%s on %s" % (task, facts.peers[task].host)
