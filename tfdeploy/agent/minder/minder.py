"""One per run and host: holds the ports, talks to the other hosts, starts supervisors, ends the run. Needs no control machine.

It looks (files, the mesh), lets decide.py decide, and acts. What it knows is on disk before it acts on it (unless
the disk is full), so that another minder can take over at any moment.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time

from tfdeploy.agent.annotations import Any, Dict, List, Optional, Tuple
from tfdeploy.agent.health import monitor
from tfdeploy.agent.health.peers import Colleague
from tfdeploy.agent.host import processes, thread_errors
from tfdeploy.agent.host.atomic import read_json, write_bytes
from tfdeploy.agent.host.flock import is_locked, take_lock
from tfdeploy.agent.mesh import keep_transfer, shared_state, told_end
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.minder import actions, decide, held_ports, linger, restart, unminded
from tfdeploy.agent.minder.store import Ledger
from tfdeploy.agent.minder.supervisors import Staff, tell_supervisor
from tfdeploy.agent.run import clock, leftovers, reap
from tfdeploy.agent.run.find import place
from tfdeploy.agent.run.folder import WORDS, RunPaths
from tfdeploy.agent.run.task_processes import supervisor_lock

STACK_BYTES = 1 << 20  # of a thread: many of the usual 8 MiB do not fit where memory is limited
_BUSY_TICK_S, _IDLE_TICK_S = 0.25, 1.5


class Minder:
    def __init__(self, paths: RunPaths, lock: Optional[int] = None) -> None:
        self.paths = paths
        self.lock = lock
        self.part = paths.part()
        self.peers = {peer.task: peer for peer in self.part.peers}
        self.ledger = Ledger(paths, self.part)
        self.state = self.ledger.state
        self.takes_over = self.state.minder_pid is not None
        self.rebooted = self.state.boot_id not in (None, processes.boot_id())
        self.astray = self.takes_over and not any(is_locked(supervisor_lock(paths, spec.task)) for spec in self.part.tasks)
        self.staff = Staff(paths, self.part)
        self.holders: List[socket.socket] = []
        self.own_ports = held_ports.OwnPorts(self.part)
        self.wake_reading, self.wake_writing = os.pipe()
        os.set_blocking(self.wake_reading, False)
        os.set_blocking(self.wake_writing, False)
        self.mesh: Optional[Mesh] = None
        self.supplier: Optional[keep_transfer.Supplier] = None
        self.colleague = Colleague()
        self.rounds: Optional[monitor.Rounds] = None
        self.launcher: Tuple[Optional[Dict[str, Any]], ...] = (None, None)  # its last signs of life
        self.refused = ""  # what the system said last

    # --- begin

    def begin(self) -> None:
        """Holds every port, listens on the mesh's. Raises PortTaken; then nothing is held."""
        self.ledger.remember()
        self.holders = held_ports.hold(self.part, beside=self.takes_over and not self.rebooted)
        if not self.takes_over:
            self.own_ports.hold()
        self._join_mesh()
        self.rounds = monitor.Rounds(self.paths, self.part, self.mesh, self.colleague, self.wake)
        self._listen_to_signals()
        who = processes.identity(os.getpid())
        self.state.minder_pid, self.state.minder_start_ticks = os.getpid(), who.start_ticks if who else None
        if self.rebooted:
            self.state.marks, self.state.health = {}, {}  # of a clock that began anew
        self.state.boot_id, self.state.hostname, self.state.place = processes.boot_id(), os.uname().nodename, place()
        self.state.marks.setdefault("prepared", time.monotonic())
        for host in unminded.hosts(self.ledger.known):
            self.state.marks.setdefault(unminded.mark(host), time.monotonic())
        if self.astray:
            self.state.marks["back"] = time.monotonic()
        self.ledger.save()
        self.ledger.journal("takes over" if self.takes_over else "prepared")

    def _join_mesh(self) -> None:
        own = next((one for one in self.part.mesh if one.host == self.part.host), None)
        certs = read_json(self.paths.file("mesh.json"))
        if own is None or len(self.part.mesh) < 2 or not certs:
            return
        listener = held_ports.claim(own.port, self.takes_over)
        offers = keep_transfer.Offers(self.paths, self.part, self.colleague.answer)
        self.mesh = Mesh(self.part, certs, listener, self.ledger.known, self.wake, offers.answer)
        self.supplier = keep_transfer.Supplier(self.paths, self.part, self.mesh)

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self.wake_writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        processes.become_subreaper()

    def wake(self) -> None:
        """From any thread: look again now."""
        try:
            os.write(self.wake_writing, b"!")
        except OSError:
            pass

    # --- the loop

    def run(self) -> None:
        fifo = os.open(self.paths.file("minder.fifo"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        while (self.state.phase != "ended" or not self.ledger.saved) and os.path.isdir(self.paths.host_dir):
            if not self._try():
                busy = self.state.phase != "committed" or "decided" in self.state.marks
                self._wait(fifo, _BUSY_TICK_S if busy else _IDLE_TICK_S)
            if not self.ledger.saved:
                self.ledger.save()
        self._linger(fifo)
        if self._never_began():
            leftovers.remove(self.paths)
        else:
            leftovers.forget_half_words(self.paths)
            leftovers.settle(self.paths)

    def _never_began(self) -> bool:
        """Prepared in vain, and nobody there who rolls back: nothing of it was ever alive that one may want to read about."""
        told = self.paths.word("abort") or self.paths.word("stop")
        return self.state.started is None and not self.ledger.known.committed and not told and self._is_ours()

    def _is_ours(self) -> bool:
        """The folder is still the one that we mind, and no later run's of that name."""
        try:
            return self.lock is not None and os.path.samestat(os.fstat(self.lock), os.stat(self.paths.file("minder.lock")))
        except OSError:
            return False

    def _try(self) -> bool:
        """A step. What the system refuses is tried again: nobody may be left to replace us."""
        try:
            changed = self.step()
        except Exception as error:  # noqa: BLE001 - no more processes, files, threads, memory; or a bug
            changed, said = False, str(error) or type(error).__name__
            if said != self.refused:
                self.ledger.journal("refused", why=said)
            self.refused = said
            if not isinstance(error, (OSError, RuntimeError)):
                thread_errors.tell_once("minding the run")
        return changed

    def step(self) -> bool:
        """Looks and acts once. False: nothing changed by it."""
        self.staff.reap()
        own = self.staff.look("decided" in self.state.marks)
        self.own_ports.hold_idle(own)
        self._learn(own)
        actions = decide.decide(self._view(own))
        changed = False
        for action in actions:
            changed = self._act(action) or changed
        self._see_the_doctor()
        return changed

    def _wait(self, fifo: int, tick_s: float) -> None:
        for descriptor in select.select([fifo, self.wake_reading], [], [], tick_s)[0]:
            try:
                os.read(descriptor, 65536)
            except BlockingIOError:
                pass

    def _learn(self, own: Dict[str, decide.Own]) -> None:
        """Own tasks that ended, and what the peers said, become knowledge."""
        known = self.ledger.known if self.mesh is None else self.ledger.known.join(self.mesh.known())
        known = known.join(told_end.take(self.paths, self.part))
        ended = {}
        for task, one in own.items():
            if one.status.state in ("ended", "lost") and not one.supervised and task in self.peers:
                about = (self.part, self.peers[task], known, one.status)
                ended[task] = shared_state.ending_of(one.status, restart.is_last(*about), restart.recovers(*about))
        known = known.join(Knowledge(ended=ended))
        self._know(known._replace(decided=shared_state.decided(self.part.peers, known)))
        for task in ended:
            self.ledger.account(self.peers[task], own[task].status)

    def _know(self, known: Knowledge) -> None:
        self.ledger.learn(known)
        if self.mesh is not None:
            self.mesh.tell(known)

    def _view(self, own: Dict[str, decide.Own]) -> decide.View:
        words = {name: word for name, word in ((name, self.paths.word(name)) for name in WORDS) if word is not None}
        if "stop" in words and not self.state.stop_requested:
            self.state.stop_requested = True
            self.ledger.save()
        now = time.monotonic()
        signs = words.get("start"), words.get("renew")
        if signs != self.launcher and self.state.phase in ("prepared", "started"):
            self.state.marks[self.state.phase] = now  # whoever launches is still there, waiting for the other hosts
        self.launcher = signs
        if "decided" not in self.state.marks and shared_state.decided(self.part.peers, self.ledger.known) is not None:
            self.state.marks["decided"] = now
            self.ledger.save()
            self._tell_programs()
        if self.mesh is not None and "decided" in self.state.marks:
            self.mesh.attend((self.part.finish_grace_s + self.part.stop_grace_s) / 4)
        silent = {} if self.mesh is None else self.mesh.silent_s(now, self.state.marks.get("decided"))
        view = decide.View(
            self.part,
            self.state.phase,
            self.ledger.known,
            own,
            now,
            self.state.marks,
            words,
            silent,
            self.state.restarts,
            self.state.supplied,
            processes.boot_id(),
            self._is_astray(),
            {} if self.mesh is None else self.mesh.refused_s(),
        )
        waiting = {task: words for task, words in self.state.again.items() if not own[task].written}
        again = {**waiting, **restart.first_words(view)}
        if again and self.supplier is not None and self.supplier.said:
            waits = "; `keep` of %s has not come: %s" % (self.part.supply_from, self.supplier.said[:200])
            again = {task: words + waits for task, words in again.items()}
        if again != self.state.again:
            self.state.again = again
            self.ledger.save()
        return view

    def _tell_programs(self) -> None:
        """Synchronous workers wait no longer for a chief that has finished (runtime/no_more_tokens.py)."""
        try:
            write_bytes(self.paths.file("decided"), b"")
        except OSError:
            pass  # a full disk: they have their grace

    def _is_astray(self) -> bool:
        """Until another host of the run is heard of, where one may be left."""
        if self.astray and (self.mesh is None or self.mesh.in_touch()):
            self.astray = False
        return self.astray

    # --- what stands still

    def _see_the_doctor(self) -> None:
        """Takes down what is stalled, and why; under `restart` who is to blame for it has failed."""
        if self.rounds is None:
            return
        active = self.state.phase == "committed" and self.ledger.known.abort is None and "decided" not in self.state.marks
        self.rounds.attend(self.ledger.known, active)
        health = {task: one.as_json() for task, one in self.rounds.health().items()}
        self.ledger.note_health(health)
        for task, one in self.rounds.health().items():
            if not one.culprit or self.part.stall_action != "restart":
                continue
            status = self.paths.status(task)
            if status.state == "running" and status.attempt == one.attempt:  # not of the attempt before
                tell_supervisor(self.paths, task, "stalled: " + one.reason, self.part.stop_grace_s, "failed")

    # --- actions

    def _act(self, action: actions.Action) -> bool:
        """Carries it out. True: look again at once."""
        if isinstance(action, decide.Start):
            self.own_ports.let_go(action.task)
            return self.staff.start(action.task, action.attempt, action.round)
        if isinstance(action, decide.End):
            tell_supervisor(self.paths, action.task, action.reason, action.grace_s)
            return False
        if isinstance(action, decide.Bury):
            return reap.bury(self.paths, *action)
        if isinstance(action, actions.GiveUp):
            return reap.give_up(self.paths, action.task, action.reason)
        if isinstance(action, actions.Supply):
            return self._supply(action.n)
        if isinstance(action, actions.Stand):
            self._know(self.ledger.known.join(Knowledge(stands={self.part.host: (action.n, action.stage)})))
            self.ledger.journal("gang", round=action.n, stage=action.stage)
            return True
        if isinstance(action, actions.NewRound):
            status, count = self.paths.status(action.task), self.state.restarts[action.task]
            self._know(self.ledger.known.join(Knowledge(round=restart.new_round(action, status, count))))
            return True
        if isinstance(action, (actions.Unminded, actions.Lose)):
            self._know(unminded.learn(self.part, self.ledger.known, action, clock.now(self.part)))
            return True
        if isinstance(action, decide.Phase):
            return self._enter(action.phase)
        fields: Dict[str, object] = {"host": self.part.host, "time": clock.now(self.part)}
        if isinstance(action, decide.Commit):
            self._know(self.ledger.known._replace(committed=True))
        else:
            fields.update(kind=action.kind, reason=action.reason[: shared_state.MAX_TEXT])
            if action.grace_s is not None:
                fields["grace_s"] = action.grace_s
            self._know(self.ledger.known.join(Knowledge(abort=fields)))
            self.ledger.journal("abort", kind=action.kind, reason=action.reason)
        return True

    def _supply(self, number: int) -> bool:
        if self.supplier is None or not self.supplier.has_come(number):
            return False
        self.state.supplied = number
        self.ledger.save()
        self.ledger.journal("supplied", round=number)
        return True

    def _enter(self, phase: str) -> bool:
        if phase == "started":
            self.state.started = clock.now(self.part)
            self.state.marks["started"] = time.monotonic()
        if phase == "committed":
            leftovers.settle(self.paths)
        if phase == "ended":
            self._release()
            leftovers.restore_links(self.paths)
            self.state.left_files = leftovers.left_files(self.paths, self.part)
            self.state.ended = clock.now(self.part)
        self.state.phase = phase
        self.ledger.save()
        self.ledger.journal(phase)
        return True

    def _release(self) -> None:
        for holder in self.holders:
            holder.close()
        self.holders = []
        self.own_ports.close()
        if self.supplier is not None:
            self.supplier.give_up()
        leftovers.forget_secrets(self.paths)

    def _linger(self, fifo: int) -> None:
        """Until the peers that still have something running know how it ended here."""
        if self.mesh is None:
            return
        one = linger.Messenger(self.paths, self.mesh, self.ledger.known.committed, self.state.started is not None)
        while one.is_needed():
            self._wait(fifo, one.tick_s)
            self._know(self.ledger.known.join(self.mesh.known()))
            stopped = self.paths.word("stop") is not None
            if stopped and self.ledger.known.abort is None:  # only now: those who are away must hear it
                self._act(decide.Abort("stop", decide.STOPPED_BY_OPERATOR))
        self.mesh.say_farewell()
        self.mesh.close()


def _detach() -> None:
    """Nobody's child and in nobody's session, so that it outlives whoever started it."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()


def main(argv: List[str]) -> int:
    """minder HOST_DIR [FD]: says on FD, as one JSON line, whether it holds all that it needs."""
    os.umask(0o077)
    paths = RunPaths(argv[0])
    paths.check_owner("tasks")
    answer = int(argv[1]) if len(argv) > 1 else None
    threading.stack_size(STACK_BYTES)
    _detach()
    lock = take_lock(paths.file("minder.lock"))
    if lock is None:
        return 0
    if answer is None and paths.state().phase == "ended":
        return 0
    minder = Minder(paths, lock)
    try:
        minder.begin()
    except held_ports.PortTaken as taken:
        _say(answer, {"port": taken.port})
        return 1
    _say(answer, {"ok": True})
    minder.run()
    return 0


def _say(descriptor: Optional[int], line: Dict[str, object]) -> None:
    if descriptor is None:
        return
    try:
        os.write(descriptor, json.dumps(line).encode("ascii") + b"\n")
    except BrokenPipeError:
        pass  # who asked has died: the launch may come again, or we end
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
