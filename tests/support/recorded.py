"""Replay recorded events of a run, including log lines of its tasks, to a view or a RunProgress.
Hosts find metrics in the lines of their tasks, so a line with a metric is replayed together with
the sample that its host would send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

from dashboard_svg import line_of
from tfdeploy.agent.metric_lines import (
    find_metric,
    find_standard_metrics,
    is_possible_step,
    keras_step,
    metric_values,
    texts_to_match,
)
from tfdeploy.agent.metric_patterns import OTHER_STEPS, STEP_COUNTERS
from tfdeploy.agent.metric_reader import compile_patterns
from tfdeploy.model.events import Event
from tfdeploy.model.job import DEFAULT_METRICS
from tfdeploy.model.plan import Plan, plan_from_json
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.plain import PlainView


class PrintedMetrics:
    """What the sampler of a host knows about the metrics that one task has printed. `known` maps a
    metric to its newest value, `step_times` a step counter to the time when it was last printed."""

    def __init__(self, metrics: Mapping[str, str] = {}) -> None:
        self._patterns = compile_patterns({**OTHER_STEPS, **DEFAULT_METRICS, **metrics})
        self.known: dict[str, float] = {}
        self.step_times: dict[str, float] = {}

    def read_line(self, text: str, time: float) -> bool:
        """Search one line. Return True if it contains a metric."""

        def is_possible(name: str, value: float) -> bool:
            passed_s = time - self.step_times.get(name, 0.0)
            return name not in STEP_COUNTERS or is_possible_step(
                value, self.known.get(name), passed_s
            )

        texts = texts_to_match([text])
        newest = find_standard_metrics(texts)
        for name, pattern in self._patterns.items():
            find_metric(texts, name, pattern, is_possible, newest)
        found = metric_values(newest)
        self.known.update(found)
        if "step" not in found and "batch" in found:
            step = keras_step(self.known)
            if step is not None:
                found["step"] = self.known["step"] = step
        self.step_times.update({name: time for name in STEP_COUNTERS if name in found})
        return bool(found)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a sample of this task."""
        not_finite = {name: str(each) for name, each in self.known.items() if not isfinite(each)}
        printed = {name: each for name, each in self.known.items() if isfinite(each)}
        return {"printed": printed, "not_finite": not_finite, "step_times": self.step_times}


class SamplingHosts:
    """The hosts of one run: they send samples with the metrics in the lines of their tasks."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._metrics: Mapping[str, str] = plan.metrics if plan else {}
        self._printed: dict[str, PrintedMetrics] = {}
        self._newest: dict[str, dict[str, Any]] = {}  # host -> its newest samples

    def events(self, told: Event) -> Iterator[Event]:
        """Yield the event as the hosts send it, and after it the samples that it causes."""
        if told.kind == "plan":
            self._metrics = plan_from_json(told.data).metrics
        if told.kind == "sample":
            self._newest[told.host or "?"] = told.data
            told = replace(told, data=self._with_printed(told.host or "?"))
        yield told
        if told.kind == "line" and told.task:
            printed = self._printed.setdefault(told.task, PrintedMetrics(self._metrics))
            if printed.read_line(told.data["line"], told.time):
                yield self._sample_after(told)

    def _sample_after(self, line: Event) -> Event:
        host, time = line.host or "?", line.time
        newest = self._newest.setdefault(
            host, {"host": {"time": time, "cpu": None, "gpus": [], "rates": {}}, "tasks": {}}
        )
        newest["tasks"].setdefault(line.task, {"time": time, "attempt": 1})
        return replace(line, kind="sample", task=None, data=self._with_printed(host))

    def _with_printed(self, host: str) -> dict[str, Any]:
        newest = self._newest[host]
        tasks = {
            task: {**sample, **self._merged(sample, self._printed[task].fields())}
            if task in self._printed
            else sample
            for task, sample in newest["tasks"].items()
        }
        return {**newest, "tasks": tasks}

    @staticmethod
    def _merged(sample: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        return {name: {**sample.get(name, {}), **each} for name, each in fields.items()}


_HOSTS: WeakKeyDictionary[object, SamplingHosts] = WeakKeyDictionary()


def replay_to_view(view: Dashboard | PlainView, told: Event) -> None:
    plan = view.progress.plan if isinstance(view, Dashboard) else None
    hosts = _HOSTS.setdefault(view, SamplingHosts(plan))
    for one in hosts.events(told):
        if one.kind == "line":
            view.take_lines([line_of(one)])
        else:
            view(one)


def fold_events(progress: RunProgress, told: Iterable[Event]) -> RunProgress:
    hosts = _HOSTS.setdefault(progress, SamplingHosts(progress.plan))
    for one in (sent for each in told for sent in hosts.events(each)):
        if one.kind == "line":
            line = line_of(one)
            progress.take_lines(line.task, line.host, line.time, [one.data["line"]], 1)
        else:
            progress.apply_event(one)
    return progress
