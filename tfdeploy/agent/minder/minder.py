"""The minder is the process that manages one run on one host. It holds the run's ports, talks to
the minders of the other hosts, starts supervisors, and ends the run. It does not need the control
machine.

The minder works in steps. In each step, it observes files, its children, the mesh and the clock,
adds its observations to the shared state, decides (decide.py), acts (effects.py) and saves. The
state is written to disk before the minder acts on it (unless the disk is full), so that a new
minder can replace this one at any moment.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Optional, Tuple
from tfdeploy.agent.health.monitor import Monitor
from tfdeploy.agent.health.peers import SignsResponder
from tfdeploy.agent.host import processes, threads
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.json_text import THREAD_STACK_BYTES
from tfdeploy.agent.mesh import forwarded_end, shared_state
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder import decide, held_ports, restart, unminded
from tfdeploy.agent.minder.actions import AbortRun, EnterPhase, HostRunView, LocalTask
from tfdeploy.agent.minder.effects import ActionExecutor
from tfdeploy.agent.minder.linger import MinderLinger
from tfdeploy.agent.minder.sampling import SamplerProcess
from tfdeploy.agent.minder.store import StateStore
from tfdeploy.agent.minder.supervisors import Supervisors
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.file_origin import own_file_origin
from tfdeploy.agent.run.folder import ORDERS, RunPaths

if TYPE_CHECKING:
    from ssl import SSLSocket

    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts
    from tfdeploy.agent.minder.firewall import Firewall
    from tfdeploy.agent.shapes import MinderAnswer, MinderOrder

OPEN_S = 1.5  # the pause between two checks for ports that are open to everybody
# The longest pause between two steps of the minder's loop: the first value while the run starts or
# ends, the second value while its tasks train.
_BUSY_TICK_S, _IDLE_TICK_S = 0.25, 1.5


class Minder:
    def __init__(self, paths: RunPaths, lock: FileLock) -> None:
        self.paths = paths
        self.lock = lock
        self.part = paths.part()
        self.peers = {peer.task: peer for peer in self.part.peers}
        self.store = StateStore(paths, self.part)
        self.state = self.store.state
        self.takes_over = self.state.minder_pid is not None
        self.rebooted = self.state.boot_id not in (None, processes.boot_id())
        self.rejoining = self.takes_over and not any(
            is_locked(paths.supervisor_lock(spec.task)) for spec in self.part.tasks
        )
        self.supervisors = Supervisors(paths, self.part)
        self.sampling = SamplerProcess(paths, self.part)
        self.own_ports = held_ports.ExclusivePorts(self.part)
        self.wake_reading, self.wake_writing = os.pipe()
        os.set_blocking(self.wake_reading, False)
        os.set_blocking(self.wake_writing, False)
        self.mesh: Optional[Mesh] = None
        self.firewall: Optional[Firewall] = None
        self.guarded: Optional[GuardedPorts] = None
        # The orders `start` and `renew` when they were last read. The launcher has written them. If
        # they change, the launcher is alive.
        self.launcher: Tuple[Optional[MinderOrder], ...] = (None, None)
        self.next_open = 0.0  # when the next check for ports that are open to everybody is due
        self.refused = ""  # the error of the last failed step, which is recorded only once

    # --- starting the minder

    def begin(self) -> None:
        """Hold all ports, and listen on the mesh's port. Raises PortTaken or FirewallRefused if
        this fails."""
        self.store.load()
        if self.part.protect == "firewall":
            from tfdeploy.agent.minder import firewall

            self.firewall = firewall.start_firewall(
                self.paths, self.part, self.takes_over, self.store.journal
            )
        may_be_bound = self.takes_over and not self.rebooted
        self.guarded = held_ports.guard_ports(self.paths, self.part, may_be_bound, self.state)
        holders = held_ports.hold_ports(self.part, may_be_bound) if self.guarded is None else []
        self.supervisors.guarded = self.guarded
        if not self.takes_over:
            self.own_ports.hold_all()
        self.signs = SignsResponder()
        self.mesh = self._join_mesh()
        self.effects = ActionExecutor(
            self.store, self.supervisors, self.mesh, holders, self.own_ports, self.guarded
        )
        self.monitor = Monitor(self.paths, self.part, self.mesh, self.signs, self.wake)
        self._install_signal_handlers()
        self._record_own_process()
        self.store.journal("takes over" if self.takes_over else "prepared")

    def _join_mesh(self) -> Optional[Mesh]:
        own_ports = [minder.port for minder in self.part.mesh if minder.host == self.part.host]
        certificates = self.paths.certificates()
        if not own_ports or len(self.part.mesh) < 2 or not certificates:
            return None
        listener = held_ports.bind_mesh_port(own_ports[0], self.takes_over)
        known, answer = self.store.known, self._answer_question
        return Mesh(self.part, certificates, listener, known, self.wake, answer, self.guarded)

    def _answer_question(self, host: str, question: Any, channel: SSLSocket) -> None:
        """Answer another minder. It asks either for the signs of life of this host's tasks, or for
        this host's `keep` folders. Raises OSError or ValueError if that fails. The other minder
        then tries again."""
        if isinstance(question, dict) and "signs" in question:
            self.signs.answer(channel)
        else:
            from tfdeploy.agent.broadcast.keep_transfer import send_keep_folders

            send_keep_folders(self.paths, self.part, question, channel)

    def _install_signal_handlers(self) -> None:
        signal.set_wakeup_fd(self.wake_writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        processes.become_subreaper()

    def _record_own_process(self) -> None:
        state, now = self.state, time.monotonic()
        identity = processes.read_identity(os.getpid())
        state.minder_pid, state.minder_start_ticks = (
            os.getpid(),
            identity.start_ticks if identity else None,
        )
        if self.rebooted:
            # A boot restarts the monotonic clock, so the stored times from before the boot are
            # meaningless.
            state.marks, state.health = {}, {}
        vars(state).update(own_file_origin())
        state.marks.setdefault("prepared", now)
        for host in unminded.unminded_hosts(self.store.known):
            state.marks.setdefault(unminded.unminded_mark(host), now)
        if self.rejoining:
            state.marks["back"] = now
        self.store.mark_unsaved()
        self.store.save()

    def wake(self) -> None:
        """End the pause of the minder's loop, so that the next step begins now. May be called from
        any thread."""
        try:
            os.write(self.wake_writing, b"!")
        except OSError:
            pass

    # --- the loop

    def run(self) -> None:
        fifo = os.open(self.paths.file(layout.MINDER_FIFO), os.O_RDWR | os.O_NONBLOCK)
        while (
            self.state.phase != "ended" or not self.store.saved
        ) and not self.paths.was_removed():
            if not self._try_step():
                busy = self.state.phase != "committed" or "decided" in self.state.marks
                self._wait_for_wakeup(fifo, _BUSY_TICK_S if busy else _IDLE_TICK_S)
            self.store.save()
        self.sampling.end()
        if self.firewall is not None:
            self.firewall.close()
        self._stay_until_peers_know(fifo)
        if self._was_never_started():
            leftovers.remove_run(self.paths)
        else:
            leftovers.remove_partial_orders(self.paths)
            leftovers.remove_uncommitted_marks(self.paths)

    def _was_never_started(self) -> bool:
        """Return True if the run was prepared on this host, but then neither started, stopped nor
        rolled back. In this case no task has ever run, so the folder of the run is not needed."""
        ended = self.paths.minder_order("abort") or self.paths.minder_order("stop")
        return (
            self.state.started is None
            and not self.store.known.committed
            and not ended
            # A later run with the same name may have replaced the folder. Then the lock is gone
            # too.
            and self.lock.is_held()
        )

    def _try_step(self) -> bool:
        """Take a step, and return whether it changed something. If the step fails, the next step
        tries again. An error must not end the minder, because there may be no process that could
        start a new minder."""
        try:
            changed = self.step()
        except Exception as error:  # noqa: BLE001 - a limit of the system, or a bug
            changed, why = False, str(error) or type(error).__name__
            if why != self.refused:
                self.store.journal("refused", why=why)
            self.refused = why
            if not isinstance(error, (OSError, RuntimeError)):
                threads.print_error_once("minding the run")
        return changed

    def step(self) -> bool:
        """Take one step: observe, decide, act and save. Return False if the actions changed
        nothing."""
        self._reap_children()
        own_tasks = self.supervisors.observe_tasks("decided" in self.state.marks)
        self._merge_shared_state(own_tasks)
        view = self._make_host_run_view(own_tasks)
        self._record_stop_and_launcher_signs(view)
        self._record_restart_reasons(view)
        self.store.save()
        self.effects.send_state_and_tell_success()
        self.own_ports.sync_held_ports(own_tasks)
        changed = False
        for action in decide.decide(view):
            if action == EnterPhase("ended"):
                self.sampling.end()  # the last sample is written before the phase says "ended"
            changed = self.effects.carry_out(action) or changed
        self._record_stalls_and_end_culprits()
        self._restore_firewall_and_record_open_ports(view.now)
        self.store.save()
        return changed

    def _wait_for_wakeup(self, fifo: int, tick_s: float) -> None:
        for descriptor in select.select([fifo, self.wake_reading], [], [], tick_s)[0]:
            try:
                os.read(descriptor, 65536)
            except BlockingIOError:
                pass

    # --- observing the run

    def _reap_children(self) -> None:
        ended = self.supervisors.reap_children()
        if self.state.phase == "committed":
            self.sampling.start_if_dead(time.monotonic(), ended)

    def _merge_shared_state(self, own_tasks: Dict[str, LocalTask]) -> None:
        """Add two kinds of facts to the shared state: how tasks of this host have ended, and what
        other minders and the control machine have sent. Write nothing to disk."""
        in_touch = self.mesh is None or self.mesh.has_heard_any_peer()
        known = self.store.known.join(forwarded_end.take_forwarded_run_end(self.paths, self.part))
        if self.mesh is not None:
            known = known.join(self.mesh.current_state())
        ended = {}
        for task, own in own_tasks.items():
            if own.has_ended and task in self.peers:
                following = restart.decide_restart(self.part, self.peers[task], known, own.status)
                ended[task] = shared_state.make_ending(
                    own.status, following.is_final, following.kind != restart.LAST
                )
        known = known.join(KnownRunState(ended=ended))
        self.store.replace_shared_state(
            known._replace(decided=shared_state.run_success_time(self.part.peers, known))
        )
        for task in ended:
            self.store.record_death(self.peers[task], own_tasks[task].status)
        if "decided" not in self.state.marks and self.store.known.decided is not None:
            self.store.mark_unsaved()
            self.state.marks["decided"] = time.monotonic()
        self.rejoining = self.rejoining and not in_touch

    def _record_stop_and_launcher_signs(self, view: HostRunView) -> None:
        """Record whether an operator has asked for a stop. If the launcher has written a new order,
        the launcher is alive, so restart the time limit of the current phase."""
        if "stop" in view.orders:
            self.store.update_state(stop_requested=True)
        signs = view.orders.get("start"), view.orders.get("renew")
        if signs != self.launcher and view.phase in ("prepared", "started"):
            # The launcher is alive and waits for other hosts, so this host must not give up yet.
            view.time_by_event[view.phase] = view.now
        self.launcher = signs

    def _make_host_run_view(self, own_tasks: Dict[str, LocalTask]) -> HostRunView:
        mesh, state, now = self.mesh, self.state, time.monotonic()
        orders = {name: self.paths.minder_order(name) for name in ORDERS}
        return HostRunView(
            part=self.part,
            phase=state.phase,
            known=self.store.known,
            local_tasks=own_tasks,
            now=now,
            time_by_event=state.marks,
            orders={name: order for name, order in orders.items() if order is not None},
            silence_s_by_host={}
            if mesh is None
            else mesh.silence_s_by_host(now, state.marks.get("decided")),
            restart_counts=state.restarts,
            fetched_keep_round=state.supplied,
            boot_id=state.boot_id,
            rejoining=self.rejoining,
            refusal_s_by_host={} if mesh is None else mesh.refusal_s_by_host(),
        )

    def _record_restart_reasons(self, view: HostRunView) -> None:
        """Record in state.json which tasks of this host will restart soon, and why."""
        waiting = {
            task: reason
            for task, reason in self.state.again.items()
            if not view.local_tasks[task].is_status_written
        }
        reasons = {**waiting, **restart.restart_reasons(view)}
        refused = self.effects.keep_fetch_error()
        if reasons and refused:
            waits = "; the `keep` folders of %s have not arrived yet: %s" % (
                self.part.supply_from,
                refused[:200],
            )
            reasons = {task: reason + waits for task, reason in reasons.items()}
        self.store.update_state(again=reasons)

    # --- stalled tasks

    def _record_stalls_and_end_culprits(self) -> None:
        """Record which tasks are stalled, and why. With the setting `stall: restart`, also end the
        task that causes the stall. The task then counts as failed."""
        active = (
            self.state.phase == "committed"
            and self.store.known.abort is None
            and "decided" not in self.state.marks
        )
        self.monitor.update(self.store.known, active)
        stalled = self.monitor.health()
        self.store.record_stalled_tasks({task: stall.as_json() for task, stall in stalled.items()})
        if self.part.stall_action == "restart":
            for task, stall in stalled.items():
                if stall.is_culprit:
                    self.effects.end_stalled_attempt(task, stall.attempt, stall.reason)

    # --- access to the ports

    def _restore_firewall_and_record_open_ports(self, now: float) -> None:
        if self.firewall is not None and self.state.phase != "ended":
            self.firewall.restore_and_journal(self.store.journal)
        if self.guarded is not None and now >= self.next_open:
            self.next_open = now + OPEN_S
            self.store.record_open_ports(held_ports.explain_open_ports(self.part, self.guarded))
        if self.guarded is not None:
            self.store.record_addresses_outside_plan(
                self.guarded.host_by_ip, self.guarded.refused_ip_by_host
            )

    # --- after the end of the run

    def _stay_until_peers_know(self, fifo: int) -> None:
        """Keep the minder alive until the hosts with unfinished tasks know how the run has ended.
        See linger.py."""
        if self.mesh is None:
            return
        started = self.state.started is not None
        linger = MinderLinger(self.paths, self.mesh, self.store.known.committed, started)
        while linger.decide_stay_and_tick():
            self._wait_for_wakeup(fifo, linger.tick_s)
            self.effects.replace_and_share_state(self.store.known.join(self.mesh.current_state()))
            # An operator may stop the run after it has ended on this host. Hosts on which the run
            # has not ended, because they were cut off, learn of this order only from this minder.
            if self.paths.minder_order("stop") is not None and self.store.known.abort is None:
                self.effects.carry_out(AbortRun("stop", decide.STOPPED_BY_OPERATOR))
        self.mesh.send_last_update()
        self.mesh.close()


def _daemonize() -> None:
    """Continue in a child process with a session of its own, so that the minder survives the
    process that started it."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()


