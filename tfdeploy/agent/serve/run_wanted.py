"""Whether a prepare that goes on is still wanted: its session lives, and no abort has come."""

from __future__ import annotations

import threading

from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.run import in_doubt
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import Call

SWEPT_WITHIN_S = 60.0  # by a prepare whose session ends: it may have copied a large release


class Wanted:
    """Whether a prepare is still wanted: its session lives, and no abort has come. Use as a context manager; when it is left,
    the prepare has done all that it does. The session's end waits for that."""

    def __init__(self, call: Call, paths: RunPaths, plan_digest: str) -> None:
        self._call, self._paths, self._digest = call, paths, plan_digest
        self._name = "prepare %s %s" % (paths.job, paths.run)
        self._gone, self._done = threading.Event(), threading.Event()

    def check(self) -> None:
        """Raises VerbError where it is not."""
        if self._gone.is_set() or self._call.cancelled.is_set():
            raise VerbError("cancelled", "the session ended while run %s was prepared" % self._paths.run)
        if in_doubt.is_aborted(self._paths, self._digest):
            raise VerbError("ended", "run %s was rolled back while it was prepared" % self._paths.run)

    def __enter__(self) -> "Wanted":
        self._call.context.closing[self._name] = self._end
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._call.context.closing.pop(self._name, None)

    def _end(self) -> None:
        self._gone.set()
        self._done.wait(SWEPT_WITHIN_S)
