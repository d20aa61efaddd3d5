"""run.watch: the state of a run on this host and of its tasks, all at once first, then each change. Writes nothing."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from tfdeploy.agent import runs, wire
from tfdeploy.agent.call import Call
from tfdeploy.agent.paths import RunPaths

LOOK_S = 0.1
ANYWAY_S = 2.0  # a death that nobody could write down changes no file


def watch(call: Call) -> Dict[str, Any]:
    """Ends when the run has ended on this host, or when nobody of it is left to say so."""
    paths = runs.paths_of(call)
    tasks = [spec.task for spec in paths.part().tasks]
    files = [paths.file("state.json")] + [os.path.join(paths.task_dir(task), "status.json") for task in tasks]
    seen: Dict[str, Dict[str, Any]] = {}
    stamps: Optional[List[Optional[Tuple[int, int]]]] = None
    since_s = ANYWAY_S
    while True:
        now = [_stamp(file) for file in files]
        if now != stamps or since_s >= ANYWAY_S:
            stamps, since_s = now, 0.0
            if _send_news(call, paths, tasks, seen):
                return {}
        if call.cancelled.wait(LOOK_S):
            return {}
        since_s += LOOK_S


def _stamp(file: str) -> Optional[Tuple[int, int]]:
    """Every write is a rename: another inode, or at least another time."""
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def _send_news(call: Call, paths: RunPaths, tasks: List[str], seen: Dict[str, Dict[str, Any]]) -> bool:
    """Items for all that changed. True: that was the last of it."""
    # Whether it is over is asked first: what is then read is the end.
    over = paths.state().phase == "ended" or not runs.is_live(paths)
    for task in tasks:
        status = wire.to_wire(runs.task_status(paths, task))
        if seen.get(task) != status:
            seen[task] = status
            call.item({"task": status}, b"")
    state = wire.to_wire(paths.state())
    if seen.get("") != state:
        seen[""] = state
        call.item({"host_state": state}, b"")
    return over
