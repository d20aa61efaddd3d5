"""Answers run.watch: sends the whole state of a run and its tasks on this host, and then each
change. Writes nothing."""

from __future__ import annotations

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Set, Tuple
from tfdeploy.agent.host import inotify
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.run import attempts, liveness
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import changes
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.run import status as run_status

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


def watch_run(call: Call) -> Answer:
    """Send the whole state of the run on this host at once, then each change within 0.2 s, until
    the run has ended here, or has neither minder nor supervisor.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = run_status.named_run_paths(call)
    tasks = paths.tasks()
    watcher = inotify.Watcher([paths.host_dir, *map(paths.task_dir, tasks)], inotify.PLACED)
    run_files = changes.watch_run_files(paths, tasks)
    sent: Dict[str, Answer] = {}
    ends = EndedAttempts(paths)
    try:
        while not (run_files.has_changed() and _send_changes(call, paths, tasks, sent, ends)):
            if call.cancelled.is_set():
                break
            watcher.wait(call.cancelled)
    finally:
        watcher.close()
    return {}


class EndedAttempts:
    """Finds ended attempts that no status has shown, because a task may die and start again between
    two reads of its status."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._last: Dict[str, Tuple[int, str]] = {}  # task -> attempt and state of its last status
        self._sent: Set[Tuple[str, int]] = set()  # (task, attempt) of the attempts already returned

    def take_unreported(self, status: wire.TaskStatus) -> List[Answer]:
        """Return the ended attempts of this task that no earlier call has returned."""
        current = (status.attempt, status.state)
        has_ended_before = status.attempt > 1 or current == (1, "pending")
        if not has_ended_before or self._last.get(status.task) == current:
            return []
        self._last[status.task] = current
        rows = [
            row
            for row in attempts.list_attempts(self._paths, status.task)
            if row["ended"] is not None and (status.task, row["number"]) not in self._sent
        ]
        self._sent.update((status.task, row["number"]) for row in rows)
        return rows


def _send_changes(
    call: Call, paths: RunPaths, tasks: List[str], sent: Dict[str, Answer], ends: EndedAttempts
) -> bool:
    """Send an item for each change. `sent`: the last item that was sent for each task, for the
    samples and for the host's state. Return True if no further changes will come."""
    # First check whether the run is over, then read the states. So if the run is over, the states
    # are the final ones.
    over = paths.state().phase == "ended" or not liveness.is_live(paths)
    for task in tasks:
        status = run_status.task_status(paths, task)
        fields = wire.to_wire(status)
        if sent.get(task) != fields:
            sent[task] = fields
            call.item({"task": fields, "attempts": ends.take_unreported(status)}, b"")
    newest_samples = read_json(paths.file(layout.NEWEST_SAMPLES))
    for kind, value in (("samples", newest_samples), ("host_state", wire.to_wire(paths.state()))):
        if value is not None and sent.get(kind) != value:
            sent[kind] = value
            call.item({kind: value}, b"")
    return over
