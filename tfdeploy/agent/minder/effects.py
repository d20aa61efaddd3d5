"""Carry out the actions that decide.py returns. There is one method for each kind of action.
Nothing is decided here."""

from __future__ import annotations

import socket
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union
from tfdeploy.agent.host.atomic import write_bytes
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder import actions, held_ports, restart, unminded
from tfdeploy.agent.minder.store import StateStore
from tfdeploy.agent.minder.supervisors import Supervisors, tell_supervisor_to_stop
from tfdeploy.agent.run import clock, leftovers, reap

if TYPE_CHECKING:
    from tfdeploy.agent.broadcast.keep_transfer import KeepFetch
    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts
    from tfdeploy.agent.shapes import Abort


class ActionExecutor:
    def __init__(
        self,
        store: StateStore,
        supervisors: Supervisors,
        mesh: Optional[Mesh],
        holders: List[socket.socket],
        own_ports: held_ports.ExclusivePorts,
        guarded: Optional[GuardedPorts],
    ) -> None:
        self._paths, self._part, self._store, self._supervisors = (
            store.paths,
            store.part,
            store,
            supervisors,
        )
        self._mesh, self._holders, self._own_ports = mesh, holders, own_ports
        self._guarded = guarded
        # Fetches `keep` folders for a restart of the gang. None until such a restart first needs
        # them.
        self._keep: Optional[KeepFetch] = None
        self._programs_told = False
        self._methods: Dict[type, Callable[[Any], bool]] = {
            actions.StartTask: self._start_task,
            actions.EndTask: self._end_task,
            actions.ReapTask: self._reap_task,
            actions.GiveUpTask: self._record_gave_up,
            actions.FetchKeepFolders: self._fetch_keep_folders,
            actions.ReportStage: self._report_stage,
            actions.AnnounceRound: self._announce_round,
            actions.ReportMinderChange: self._share_host_report,
            actions.ReportTasksLost: self._share_host_report,
            actions.EnterPhase: self._enter_phase,
            actions.AnnounceCommit: self._commit,
            actions.AbortRun: self._abort,
        }

    def carry_out(self, action: actions.Action) -> bool:
        """Carry out an action. Return True if the action has changed something, so that the minder
        must take its next step without a pause. Raises OSError if the system refuses the action."""
        return self._methods[type(action)](action)

    def replace_and_share_state(self, known: KnownRunState) -> None:
        """Replace the shared state by `known`, write it to disk, and then send it to the other
        hosts. `known` must contain everything that the current shared state contains."""
        self._store.replace_shared_state(known)
        self._store.save()
        self.send_state_and_tell_success()

    def send_state_and_tell_success(self) -> None:
        """Send the shared state to the other minders. If the run has succeeded, also notify the
        programs of the tasks on this host."""
        if self._mesh is not None:
            self._mesh.join_and_send(self._store.known)
        if "decided" not in self._store.state.marks:
            return
        if self._mesh is not None:
            self._mesh.set_connect_interval(
                (self._part.finish_grace_s + self._part.stop_grace_s) / 4
            )
        if not self._programs_told:
            self._programs_told = True
            self._tell_programs_of_success()

    def _tell_programs_of_success(self) -> None:
        """Tell the workers of synchronous training that the chief has finished, so that they no
        longer wait for the chief (see runtime/no_more_tokens.py)."""
        try:
            write_bytes(self._paths.file(layout.DECIDED), b"")
        except OSError:
            pass  # The disk is full. The programs wait for the chief until they are ended.

    def keep_fetch_error(self) -> str:
        """Return why the last try to fetch the chief's `keep` folders failed, or "" if no try has
        failed."""
        return "" if self._keep is None else self._keep.error

    def end_stalled_attempt(self, task: str, attempt: int, reason: str) -> None:
        """End the attempt, which has stalled, if it still runs. Its outcome is then "failed"."""
        status = self._paths.status(task)
        if status.state == "running" and status.attempt == attempt:
            reason = "stalled: %s (stall.after is %g s)" % (reason, self._part.stall_after_s)
            tell_supervisor_to_stop(self._paths, task, reason, self._part.stop_grace_s, "failed")

    # --- one method for each kind of action

    def _start_task(self, action: actions.StartTask) -> bool:
        self._own_ports.release(action.task)
        return self._supervisors.start(action.task, action.attempt, action.round)

    def _end_task(self, action: actions.EndTask) -> bool:
        tell_supervisor_to_stop(self._paths, action.task, action.reason, action.grace_s)
        return False

    def _reap_task(self, action: actions.ReapTask) -> bool:
        return reap.reap_task(self._paths, *action)

    def _record_gave_up(self, action: actions.GiveUpTask) -> bool:
        return reap.record_gave_up(self._paths, action.task, action.reason)

    def _fetch_keep_folders(self, action: actions.FetchKeepFolders) -> bool:
        if self._mesh is None:
            return False
        if self._keep is None:
            from tfdeploy.agent.broadcast.keep_transfer import KeepFetch

            self._keep = KeepFetch(self._paths, self._part, self._mesh)
        if not self._keep.has_arrived_else_fetch(action.round_number):
            return False
        self._store.update_state(supplied=action.round_number)
        self._store.journal("supplied", round=action.round_number)
        return True

    def _report_stage(self, action: actions.ReportStage) -> bool:
        self.replace_and_share_state(
            self._store.known.join(
                KnownRunState(stands={self._part.host: (action.round_number, action.stage)})
            )
        )
        self._store.journal("gang", round=action.round_number, stage=action.stage)
        return True

    def _announce_round(self, action: actions.AnnounceRound) -> bool:
        status, count = self._paths.status(action.task), self._store.state.restarts[action.task]
        self.replace_and_share_state(
            self._store.known.join(
                KnownRunState(round=restart.make_gang_round(action, status, count))
            )
        )
        return True

    def _share_host_report(
        self, action: Union[actions.ReportMinderChange, actions.ReportTasksLost]
    ) -> bool:
        self.replace_and_share_state(
            unminded.join_reported_facts(
                self._part, self._store.known, action, clock.now(self._part)
            )
        )
        return True

    def _commit(self, action: actions.AnnounceCommit) -> bool:
        self.replace_and_share_state(self._store.known._replace(committed=True))
        return True

    def _abort(self, action: actions.AbortRun) -> bool:
        abort: Abort = {
            "host": self._part.host,
            "time": clock.now(self._part),
            "kind": action.kind,
            "reason": action.reason[: shared_state.MAX_TEXT],
        }
        if action.grace_s is not None:
            abort["grace_s"] = action.grace_s
        self.replace_and_share_state(self._store.known.join(KnownRunState(abort=abort)))
        self._store.journal("abort", kind=action.kind, reason=action.reason)
        return True

    def _enter_phase(self, action: actions.EnterPhase) -> bool:
        state = self._store.state
        if action.phase == "started":
            state.started = clock.now(self._part)
            state.marks["started"] = time.monotonic()
        if action.phase == "committed":
            leftovers.remove_uncommitted_marks(self._paths)
        if action.phase == "ended":
            self._release_ports_and_secrets()
            leftovers.restore_keep_links(self._paths)
            state.left_files = leftovers.list_new_files(self._paths, self._part)
            state.ended = clock.now(self._part)
        self._store.update_state(phase=action.phase)
        self._store.save()
        self._store.journal(action.phase)
        if action.phase == "ended":
            # If `launch --fresh` was rolled back, the keep folders that it renamed get their old
            # names back. The last of the hosts that share the workdir does this. It recognises by
            # the saved phases of the others that it is the last, so this step comes after the phase
            # is saved.
            leftovers.restore_keep_if_aborted(self._paths)
        return True

    def _release_ports_and_secrets(self) -> None:
        for holder in self._holders:
            holder.close()
        if self._guarded is not None:
            self._guarded.close()
        self._own_ports.close()
        if self._keep is not None:
            self._keep.give_up()
        leftovers.remove_secret_files(self._paths)
