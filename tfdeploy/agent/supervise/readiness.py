"""Decide when a task is up. A task is up once one of its processes listens on the task's port. A
task that has no port, or that does not use TensorFlow, is also up once it has lived for the time
`ready.after`."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Iterable, Optional
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.network import listening


class Readiness:
    """Decides whether one attempt is up. `guard`: the inode of the agent's socket on the task's
    port, which the task's processes inherit. This socket does not count as one on which the task
    itself listens."""

    def __init__(self, spec: wire.TaskSpec, guard: Optional[int] = None) -> None:
        self._spec = spec
        self._guard = guard
        self.tensorflow = False  # True once a process of the task has loaded TensorFlow

    def is_up(self, pids: Iterable[int], age_s: float) -> bool:
        """Return True if the task is up. `pids`: the pids of the task's living processes. `age_s`:
        seconds since the start of the attempt."""
        pids = list(pids)
        port = self._spec.port
        if port is not None and listening.has_listener(pids, port, self._guard):
            return True
        self.tensorflow = self.tensorflow or any(
            b"tensorflow" in processes.read_file(pid, "maps") for pid in pids
        )
        return age_s >= self._spec.ready_after_s and not self.awaits_port

    @property
    def awaits_port(self) -> bool:
        """Return whether the task must listen on its port to count as up. If not, the task also
        counts as up once it has lived long enough or has exited with code 0."""
        return self._spec.port is not None and self.tensorflow

    def explain_timeout(self, age_s: float) -> Optional[str]:
        """Return why a task that is not up has failed. Return None if it may still come up."""
        if age_s < self._spec.ready_timeout_s:
            return None
        if not self.awaits_port:
            return (
                "not up within %g s (ready.timeout); without a port that listens, the task counts "
                "as up only after %g s (ready.after)"
                % (self._spec.ready_timeout_s, self._spec.ready_after_s)
            )
        return "not listening on port %s after %g s (ready.timeout)" % (
            self._spec.port,
            self._spec.ready_timeout_s,
        )
