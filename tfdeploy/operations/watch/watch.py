"""Track the state of a run as its hosts report it, and emit an event for each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec

from tfdeploy.agent import wire
from tfdeploy.errors import BadAnswer, TfdeployError, has_code
from tfdeploy.model.answers.runs import RUN_STATUS, RunChange, RunOnHost
from tfdeploy.model.answers.samples import AttemptRow, NewestSamples, TaskSample
from tfdeploy.model.events import Emit, Event, Kind
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import RunView, run_view
from tfdeploy.model.status.task_status import make_attempt_end_event, make_attempt_from_row
from tfdeploy.operations.emit import emit_host_state, emit_warning
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.text.row_values import unread_metrics_text
from tfdeploy.transport.protocols import Errors, Fleet

# If one of these fields of a task's status changes, an event is emitted.
_SHOWN = attrgetter("state", "up", "outcome", "attempt", "pid", "reason", "health_reason")


class Watch:
    """Keeps the newest state that each host of a run has reported, and emits changes as events."""

    def __init__(
        self, fleet: Fleet, plan: Plan, emit: Emit, only_hosts: frozenset[str] | None = None
    ) -> None:
        """Watch all hosts of the run. With `only_hosts`, watch only these hosts."""
        self.fleet, self.plan, self.emit, self.only_hosts = fleet, plan, emit, only_hosts
        self.watched = tuple(n for n in plan.host_names if only_hosts is None or n in only_hosts)
        self.unwatched = frozenset(plan.host_names) - {*self.watched}
        self.states: dict[str, wire.HostRunState | None] = {}
        self.tasks: dict[str, wire.TaskStatus] = {}
        self.samples: dict[str, TaskSample] = {}  # the newest sample of each task
        # {task: metrics that its host has stopped reading, because their patterns are too slow}
        self.stopped: dict[str, list[str]] = {}
        self.errors: Errors = {}
        self.reached: set[str] = set()
        # Hosts on which no process of the run is alive although the run has not ended: see
        # watch/resume.py.
        self.processless_hosts: set[str] = set()
        self._settled: set[str] = set()
        # {(task, attempt)} of the attempts whose end was emitted.
        self._emitted_ends: set[tuple[str, int]] = set()
        self._state: str | None = None
        self._cause: str | None = None
        self._lock = threading.Lock()

    def poll_and_emit_run(self) -> RunView:
        """Ask all hosts once, and emit all changes."""
        view = self.poll()
        self.emit_run_if_changed(view)
        return view

    def poll(self) -> RunView:
        """Ask all hosts once. Emit changes of hosts and tasks, but not of the run."""
        for host, answer in call_all(
            self.fleet,
            self.plan,
            RUN_STATUS,
            retry=False,
            timeout_s=15.0,
            only_hosts=self.only_hosts,
        ).items():
            try:
                self.receive_report(host, answer)
            except BadAnswer as error:
                self.receive_report(host, error)
        return self.view()

    def emit_run_if_changed(self, view: RunView) -> None:
        """Emit the run's state if it has changed, or if the cause that was emitted is gone."""
        if view.state == self._state and (self._cause is None or view.cause is not None):
            return
        self._state, self._cause = view.state, view.cause
        left_files = {host: list(paths) for host, paths in view.left_files.items()}
        self._emit_event(
            "run",
            {
                "state": view.state,
                "cause": view.cause,
                "left_files": left_files,
                "ended": view.ended,
            },
        )

    def view(self, **figures: Any) -> RunView:
        """Return the state of the whole run. `figures` are passed to run_view."""
        with self._lock:
            return run_view(
                self.plan,
                self.states,
                self.tasks,
                unreachable=set(self.errors),
                unasked=self.unwatched,
                **figures,
            )

    @property
    def known_states(self) -> list[wire.HostRunState]:
        """Return the states of the hosts that know the run."""
        return [state for state in self.states.values() if state is not None]

    def all_answered_or_unreachable(self) -> bool:
        """Return whether every host has answered or is known to be unreachable."""
        return all(host in self.states or host in self.errors for host in self.watched)

    def has_run_ended_on(self, host: str) -> bool:
        """Return True if the host's last report says that the run has ended there.

        Also return True if the host does not know the run.
        """
        state = self.states.get(host)
        return state is None or state.phase == "ended"

    def mark_reports_ended(self, host: str) -> None:
        """Record that the host will report nothing more."""
        self._settled.add(host)

    def all_reports_ended(self) -> bool:
        """Return True if each host is unreachable or will report nothing more."""
        return all(host in self._settled or host in self.errors for host in self.watched)

    def receive_report(self, host: str, answer: RunOnHost | RunChange | TfdeployError) -> None:
        """Record one host's report, and emit what has changed. Thread-safe.

        `answer` is one of three: the answer to the verb `run.status`, one item of the answer to the
        verb `run.watch`, or the host's error. Raises BadAnswer for a report about another host, run
        or task.
        """
        with self._lock:
            if isinstance(answer, TfdeployError) and has_code(answer, "unknown_run"):
                self.states[host] = None
                self.errors.pop(host, None)
                self._mark_tasks_of_removed_run_lost(host, answer.what)
            elif isinstance(answer, TfdeployError):
                if host not in self.errors:
                    emit_host_state(self.emit, host, "unreachable", answer.what, run=self.plan.run)
                self.errors[host] = answer
            else:
                self._refuse_foreign_report(host, answer)
                self._record_report(host, answer)

    def _refuse_foreign_report(self, host: str, answer: RunOnHost | RunChange) -> None:
        """Raise BadAnswer for a report about another host, run or task."""
        state = answer.host_state
        if state is not None and (state.run, state.job, state.host) != (
            self.plan.run,
            self.plan.job,
            host,
        ):
            raise BadAnswer(
                f"the host sent a report of {state.host} about run {state.run} of {state.job}",
                where=host,
            )
        own_tasks = {task.task for task in self.plan.tasks if task.host == host}
        if answer.samples is not None and not answer.samples.tasks.keys() <= own_tasks:
            raise BadAnswer("the host sent samples of other hosts' tasks", where=host)
        for status in _task_statuses(answer):
            if (status.run, status.host) != (self.plan.run, host) or status.task not in own_tasks:
                raise BadAnswer(
                    f"the host sent a report about {status.task} on {status.host}, run "
                    f"{status.run}, but this is not a task of the host",
                    where=host,
                )

    def _mark_tasks_of_removed_run_lost(self, host: str, why: str) -> None:
        """Mark the host's unfinished tasks as lost, because the host no longer has the run."""
        for task in [
            task
            for task in self.tasks.values()
            if task.host == host and task.state not in ("ended", "lost")
        ]:
            gone = wire.replace(task, state="lost", outcome="lost", up=False, reason=why)
            self._record_report(host, RunChange(task=gone))

    def _record_report(self, host: str, answer: RunOnHost | RunChange) -> None:
        if self.errors.pop(host, None) or host not in self.reached:
            self.reached.add(host)
            emit_host_state(self.emit, host, "connected", run=self.plan.run)
        if isinstance(answer, RunOnHost):
            (self.processless_hosts.add if answer.left else self.processless_hosts.discard)(host)
        if answer.host_state is not None:
            self.states[host] = answer.host_state
        if answer.samples is not None:
            self._record_samples(host, answer.samples, is_change=isinstance(answer, RunChange))
        for status in _task_statuses(answer):
            previous = self.tasks.get(status.task)
            if status.state == "ended":
                self._emitted_ends.add((status.task, status.attempt))
            if isinstance(answer, RunChange):
                self._emit_missed_attempt_ends(status, previous, answer.attempts)
            self.tasks[status.task] = status
            if previous is None or _SHOWN(previous) != _SHOWN(status):
                self._emit_event(
                    "task", wire.to_wire(status), status.host, status.task, status.attempt
                )

    def _emit_event(
        self,
        kind: Kind,
        data: Any,
        host: str | None = None,
        task: str | None = None,
        attempt: int | None = None,
    ) -> None:
        self.emit(Event(kind, time.time(), self.plan.run, host, task, attempt, data))

    def _emit_missed_attempt_ends(
        self, status: wire.TaskStatus, previous: wire.TaskStatus | None, rows: Iterable[AttemptRow]
    ) -> None:
        """Emit an event for each attempt whose end no report has shown.

        This happens if an attempt ends and the next one begins between two reports. At the first
        report about a task, only its two newest attempts are considered.
        """
        since = status.attempt - 1 if previous is None else previous.attempt
        for row in rows:
            if (
                row.number >= since
                and row.ended is not None
                and (status.task, row.number) not in self._emitted_ends
            ):
                self._emitted_ends.add((status.task, row.number))
                self.emit(
                    replace(
                        make_attempt_end_event(
                            make_attempt_from_row(status.task, row), status.host
                        ),
                        run=self.plan.run,
                    )
                )

    def _record_samples(self, host: str, samples: NewestSamples, *, is_change: bool) -> None:
        """Record the samples. Warn once about each metric that a host no longer reads."""
        self.samples.update(samples.tasks)
        for task, sample in samples.tasks.items():
            known_metrics = self.stopped.get(task, [])
            new_metrics = [
                name
                for name in sample.stopped
                if name in self.plan.metrics and name not in known_metrics
            ]
            if new_metrics:
                self.stopped[task] = [*known_metrics, *new_metrics]
                emit_warning(
                    self.emit, f"{task}: {unread_metrics_text(new_metrics)}", run=self.plan.run
                )
        if is_change:
            self._emit_event("sample", msgspec.to_builtins(samples), host)


def _task_statuses(answer: RunOnHost | RunChange) -> list[wire.TaskStatus]:
    if isinstance(answer, RunOnHost):
        return answer.tasks
    return [answer.task] if answer.task is not None else []
