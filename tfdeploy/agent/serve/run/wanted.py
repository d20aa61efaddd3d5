"""Checks whether a prepare that is in progress is still wanted."""

from __future__ import annotations

import threading

from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.run import in_doubt
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call

# How long to wait for the cleanup after a prepare, which may remove the copy of a large release.
CLEANUP_WAIT_S = 60.0


class PrepareGuard:
    """Checks whether a prepare is still wanted: its session lives and no abort has arrived. The
    prepare runs in a `with` block of this object, and the end of the session waits until that block
    is left."""

    def __init__(self, call: Call, paths: RunPaths, plan_digest: str) -> None:
        self._call, self._paths, self._digest = call, paths, plan_digest
        self._name = "prepare %s %s" % (paths.job, paths.run)
        self._gone, self._done = threading.Event(), threading.Event()

    def check(self) -> None:
        """Raise VerbError cancelled or ended if the prepare is no longer wanted."""
        if self._gone.is_set() or self._call.cancelled.is_set():
            raise VerbError(
                "cancelled", "the session ended while run %s was prepared" % self._paths.run
            )
        if in_doubt.is_aborted(self._paths, self._digest):
            raise VerbError(
                "ended", "run %s was rolled back while it was prepared" % self._paths.run
            )

    def __enter__(self) -> "PrepareGuard":
        self._call.context.closing[self._name] = self._end
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._call.context.closing.pop(self._name, None)

    def _end(self) -> None:
        self._gone.set()
        self._done.wait(CLEANUP_WAIT_S)
