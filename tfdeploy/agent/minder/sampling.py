"""Start and end the sampler, which is the process that records the resource use of this host and
its tasks. It starts when the run is committed, is started again if it dies, and ends with the run.
The run does not depend on the sampler."""

from __future__ import annotations

import os
import signal
import subprocess

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Mapping, Optional
from tfdeploy.agent.run.folder import RunPaths, start_agent

AGAIN_S = 60.0  # the shortest pause between two starts of the sampler, in seconds
END_S = 2.0  # how long the sampler may take for its last sample, in seconds


class SamplerProcess:
    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._paths, self._wanted = paths, part.sample_every_s > 0
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._next = 0.0  # the earliest time of the next start, in monotonic seconds
        self._reads = True

    def start_if_dead(self, now: float, wait_status_by_pid: Mapping[int, int]) -> None:
        """Start the sampler if it is not alive. `wait_status_by_pid`: {pid: wait status} of the
        children that the minder has just reaped, among which the sampler may be."""
        child = self._child
        if child is not None and child.pid in wait_status_by_pid:
            # The minder has already reaped this process, so Popen must not wait for it.
            child.returncode = wait_status_by_pid[child.pid]
            if (
                os.WIFSIGNALED(wait_status_by_pid[child.pid])
                and os.WTERMSIG(wait_status_by_pid[child.pid]) == signal.SIGPROF
            ):
                # SIGPROF ends a sampler that spends too long on a regular expression of the job.
                # The next sampler must not run the expression again, so it reads no task output.
                self._reads = False
            self._close_stdin()
        if self._wanted and self._child is None and now >= self._next:
            self._next = now + AGAIN_S
            self._start_sampler()

    def end(self) -> None:
        """End the sampler. It has END_S seconds to take its last sample, and is then killed."""
        child = self._child
        self._close_stdin()
        if child is None:
            return
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _start_sampler(self) -> None:
        arguments = [self._paths.host_dir, str(os.getpid()), *([] if self._reads else ["unread"])]
        options = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.DEVNULL,
            "start_new_session": False,
        }
        self._child = start_agent(self._paths.minder_log, "sample", *arguments, **options)

    def _close_stdin(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
        self._child = None
