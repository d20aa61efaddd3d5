"""Answers run.watch and logs: sends the whole state of a run and its tasks on this host, and then
each change; sends the logs of several tasks in turn, in pieces. Writes nothing.

A call of logs says where each log begins: at an offset, at a time, or at the first of its last
lines. Bytes are sent unchanged; the control machine splits them into lines and searches them. All
times are times of the run's clock (run/clock.py). Other processes replace the files that are
followed. Their changes are detected by a check that is cheap enough to run ten times a second
beside a training.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional, Sequence, Set, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import inotify
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.log.reader import PIECE_BYTES, LogReader, Piece
from tfdeploy.agent.log.seek import first_offset_since, last_lines_offset
from tfdeploy.agent.run import attempts
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.liveness import is_committed_without_live_process, is_live
from tfdeploy.agent.serve.run.status import has_ended_for_good, named_run_paths, task_status

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# Readers check the files again after this time even if no file has changed, because a supervisor
# that was killed leaves its files unchanged.
RECHECK_S = 2.0


def watch_run(call: Call) -> Answer:
    """Send the whole state of the run on this host at once, then each change within 0.2 s, until
    the run has ended here, or has neither minder nor supervisor.

    Args: run, job.

    Raises VerbError unknown_run.
    """
    paths = named_run_paths(call)
    tasks = paths.tasks()
    watcher = inotify.Watcher([paths.host_dir, *map(paths.task_dir, tasks)], inotify.PLACED)
    run_files = watch_run_files(paths, tasks)
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
    call: Call, paths: RunPaths, tasks: List[str], last_sent: Dict[str, Answer], ends: EndedAttempts
) -> bool:
    """Send an item for each change. `last_sent`: the last item that was sent for each task, for the
    samples and for the host's state. Return True if no further changes will come."""
    # First check whether the run is over, then read the states. So if the run is over, the states
    # are the final ones.
    over = paths.state().phase == "ended" or not is_live(paths)
    for task in tasks:
        status = task_status(paths, task)
        fields = wire.to_wire(status)
        if last_sent.get(task) != fields:
            last_sent[task] = fields
            call.item({"task": fields, "attempts": ends.take_unreported(status)}, b"")
    newest_samples = read_json(paths.file(layout.NEWEST_SAMPLES))
    for kind, value in (("samples", newest_samples), ("host_state", wire.to_wire(paths.state()))):
        if value is not None and last_sent.get(kind) != value:
            last_sent[kind] = value
            call.item({kind: value}, b"")
    return over


# --- logs


def send_logs(call: Call) -> Answer:
    """Send the logs of tasks in pieces of up to 256 KiB, each as the blob of an item. With
    `follow`, new output is sent until the tasks have ended.

    Args: run, job, tasks? [..], cursors {task: offset}? (begin there), last? (begin with the last n
    lines; only about the last 8 MiB + n * 4 KiB of the log are searched for them), since? (begin at
    this time, in UTC seconds by the run's clock), follow, limit_bytes? (end once that many bytes
    are sent).

    Raises VerbError unknown_run, bad_argument.
    """
    paths = named_run_paths(call)
    part = paths.part()
    tasks, clock_ahead_s = [spec.task for spec in part.tasks], part.ahead_s
    if call.args.get("tasks") is not None:
        tasks = [task for task in tasks if task in call.rows("tasks")]
    readers = {
        task: LogReader(paths.task_dir(task), _start_offset(call, paths, task, clock_ahead_s))
        for task in tasks
    }
    ends = {} if call.flag("follow") else {task: reader.end() for task, reader in readers.items()}
    watcher = inotify.Watcher(
        [paths.host_dir, *map(paths.task_dir, tasks)], inotify.WRITTEN | inotify.PLACED
    )
    try:
        ended = _send_logs(call, paths, readers, watcher, clock_ahead_s)
        return {
            "ended": ended,
            "left": ended and is_committed_without_live_process(paths),
            "cursors": {task: reader.offset for task, reader in readers.items()},
            "ends": ends,
        }
    finally:
        watcher.close()
        for reader in readers.values():
            reader.close()


