"""While this host prepares a run, checks whether that run is still wanted."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from tfdeploy.agent.annotations import Callable, Iterator
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.run import in_doubt
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call

# How long the end of a session waits until the preparation of a run has been undone. That may take
# some time, because the copy of a large release may have to be removed.
CLEANUP_WAIT_S = 60.0


@contextmanager
def abortable_prepare(
    call: Call, paths: RunPaths, plan_digest: str
) -> Iterator[Callable[[], None]]:
    """Guard the preparation of a run, which happens in the `with` block. Yield a function that
    raises VerbError if the run is no longer wanted: `cancelled` if the session has ended, `ended`
    if the run was rolled back. The end of the session waits until the `with` block is left."""
    name = "prepare %s %s" % (paths.job, paths.run)
    session_ended, done = threading.Event(), threading.Event()

    def raise_if_unwanted() -> None:
        if session_ended.is_set() or call.cancelled.is_set():
            what = "the session ended while run %s was prepared" % paths.run
            raise VerbError("cancelled", what)
        if in_doubt.is_abort_requested(paths, plan_digest):
            raise VerbError("ended", "run %s was rolled back while it was prepared" % paths.run)

    def end_session() -> None:
        session_ended.set()
        done.wait(CLEANUP_WAIT_S)

    call.context.closing_functions[name] = end_session
    try:
        yield raise_if_unwanted
    finally:
        done.set()
        call.context.closing_functions.pop(name, None)
