"""Read the state of a run's tasks and their metrics from its hosts (`tfdeploy status`)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tfdeploy.agent.metric_patterns import OTHER_STEPS
from tfdeploy.model.job import DEFAULT_METRICS
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import RunView, find_informed_and_uninformed_hosts
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.last_lines import last_lines
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Errors, Fleet

SETTLE_S = 2.0  # hosts have this many seconds to tell each other that the run has ended
DEATH_LINES = 8  # `status` shows this many log lines of the task that died first


@dataclass(frozen=True)
class Status:
    """The state of a run, and the errors of hosts that did not answer."""

    view: RunView
    errors: Errors
    # Hosts on which the minder (the process that watches the run there) is gone although the run
    # has not ended, for example after a reboot: see watch/resume.py.
    processless_hosts: tuple[str, ...]
    # What find_informed_and_uninformed_hosts returns; see also watch/relay.py.
    uninformed: tuple[str | float, tuple[str, ...]] | None


def status(fleet: Fleet, plan: Plan, only_hosts: frozenset[str] | None = None) -> Status:
    """Ask the run's hosts once, and return the state of the run.

    `only_hosts`: ask only these hosts. Hosts that do not answer are in `errors` of the result.
    """
    watch = Watch(fleet, plan, lambda event: None, only_hosts)
    watch.poll()
    order = [*DEFAULT_METRICS, *plan.metrics]
    metrics = {
        task: _sorted_metric_values(sample.values, order) for task, sample in watch.samples.items()
    }
    unread = {task: tuple(names) for task, names in watch.stopped.items()}
    view = watch.view(metrics=metrics, unread=unread)
    return Status(
        view, watch.errors, tuple(sorted(watch.processless_hosts)), _recheck_uninformed_hosts(watch)
    )


def lines_of_first_death(
    fleet: Fleet, plan: Plan, run_status: Status, fetched: FetchedLogs
) -> list[str]:
    """Return the last lines of the task that died first, if the run failed because of that task.

    The lines come from the task's host, or from `fetched` if the host does not answer or no longer
    has the run.
    """
    view = run_status.view
    if view.first_death not in {task.task for task in view.tasks} or view.state not in (
        "failed",
        "lost",
    ):
        return []
    return last_lines(fleet, plan, view.first_death, DEATH_LINES, fetched, run_status.errors)


def _recheck_uninformed_hosts(watch: Watch) -> tuple[str | float, tuple[str, ...]] | None:
    """Return what find_informed_and_uninformed_hosts returns for the newest states.

    Before a pair is returned, all hosts are asked again after SETTLE_S seconds, because hosts
    tell each other.
    """
    uninformed_hosts = _find_uninformed_hosts(watch)
    if uninformed_hosts is not None:
        time.sleep(SETTLE_S)
        watch.poll()
        uninformed_hosts = _find_uninformed_hosts(watch)
    return uninformed_hosts


def _find_uninformed_hosts(watch: Watch) -> tuple[str | float, tuple[str, ...]] | None:
    """Return what find_informed_and_uninformed_hosts returns.

    This looks only at what hosts have reported so far. Hosts that do not answer, and hosts on which
    no process of the run is alive, are left out.
    """
    return find_informed_and_uninformed_hosts(
        {
            host: state
            for host, state in watch.states.items()
            if host not in watch.errors and host not in watch.processless_hosts
        },
        watch.plan,
    )


def _sorted_metric_values(
    value_by_metric: dict[str, float], first: Iterable[str]
) -> dict[str, float]:
    """Return {metric: value} with the metrics of `first` first, in their order.

    Counters that are used only to compute rates are left out.
    """
    others = (name for name in value_by_metric if name not in OTHER_STEPS)
    return {
        name: value_by_metric[name]
        for name in dict.fromkeys((*first, *others))
        if name in value_by_metric
    }
