"""Decide when a task is up: one of its processes listens on its port, or the task uses no
TensorFlow and has lived for `ready.after`."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Iterable, Optional
from tfdeploy.agent.host.network import listening


class Readiness:
    """The readiness of one attempt. `guard`: the inode of the agent's socket on the task's port,
    which the task's processes inherit; it does not count as listening."""

    def __init__(self, spec: wire.TaskSpec, guard: Optional[int] = None) -> None:
        self._spec = spec
        self._guard = guard
        self.tensorflow = False  # True once one of its processes has mapped TensorFlow

    def is_up(self, pids: Iterable[int], age_s: float) -> bool:
        """Return True if the task is up. `pids`: the task's living processes. `age_s`: seconds
        since its start."""
        pids = list(pids)
        port = self._spec.port
        if port is not None and listening.listens(pids, port, self._guard):
            return True
        self.tensorflow = self.tensorflow or any(_maps_tensorflow(pid) for pid in pids)
        return age_s >= self._spec.ready_after_s and not self.awaits_port

    @property
    def awaits_port(self) -> bool:
        """True if only listening on its port shows that the task is up. Otherwise its age, or exit
        code 0, shows it too."""
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
