"""Decide when a task is up: one of its processes listens on its port, or it uses no TensorFlow and
has lived for `ready.after`."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Iterable, Optional
from tfdeploy.agent.host.network import listening


class Readiness:
    """The readiness of one attempt. `pids`: the task's living processes. `age_s`: seconds since its
    start. `guard`: the inode of a socket that they have and that is no server's."""

    def __init__(self, spec: wire.TaskSpec, guard: Optional[int] = None) -> None:
        self._spec = spec
        self._guard = guard
        self.tensorflow = False  # seen mapped by one of its processes, at any time

    def is_up(self, pids: Iterable[int], age_s: float) -> bool:
        pids = list(pids)
        port = self._spec.port
        if port is not None and listening.listens(pids, port, self._guard):
            return True
        self.tensorflow = self.tensorflow or any(_maps_tensorflow(pid) for pid in pids)
        return age_s >= self._spec.ready_after_s and not self.awaits_port

    @property
    def awaits_port(self) -> bool:
        """True if only its port shows that it is up; otherwise its age or a good end does."""
        return self._spec.port is not None and self.tensorflow

    def too_late(self, age_s: float) -> Optional[str]:
        """Return why a task that is not up by now has failed; None: it still has time."""
        if age_s < self._spec.ready_timeout_s:
            return None
        if not self.awaits_port:
            return "not up within %g s (ready.timeout): ready.after is %g s" % (
                self._spec.ready_timeout_s,
                self._spec.ready_after_s,
            )
        return "not listening on port %s after %g s (ready.timeout)" % (
            self._spec.port,
            self._spec.ready_timeout_s,
        )


def _maps_tensorflow(pid: int) -> bool:
    try:
        with open("/proc/%d/maps" % pid, "rb") as file:
            return b"tensorflow" in file.read()
    except OSError:
        return False
