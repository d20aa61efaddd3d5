"""Follow the lines of a run on all its hosts at once, across lost connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tfdeploy.errors import AgentError, BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import session_of
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.tasklogs.stored_lines import RotatedBytes, record_rotated_bytes
from tfdeploy.operations.tasklogs.task_log import LogQuery, TaskLog
from tfdeploy.operations.watch.resume import resume_or_end_with_retries
from tfdeploy.transport.protocols import Errors, Fleet

# Seconds to wait before a lost connection is made again. The wait is short, because an attempt to
# connect already takes 10 s if there is no answer.
RECONNECT_S = 0.5


class LogFollower:
    """Passes live lines of many tasks to `deliver`.

    Each list of lines belongs to one task, and its lines have the same time. The lines are not
    filtered: lines that the query excludes are passed too. Each task has one thread, which calls
    `deliver`. After a reconnect, the thread continues after the last byte that it has received.
    `begun_logs` contains the logs of which the caller has already read a part.
    """

    def __init__(
        self,
        fleet: Fleet,
        plan: Plan,
        query: LogQuery,
        deliver: Callable[[list[LogLine]], None],
        *,
        stop: threading.Event,
        begun_logs: Mapping[str, TaskLog] = MappingProxyType({}),
    ) -> None:
        self.fleet, self.plan, self.query = fleet, plan, query
        self.deliver, self.stop, self.begun_logs = deliver, stop, begun_logs
        self.host_errors: Errors = {}
        self.rotated_bytes: RotatedBytes = {}
        hosts = {host.name: host for host in hosts_of(plan)}
        self.threads = [
            threading.Thread(
                target=self._follow,
                args=(task.task, hosts[task.host]),
                daemon=True,
                name=f"log {task.task}",
            )
            for task in plan.tasks
            if task.task in query.tasks
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all threads have ended, `stop` is set, or `timeout_s` seconds have passed.

        Return whether all threads have ended. A thread ends when its task has ended and all lines
        are delivered, or when it gives up: after an error, or because the run was not resumed on a
        host that had lost its processes. If `timeout_s` is None, there is no time limit.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self.threads:
            while thread.is_alive() and not self.stop.is_set():
                remaining_s = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
                if remaining_s <= 0:
                    return False
                thread.join(remaining_s)
        return not any(thread.is_alive() for thread in self.threads)

    def _follow(self, task: str, host: Host) -> None:
        """Deliver the lines of one task until it has ended, across lost connections."""
        log = self.begun_logs.get(task) or TaskLog(self.plan, task, host.name, self.query)
        reached = False
        while not self.stop.is_set() and not log.ended:
            try:
                agent = session_of(self.fleet, host).agent()
                agent.shorten_timeouts()
                reached = True
                for batch in log.pull_next_piece(agent):
                    self.deliver(batch)
                self.host_errors.pop(host.name, None)
                if log.has_lost_processes and not resume_or_end_with_retries(
                    self.fleet, self.plan, host.name, lambda text: None, self.stop
                ):
                    for batch in log.splitter.take_unfinished_lines():
                        self.deliver(batch)
                    return
                if log.has_lost_processes:
                    self.stop.wait(RECONNECT_S)
                record_rotated_bytes(log, self.rotated_bytes)
            except TfdeployError as error:
                self.host_errors[host.name] = error
                # A host that is unreachable may only be busy or booting, so it is tried again.
                reached = reached or isinstance(error, HostUnreachable)
                if isinstance(error, (AgentError, BadAnswer)) or not reached or not host.address:
                    return
                self.stop.wait(RECONNECT_S)