def main(argv: List[str]) -> int:
    """Run the command `minder HOST_DIR [FD]`. FD is the descriptor to which the minder writes one
    line of JSON. The line says whether it holds all of its ports."""
    os.umask(0o077)
    paths = RunPaths(argv[0])
    paths.check_owner("tasks")
    answer = int(argv[1]) if len(argv) > 1 else None
    threading.stack_size(THREAD_STACK_BYTES)
    _daemonize()
    lock = FileLock(paths.minder_lock)
    if not lock.acquire() or (answer is None and paths.state().phase == "ended"):
        return 0
    minder = Minder(paths, lock)
    report: MinderAnswer = {"ok": True}
    try:
        minder.begin()
    except held_ports.PortTaken as taken:
        report = {"port": taken.port}
    except held_ports.FirewallRefused as error:
        report = {"firewall": str(error)}
    if answer is not None:
        _report_start_result(answer, report)
    if "ok" not in report:
        return 1
    minder.run()
    return 0


def _report_start_result(descriptor: int, line: MinderAnswer) -> None:
    try:
        os.write(descriptor, json.dumps(line).encode("ascii") + b"\n")
    except BrokenPipeError:
        # The process that started the minder has died. Another launch may continue the run. If none
        # does, this minder ends when its time limit has passed.
        pass
    os.close(descriptor)
