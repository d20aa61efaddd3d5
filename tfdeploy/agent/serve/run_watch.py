"""run.watch: the state of a run on this host and of its tasks: all of it first, then each change. Writes nothing."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List
from tfdeploy.agent.host import inotify
from tfdeploy.agent.run import liveness
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import changes, run_status, samples
from tfdeploy.agent.serve.call import Call

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Fields, Nothing


def watch(call: Call) -> Nothing:
    """Returns when the run has ended on this host, or has neither minder nor supervisor here. Raises VerbError unknown_run."""
    paths = run_status.paths_of(call)
    tasks = [spec.task for spec in paths.part().tasks]
    watcher = inotify.Watcher([paths.host_dir, *map(paths.task_dir, tasks)], inotify.PLACED)
    changed = changes.of_run(paths, tasks)
    seen: Dict[str, Fields] = {}
    try:
        while not (changed.any() and _send_changes(call, paths, tasks, seen)) and not call.cancelled.is_set():
            watcher.wait(call.cancelled)
    finally:
        watcher.close()
    return {}


def _send_changes(call: Call, paths: RunPaths, tasks: List[str], seen: Dict[str, Fields]) -> bool:
    """Sends an item for each change. True: those were the last."""
    # Read before the states, so that what is read after it includes the end.
    over = paths.state().phase == "ended" or not liveness.is_live(paths)
    for task in tasks:
        status = wire.to_wire(run_status.task_status(paths, task))
        if seen.get(task) != status:
            seen[task] = status
            call.item({"task": status}, b"")
    sampled = samples.newest(paths)
    if sampled is not None and seen.get("samples") != sampled:
        seen["samples"] = sampled
        call.item({"samples": sampled}, b"")
    state = wire.to_wire(paths.state())
    if seen.get("") != state:
        seen[""] = state
        call.item({"host_state": state}, b"")
    return over