def _start_offset(call: Call, paths: RunPaths, task: str, clock_ahead_s: float) -> int:
    cursor = call.table("cursors").get(task)
    if cursor is not None:
        if not isinstance(cursor, int) or cursor < 0:
            raise VerbError("bad_argument", "%r is not an offset in the log of %s" % (cursor, task))
        return cursor
    folder, start = paths.task_dir(task), 0
    since = call.number("since")
    if call.args.get("last") is not None:
        start = last_lines_offset(folder, call.integer("last"))
    if since is not None:
        start = max(start, first_offset_since(folder, since + clock_ahead_s))
    return start


def _send_logs(
    call: Call,
    paths: RunPaths,
    reader_by_task: Dict[str, LogReader],
    watcher: inotify.Watcher,
    clock_ahead_s: float,
) -> bool:
    follow, limit = call.flag("follow"), call.number("limit_bytes")
    open_tasks = list(reader_by_task)
    run_files = watch_run_files(paths, open_tasks)
    finished: List[str] = []
    sent = 0
    while not call.cancelled.is_set():
        if run_files.has_changed():
            # The ends of tasks are checked before the logs are read, so that everything that a
            # finished task wrote is read.
            finished = _tasks_without_more_output(paths, open_tasks)
        read_bytes = 0
        for task in list(open_tasks):
            piece = reader_by_task[task].read(PIECE_BYTES)
            if piece is not None:
                _send_piece(call, task, piece, clock_ahead_s)
                read_bytes += len(piece.blob)
            elif task in finished:
                open_tasks.remove(task)
        sent += read_bytes
        if not open_tasks:
            return True
        if (limit is not None and sent >= limit) or (not follow and not read_bytes):
            return False
        if not read_bytes:
            watcher.wait(call.cancelled)
    return False


def _send_piece(call: Call, task: str, piece: Piece, clock_ahead_s: float) -> None:
    if clock_ahead_s:
        for record in piece.records:
            record[1] = max(0.0, record[1] - clock_ahead_s)
    header: Answer = {"task": task, "offset": piece.offset, "records": piece.records}
    if piece.gone:
        header["gone"] = piece.gone
    call.item(header, piece.blob)


def _tasks_without_more_output(paths: RunPaths, tasks: List[str]) -> List[str]:
    """Return the tasks that will write no more output."""
    finished = [task for task in tasks if has_ended_for_good(paths, task)]
    return finished if len(finished) == len(tasks) or is_live(paths) else tasks


# --- changes of files


class FileChanges:
    """The last known state of some files. `has_changed` compares it with the present state."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stamps: Optional[List[Optional[Tuple[int, int]]]] = None
        self._reported_at = 0.0

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last call. Also return True at the first
        call, and once RECHECK_S have passed since the last True."""
        stamps, now = [_file_stamp(file) for file in self._files], time.monotonic()
        if stamps == self._stamps and now - self._reported_at < RECHECK_S:
            return False
        self._stamps, self._reported_at = stamps, now
        return True


def watch_run_files(paths: RunPaths, tasks: Sequence[str]) -> FileChanges:
    """Return a FileChanges object for three kinds of files on this host: the state of the run, the
    statuses of these tasks, and the newest samples."""
    return FileChanges(
        [paths.state_file, paths.file(layout.NEWEST_SAMPLES)]
        + [paths.status_file(task) for task in tasks]
    )


def _file_stamp(file: str) -> Optional[Tuple[int, int]]:
    """Return the inode and the time of a file, or None if it is missing. Writers replace the file
    by a rename, so each write changes the inode or the time."""
    try:
        file_stat = os.stat(file)
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_mtime_ns


VERBS = {"run.watch": watch_run, "logs": send_logs}
