"""Store the state of a minder (the agent's daemon for one run on one host) on disk. The state is
written before the minder acts on it, so that another minder can continue from there.

The files are state.json, knowledge.json and the journal of the run on this host. A full disk does
not stop the run: a write that failed is tried again later.
"""

from __future__ import annotations

import os
import random
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, Mapping
from tfdeploy.agent.host.atomic import remove_temporaries
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder import restart, unminded
from tfdeploy.agent.run import check_files
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Health


def remove_partial_files(paths: RunPaths) -> None:
    """Remove the temporary files of a minder that was killed while it wrote. Only the process that
    holds the minder's lock may call this function."""
    for path in (paths.known_file, paths.state_file):
        remove_temporaries(path)


class StateStore:
    """The state of a minder.

    `state`: the state of the run on this host. `update_state` changes its fields. After any other
    change of `state`, `mark_unsaved` must be called.
    `known`: the state that all hosts share. Only `replace_shared_state` changes it, and only by
    adding facts.
    `save` writes `state` and `known` to disk.
    """

    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self.paths, self.part = paths, part
        self.state = paths.state()
        self.known = KnownRunState()
        self.saved = True  # whether the files on disk contain the current state

    def load(self) -> None:
        """Load the state that an earlier minder has left. An invalid file is ignored, and the
        journal gets a line about it."""
        remove_partial_files(self.paths)
        mismatch = check_files.find_invalid_field(wire.HostRunState, wire.to_wire(self.state))
        if mismatch is not None:
            # The file is invalid, so the following fields are reset. The other hosts will send the
            # facts that they share. The counts of restarts begin again at zero.
            self.state.health, self.state.restarts, self.state.ended_tasks = {}, {}, {}
            self.state.learned, self.state.admitted, self.state.not_admitted = [], {}, {}
            self.state.round = self.state.first_death = None
            self.journal("forgot", why="%s: %s" % (layout.STATE, mismatch))
        stored = self.paths.stored_shared_state()
        if stored is None:
            return
        try:
            self.known = shared_state.from_json(stored, self.part)
        except ValueError as error:  # the other hosts will send what they know of the shared state
            self.journal("forgot", why=str(error))

    def replace_shared_state(self, known: KnownRunState) -> None:
        """Replace the shared state by `known`, which must contain everything that the current
        shared state contains."""
        if known == self.known:
            return
        if known.round_number != self.known.round_number and known.round is not None:
            name = "round %d" % known.round_number
            self.state.marks[name] = time.monotonic() + min(
                float(known.round["delay_s"]), self.part.restart_backoff_s[1]
            )
            self.journal(name, reason=known.round.get("reason"))
        self._record_unminded_changes(known)
        self.known = known
        self.mark_unsaved()

    def _record_unminded_changes(self, known: KnownRunState) -> None:
        before, now = unminded.unminded_hosts(self.known), unminded.unminded_hosts(known)
        for host in now.keys() - before.keys():
            self.state.marks[unminded.unminded_mark(host)] = time.monotonic()
            self.journal("unminded", host=host)
        for host in before.keys() - now.keys():
            self.state.marks.pop(unminded.unminded_mark(host), None)
            self.journal("minded again", host=host)

    def record_death(self, peer: wire.Peer, status: wire.TaskStatus) -> None:
        """Count the death of an attempt, and set the time before which the task must not restart. A
        second call for the same attempt changes nothing."""
        before = self.state.restarts.get(peer.task)
        following = restart.decide_restart(self.part, peer, self.known, status)
        count = restart.count_death(self.part, peer, self.known, before, status, random.random())
        of_an_old_round = following.round == self.known.round_number
        if count is before or of_an_old_round or following.is_final:
            return
        self.state.restarts[peer.task] = count
        self.state.marks["again " + peer.task] = time.monotonic() + count["delay_s"]
        self.journal("died", task=peer.task, **count)
        self.mark_unsaved()

    def record_open_ports(self, open_ports: Dict[str, str]) -> None:
        """Record which task ports are open to everybody, although the run protects its ports.
        `open_ports`: task -> why its port is open."""
        for task in sorted(open_ports.keys() - self.state.open_ports.keys()):
            self.journal("open", task=task, why=open_ports[task])
        self.update_state(open_ports=open_ports)

    def record_addresses_outside_plan(
        self, host_by_ip: Mapping[str, str], refused_ip_by_host: Mapping[str, str]
    ) -> None:
        """Record from which addresses outside the plan other hosts have connected.

        `host_by_ip`: address -> the host that has stated this address as its own.
        `refused_ip_by_host`: host -> an address from which it has connected, but which it has not
        stated as its own.
        """
        state = self.state
        for address, host in host_by_ip.items():
            if address not in state.admitted:
                self.journal("admitted", address=address, host=host)
        for host, address in refused_ip_by_host.items():
            if state.not_admitted.get(host) != address:
                self.journal("not admitted", address=address, host=host)
        self.update_state(admitted=dict(host_by_ip), not_admitted=dict(refused_ip_by_host))

    def record_stalled_tasks(self, health_by_task: Dict[str, Health]) -> None:
        """Record which tasks are stalled, and why."""
        for task in sorted({*health_by_task, *self.state.health}):
            if task not in health_by_task:
                self.journal("goes on", task=task)
            elif health_by_task[task] != self.state.health.get(task):
                self.journal("stalled", task=task, **health_by_task[task])
        self.update_state(health=health_by_task)

    def update_state(self, **fields: Any) -> None:
        """Set the given fields of `state`. If one of the values is new, the state is marked as
        unsaved."""
        if any(value != getattr(self.state, name) for name, value in fields.items()):
            vars(self.state).update(fields)
            self.mark_unsaved()

    def mark_unsaved(self) -> None:
        """Remember that the files on disk are older than the current state."""
        self.saved = False

    def save(self) -> None:
        """Write the state to disk if it has changed. If the disk is full, a later call tries
        again."""
        if self.saved:
            return
        try:
            self._write()
            self.saved = True
        except OSError:
            # If the disk is full, a later call tries again. If the run's folder was removed, there
            # is nothing to save any more.
            self.saved = not os.path.isdir(self.paths.host_dir)

    def journal(self, event: str, **fields: object) -> None:
        try:
            self.paths.journal("", event, fields)
        except OSError:
            pass

    def _write(self) -> None:
        """Write the state to disk. The fields that say how the run ends are first computed from
        `known`, which all hosts share, and from nothing else. So all hosts report the same end.
        Raises OSError."""
        state, known = self.state, self.known
        abort, death = known.abort, shared_state.first_fatal_death(self.part.peers, known)
        state.first_death, state.ended_tasks, state.round = death, known.ended, known.round
        state.unminded = unminded.unminded_hosts(known)
        if abort is not None:
            state.stop_requested = state.stop_requested or abort["kind"] == "stop"
            if abort["kind"] == "failed":
                state.abort_reason = shared_state.describe_death(death) if death else None
            elif abort["kind"] == "abort":
                state.abort_reason = abort["reason"]
        self.paths.write_shared_state(known.as_json())
        self.paths.write_state(state, durable=True)
