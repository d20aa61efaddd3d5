"""Watch the health of the tasks of one host, on a thread of the minder (the process that watches a
run on its host): observe the tasks, ask the other hosts, and report what is wrong.

The monitor ends no task and writes no file; the minder reads the result with `health()`. While all
tasks make progress, the monitor only observes them every few seconds, which costs a small share of
a CPU core. Once a task is stalled, the monitor also asks other hosts and tries to connect to ports.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Dict, List, Optional, Set, Tuple
from tfdeploy.agent.health import activity, diagnose, peers, reach
from tfdeploy.agent.health.activity import LifeSigns, TaskActivity
from tfdeploy.agent.health.diagnose import Finding, StallFacts
from tfdeploy.agent.host import processes, threads
from tfdeploy.agent.host.network import tcp_diag
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import clock
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Health

# The shortest and the longest pause between two checks, in seconds. MAX_CPU_SHARE may require a
# longer pause.
CHECK_INTERVALS_S = (1.0, 5.0)
ASK_INTERVAL_S = 10.0  # the pause in seconds before the other hosts are asked again
MOST_PORTS = 64  # limits how many ports are tried at the same time
# The first and the longest pause between two tries of the ports, in seconds.
PORT_INTERVALS_S = (30.0, 300.0)
# The largest share of a CPU core that the health checks may use. When they use more, the pause
# between two checks becomes longer.
MAX_CPU_SHARE = 0.003
# A task may be ended only if this many diagnoses in a row have named it as the cause of the stall.
CONFIRMATIONS = 2


class Stall(NamedTuple):
    """One stalled task. All fields except `is_culprit` are reported in HostRunState.health."""

    attempt: int
    reason: str
    since: float  # when the task was last active, in UTC seconds
    is_culprit: bool  # True if CONFIRMATIONS diagnoses in a row named this task as the cause

    def as_json(self) -> Health:
        return {
            "word": "stalled",
            "attempt": self.attempt,
            "reason": self.reason,
            "since": round(self.since, 3),
        }


class Monitor:
    """Watches the tasks of this host on its own thread. It calls `changed` on that thread when the
    result of `health` has changed."""

    def __init__(
        self,
        paths: RunPaths,
        part: wire.HostPart,
        mesh: Optional[Mesh],
        signs_answer: peers.SignsResponder,
        changed: Callable[[], None],
    ) -> None:
        self._paths, self._part, self._mesh, self._changed = paths, part, mesh, changed
        self._answer = signs_answer
        self._peers = {peer.task: peer for peer in part.peers}
        self._known = KnownRunState()
        self._active = False
        self._is_started = False
        self._health: Dict[str, Stall] = {}
        self._watched: Dict[str, Tuple[int, TaskActivity]] = {}
        self._repeated: Dict[str, int] = {}
        self._ports: Dict[str, str] = {}
        self._next_ask = self._next_ports = 0.0
        self._ports_pause_s = PORT_INTERVALS_S[0]
        self._turn = 0

    # --- methods that the minder calls

    def update(self, known: KnownRunState, is_observing: bool) -> None:
        """Store what this minder knows of the state that the minders of the run share. If
        `is_observing` is False, the tasks are not observed."""
        if not self._part.stall_after_s:
            return
        was_active = self._active
        self._known, self._active = known, is_observing
        if is_observing and not self._is_started:
            start_thread(self._check_for_stalls_forever)
            self._is_started = True
        if was_active and not is_observing:
            self._publish({})

    def health(self) -> Dict[str, Stall]:
        return self._health if self._active else {}

    # --- methods that run on the monitor's thread

    def _check_for_stalls_forever(self) -> None:
        while True:
            begun = time.thread_time()
            if self._active:
                try:
                    self.check_tasks(time.monotonic(), self._known)
                except Exception:  # noqa: BLE001 - the run continues after any error
                    # The check has failed, so it is unknown which tasks are stalled. So no task is
                    # reported.
                    threads.print_error_once("checking for stalled tasks")
                    self._publish({})
            time.sleep(self._pause_s(time.thread_time() - begun))

    def _pause_s(self, cost_s: float) -> float:
        after_s = self._part.stall_after_s
        return max(
            min(max(after_s / 6, CHECK_INTERVALS_S[0]), CHECK_INTERVALS_S[1]),
            min(cost_s / MAX_CPU_SHARE, after_s / 3),
        )

    def check_tasks(self, now: float, known: KnownRunState) -> None:
        """Observe the tasks once, and publish which of them are stalled. `now`: monotonic
        seconds."""
        signs = self._observe_tasks(now)
        self._answer.signs = signs
        facts = StallFacts(
            self._part.host,
            self._part.lockstep,
            self._part.stall_after_s,
            self._peers,
            signs,
            known.ended,
        )
        late = diagnose.find_late_tasks(facts)
        if not late:
            self._ports, self._repeated, self._next_ask, self._next_ports = {}, {}, 0.0, 0.0
            self._ports_pause_s = PORT_INTERVALS_S[0]
            self._publish({})
        elif now >= self._next_ask:
            self._next_ask = now + min(
                ASK_INTERVAL_S, max(self._part.stall_after_s / 3, CHECK_INTERVALS_S[0])
            )
            self._publish(
                self._make_stalls(signs, diagnose.diagnose(self._add_peer_facts(facts, late, now)))
            )
        else:
            self._publish({task: stall for task, stall in self._health.items() if task in late})

    def _observe_tasks(self, now: float) -> Dict[str, LifeSigns]:
        read_processes = lru_cache(None)(processes.all_processes)
        read_traffic = lru_cache(None)(tcp_diag.read_traffic)
        signs = {}
        for spec in self._part.tasks:
            task, status = spec.task, self._paths.status(spec.task)
            if status.state == "starting":
                signs[task] = LifeSigns(starting=True)
            elif status.state == "running":
                attempt, observed = self._watched.get(task, (0, None))
                if observed is None or attempt != status.attempt:
                    observed = TaskActivity(self._paths, spec, now, status.guard_inode)
                    self._watched[task] = (status.attempt, observed)
                signs[task] = observed.observe(
                    now, partial(activity.living_pids, status, read_processes), read_traffic
                )
        return signs

    def _add_peer_facts(self, facts: StallFacts, late_tasks: Set[str], now: float) -> StallFacts:
        """Return the facts, extended by the signs of life from other hosts and by problems in the
        connections to these hosts."""
        # The order in which to ask about the tasks of other hosts: first the tasks for which a
        # stalled task waits, then servers, then the others.
        awaited = {task for stalled in late_tasks for task in facts.signs[stalled].waits}
        ordered_peers = sorted(
            (peer for peer in self._part.peers if peer.host != facts.host),
            key=lambda peer: (peer.task not in awaited, diagnose.is_training(peer), peer.task),
        )
        answers = peers.PeerSigns({}, {})
        if self._mesh is not None:
            answers = peers.ask_for_signs(
                self._mesh, self._part, self._rotate_hosts_to_ask(ordered_peers)
            )
        addresses = {peer.task: peer.address for peer in ordered_peers if peer.address}
        if now >= self._next_ports:
            self._next_ports = now + self._ports_pause_s
            self._ports_pause_s = min(2 * self._ports_pause_s, PORT_INTERVALS_S[1])
            tried = [task for task in addresses if not self._peers[task].own_port]
            states = reach.try_ports(
                [addresses[task] for task in tried[:MOST_PORTS]],
                guarded=reach.firewalled_task_addresses(self._part),
            )
            self._ports = {
                task: states[addresses[task]] for task in tried if addresses[task] in states
            }
        loopback = reach.find_loopback_names(list(addresses.values()))
        return facts._replace(
            signs={**answers.signs, **facts.signs},
            port_answers=self._ports,
            hosts=answers.hosts,
            loopback={
                task: loopback[address]
                for task, address in addresses.items()
                if address in loopback
            },
            proxies=self._find_proxies(late_tasks, list(addresses.values())),
        )

    def _rotate_hosts_to_ask(self, ordered_peers: List[wire.Peer]) -> List[str]:
        """Return the hosts of these peers in the order in which to ask them. The caller asks only
        the first MOST_HOSTS hosts. If there are more hosts, half of the asked hosts are the same in
        each call, and the others take turns."""
        hosts = list(dict.fromkeys(peer.host for peer in ordered_peers))
        half = peers.MOST_HOSTS // 2
        if len(hosts) > peers.MOST_HOSTS:
            first, others = hosts[:half], hosts[half:]
            self._turn = (self._turn + half) % len(others)
            hosts = first + others[self._turn :] + others[: self._turn]
        return hosts

    def _find_proxies(self, late_tasks: Set[str], addresses: List[str]) -> Dict[str, str]:
        read_processes, proxies = lru_cache(None)(processes.all_processes), {}
        for task in late_tasks:
            for pid in sorted(activity.living_pids(self._paths.status(task), read_processes)):
                name = reach.find_proxy_variable(processes.read_environment(pid), addresses)
                if name is not None:
                    proxies[task] = name
        return proxies

    # --- publishing the results

    def _make_stalls(
        self, signs_by_task: Dict[str, LifeSigns], finding_by_task: Dict[str, Finding]
    ) -> Dict[str, Stall]:
        self._repeated = {
            task: self._repeated.get(task, 0) + 1
            for task, finding in finding_by_task.items()
            if finding.is_culprit
        }
        stalls = {}
        for task, finding in finding_by_task.items():
            attempt, before = self._watched[task][0], self._health.get(task)
            if before is not None and before.attempt == attempt:
                since = before.since
            else:
                since = clock.now(self._part) - signs_by_task[task].still_s
            stalls[task] = Stall(
                attempt, finding.reason, since, self._repeated.get(task, 0) >= CONFIRMATIONS
            )
        return stalls

    def _publish(self, stall_by_task: Dict[str, Stall]) -> None:
        if stall_by_task != self._health:
            self._health = stall_by_task
            self._changed()
