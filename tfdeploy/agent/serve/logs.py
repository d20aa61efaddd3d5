"""The `logs` verb: the bytes of several tasks, piece by piece, in turn, from cursors, last lines or a time on.

Bytes are passed on as they lie on disk; splitting and searching them is the control side's.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import inotify
from tfdeploy.agent.log.reader import PIECE_BYTES, LogReader, Piece
from tfdeploy.agent.log.seek import start_of_last, start_of_since
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.liveness import is_left, is_live
from tfdeploy.agent.serve import changes
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.run_status import paths_of, writes_no_more

if TYPE_CHECKING:
    from tfdeploy.agent.answers import LogEnd, LogPiece


def logs(call: Call) -> LogEnd:
    """Returns {"ended": every task asked for has ended here and all of it is sent, "left": ... only because nobody
    minds the run here any more (see run_resume.py), "cursors": {task: offset}, "ends": where each log ended when it was
    asked for, unless it is followed}.

    `limit_bytes`, where given, ends the stream early once that much is sent.
    """
    paths = paths_of(call)
    here = [spec.task for spec in paths.part().tasks]
    wanted = None if call.args.get("tasks") is None else call.rows("tasks")
    tasks = [task for task in here if wanted is None or task in wanted]
    readers = {task: LogReader(paths.task_dir(task), _start(call, paths, task)) for task in tasks}
    ends = {} if call.flag("follow") else {task: reader.end() for task, reader in readers.items()}
    watcher = inotify.Watcher([paths.host_dir, *map(paths.task_dir, tasks)], inotify.WRITTEN | inotify.PLACED)
    try:
        ended = _send(call, paths, readers, watcher)
        cursors = {task: reader.offset for task, reader in readers.items()}
        return {"ended": ended, "left": ended and is_left(paths), "cursors": cursors, "ends": ends}
    finally:
        watcher.close()
        for reader in readers.values():
            reader.close()


def _start(call: Call, paths: RunPaths, task: str) -> int:
    cursor = call.table("cursors").get(task)
    if cursor is not None:
        if not isinstance(cursor, int) or cursor < 0:
            raise VerbError("bad_argument", "%r is not an offset in the log of %s" % (cursor, task))
        return cursor
    folder, start = paths.task_dir(task), 0
    since = call.number("since")
    if call.args.get("last") is not None:
        start = start_of_last(folder, call.whole("last"))
    if since is not None:
        start = max(start, start_of_since(folder, since))
    return start


def _send(call: Call, paths: RunPaths, readers: Dict[str, LogReader], watcher: inotify.Watcher) -> bool:
    follow, limit = call.flag("follow"), call.number("limit_bytes")
    open_tasks = list(readers)
    news = changes.of_run(paths, open_tasks)
    over: List[str] = []
    sent = 0
    while not call.cancelled.is_set():
        if news.any():
            over = _over(paths, open_tasks)  # before reading: what they wrote until they ended is then read
        moved = 0
        for task in list(open_tasks):
            piece = readers[task].read(PIECE_BYTES)
            if piece is not None:
                _send_piece(call, task, piece)
                moved += len(piece.blob)
            elif task in over:
                open_tasks.remove(task)
        sent += moved
        if not open_tasks:
            return True
        if (limit is not None and sent >= limit) or (not follow and not moved):
            return False
        if not moved:
            watcher.wait(call.cancelled)
    return False


def _send_piece(call: Call, task: str, piece: Piece) -> None:
    header: LogPiece = {"task": task, "offset": piece.offset, "records": piece.records}
    if piece.gone:
        header["gone"] = piece.gone
    call.item(header, piece.blob)


def _over(paths: RunPaths, tasks: List[str]) -> List[str]:
    """Those that will write nothing more."""
    over = [task for task in tasks if writes_no_more(paths, task)]
    if len(over) < len(tasks) and not is_live(paths):
        return list(tasks)
    return over


VERBS = {"logs": logs}
