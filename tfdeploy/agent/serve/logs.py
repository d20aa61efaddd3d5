"""Answers `logs`: sends the logs of several tasks in turn, in pieces. The call says where each log
begins: at an offset, at a time, or at the first of its last lines.

Bytes are sent unchanged; the control machine splits them into lines and searches them. Times are
times of the run's clock.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import inotify
from tfdeploy.agent.log.reader import PIECE_BYTES, LogReader, Piece
from tfdeploy.agent.log.seek import first_offset_since, last_lines_offset
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.liveness import is_abandoned, is_live
from tfdeploy.agent.serve import changes
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.run.status import has_ended_for_good, named_run_paths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer


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
            "left": ended and is_abandoned(paths),
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
    readers: Dict[str, LogReader],
    watcher: inotify.Watcher,
    clock_ahead_s: float,
) -> bool:
    follow, limit = call.flag("follow"), call.number("limit_bytes")
    open_tasks = list(readers)
    run_files = changes.watch_run_files(paths, open_tasks)
    finished: List[str] = []
    sent = 0
    while not call.cancelled.is_set():
        if run_files.has_changed():
            # The ends of tasks are checked before the logs are read, so that everything that a
            # finished task wrote is read.
            finished = _finished_tasks(paths, open_tasks)
        read_bytes = 0
        for task in list(open_tasks):
            piece = readers[task].read(PIECE_BYTES)
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


def _finished_tasks(paths: RunPaths, tasks: List[str]) -> List[str]:
    """Return the tasks that will write no more output."""
    finished = [task for task in tasks if has_ended_for_good(paths, task)]
    return finished if len(finished) == len(tasks) or is_live(paths) else tasks


VERBS = {"logs": send_logs}
