"""Run the sampler, a child process of the minder (the agent's daemon for the run). Every few
seconds the sampler records how much CPU time and memory the tasks of one run use on this host, how
busy the host is, and which metrics the tasks have printed.

Between two samples it reads new lines of the tasks' output every LINES_S seconds, or less often if
this would use more CPU time than LINES_COST_SHARE. In this way, metrics can be observed within a
second. No other process on this host searches lines for metrics.

The sampler is a separate process because it matches regular expressions of the user's job.
metric_reader.py stops an expression that takes too long. If one step uses STEP_CPU_S seconds of CPU
time nevertheless, a signal ends the sampler, and the minder starts another one that reads no
output. The sampler also ends when its standard input is closed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from tfdeploy.agent import layout, metric_names, wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Optional,
    Tuple,
)
from tfdeploy.agent.host import atomic, processes
from tfdeploy.agent.run import clock
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.sampling import counters, gpus
from tfdeploy.agent.sampling.event_files import EventMetrics
from tfdeploy.agent.sampling.printed import MOST_METRICS, PrintedMetrics, compile_short_named
from tfdeploy.agent.sampling.series import Series

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import HostSample, NewestSamples, TaskSample

STEP_CPU_S = 5  # a step that uses this many CPU seconds is ended, together with this process
# Taking samples may use at most this share of a CPU core on average. If it would use more, the
# pauses between samples are longer.
COST_SHARE = 0.003
LINES_S = 0.4  # the shortest pause between two reads of new lines, in seconds
# Reading new lines may use at most this share of a CPU core on average. If it would use more, the
# pauses between reads are longer.
LINES_COST_SHARE = 0.002
UNREAD = "unread"  # the argument that turns off reading the tasks' output
NICE = 5
# A sample of a task has at most this many metrics. Processes that read samples have the same limit.
MOST_SAMPLED = 2 * MOST_METRICS


class Sampler:
    def __init__(self, paths: RunPaths, part: wire.HostPart, reads: bool) -> None:
        patterns = compile_short_named(part.metrics)
        self._unread = [] if reads else list(patterns)[:MOST_METRICS]
        self._paths, self._part = paths, part
        self._host = Series(paths.file(layout.SAMPLES), part.sample_every_s)
        self._tasks = {
            spec.task: Series(
                os.path.join(paths.task_dir(spec.task), layout.SAMPLES), part.sample_every_s
            )
            for spec in part.tasks
        }
        self._printed = {
            spec.task: PrintedMetrics(paths.task_dir(spec.task), patterns)
            for spec in part.tasks
            if reads
        }
        self._events = EventMetrics(paths, part)
        self._writer = _choose_event_file_task(part)
        self._cpu_s: Dict[str, float] = {}
        self._attempts: Dict[str, int] = {}  # task -> its attempt at the last sample
        self._machine: Optional[counters.MachineCounters] = None
        self._newest: Optional[NewestSamples] = None
        self._sampled_at = 0.0  # when the last sample was taken, in monotonic seconds
        uses_gpus = any(spec.gpus for spec in part.tasks)
        self._gpus = gpus.start_gpu_sampler(part.sample_every_s) if uses_gpus else None

    def take_sample(self) -> None:
        """Take a sample of the host and of all its tasks, and store it. The first sample contains
        no rates, because a rate is the difference between two readings."""
        now, before = time.monotonic(), self._sampled_at
        self._sampled_at = now
        passed_s = now - before if before else 0.0
        at = round(clock.now(self._part), 3)
        table = processes.all_processes()
        newest: NewestSamples = {"host": self._sample_host(at, passed_s), "tasks": {}}
        for spec in self._part.tasks:
            status = self._paths.status(spec.task)
            sample = self._sample_task(status, _find_live_processes(status, table), at, passed_s)
            if sample is not None:
                self._tasks[spec.task].add(sample)
            self._add_to_newest(
                newest, spec.task, sample or {"time": at, "attempt": status.attempt}
            )
        self._host.add(newest["host"])
        self._newest = newest
        self._write()

    def read_new_lines(self) -> None:
        """Read new lines of the tasks' output, and add the metrics in these lines to the newest
        samples."""
        newest = self._newest
        changed_tasks = [
            task for task, printed in self._printed.items() if printed.read_new_metrics()
        ]
        if not changed_tasks or newest is None:
            return
        for task in changed_tasks:
            attempt = self._attempts.get(task, 0)
            empty: TaskSample = {"time": newest["host"]["time"], "attempt": attempt}
            self._add_to_newest(newest, task, newest["tasks"].get(task, empty))
        self._write()

    def _add_to_newest(self, newest: NewestSamples, task: str, sample: TaskSample) -> None:
        """Add the sample of a task to the newest samples, together with the newest value of each
        metric of the task."""
        extended = self._add_known_metrics(task, sample)
        if len(extended) > len(("time", "attempt")):
            newest["tasks"][task] = extended

    def _write(self) -> None:
        try:
            atomic.write_json(self._paths.file(layout.NEWEST_SAMPLES), self._newest)
        except OSError:
            pass  # the disk is full

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()

    def _sample_task(
        self,
        status: wire.TaskStatus,
        used: List[processes.Process],
        sampled_at: float,
        passed_s: float,
    ) -> Optional[TaskSample]:
        """Return a sample of the task. Return None if the task has no living process, and has no
        new metrics since the last sample."""
        task = status.task
        printed = self._new_metrics(status)
        cpu_s, before = sum(each.cpu_s for each in used), self._cpu_s.pop(task, None)
        if not used and not printed:
            return None
        sample: TaskSample = {"time": sampled_at, "attempt": status.attempt}
        if used:
            self._cpu_s[task] = cpu_s
            sample["memory"] = sum(each.memory for each in used)
            if before is not None and passed_s:
                sample["cpu"] = round(max(0.0, cpu_s - before) / passed_s, 3)
        if printed:
            sample["printed"] = printed
        return sample

    def _new_metrics(self, status: wire.TaskStatus) -> Dict[str, float]:
        """Return the metrics that the task has printed or written to event files since the last
        sample."""
        task, before = status.task, self._attempts.get(status.task)
        ended = status.state not in ("starting", "running") or status.attempt != before
        self._attempts[task] = status.attempt
        printed: Dict[str, float] = {}
        if task in self._printed:
            self._printed[task].read_new_metrics(ended)
            printed = self._printed[task].take_new_values()
        written = self._events.read_new_values() if task == self._writer else {}
        return _merge_metrics(
            printed, self._read_event_progress(task)[0] if written else {}, written
        )

    def _add_known_metrics(self, task: str, sample: TaskSample) -> TaskSample:
        """Return the sample, extended by the newest value of each metric of the task. The sample
        itself may lack some of them: a task may print a metric only once in an epoch, or have
        printed a long traceback after it."""
        reader = self._printed.get(task)
        figures, time = self._read_event_progress(task)
        written = self._events.known_values if task == self._writer else {}
        known = _merge_metrics(reader.finite if reader else {}, figures, written)
        metrics: Dict[str, Any] = {"printed": known, "stopped": self._unread}
        if reader is not None:
            step_times = {name: self._to_run_clock(at) for name, at in reader.step_times.items()}
            metrics.update(
                not_finite=reader.not_finite, step_times=step_times, stopped=reader.stopped
            )
        if figures.get("step") is not None:
            metrics["step_time"] = min(sample["time"], time or sample["time"])
        metrics = {name: value for name, value in metrics.items() if value}
        return dict(sample, **metrics)  # type: ignore[return-value]

    def _to_run_clock(self, host_time: float) -> float:
        return round(clock.to_run_clock(self._part, host_time), 3)

    def _read_event_progress(self, task: str) -> Tuple[Dict[str, float], float]:
        """Return two values from event files: the step, loss and accuracy, and the time of this
        step. Whichever of the step, loss and accuracy the task also prints is left out."""
        if task != self._writer:
            return {}, 0.0
        known = self._printed[task].known if task in self._printed else {}
        figures = metric_names.select_progress(self._events.scalars)
        values = {name: value for name, value in figures.values.items() if name not in known}
        return values, self._to_run_clock(figures.step_time) if figures.step_time else 0.0

    def _sample_host(self, sampled_at: float, passed_s: float) -> HostSample:
        before, now = self._machine, counters.read_machine_counters()
        self._machine = now
        sample: HostSample = {"time": sampled_at}
        if now.memory is not None:
            sample["memory"] = now.memory
        if before is not None and passed_s:
            if now.busy_s is not None and before.busy_s is not None:
                sample["cpu"] = round(max(0.0, now.busy_s - before.busy_s) / passed_s, 3)
            counts = {name: (getattr(before, name), getattr(now, name)) for name in RATES}
            sample["rates"] = {
                name: max(0, round((last - first) / passed_s))
                for name, (first, last) in counts.items()
                if None not in (first, last)
            }
        measured = self._gpus.sample() if self._gpus is not None else []
        if measured:
            sample["gpus"] = [list(gpu) for gpu in measured]
        return sample


def _merge_metrics(*groups: Dict[str, float]) -> Dict[str, float]:
    """Merge the groups into one table {name: value}, with at most MOST_SAMPLED names. If a name is
    in several groups, use the value of the first of them."""
    merged: Dict[str, float] = {}
    for group in groups:
        merged = {**merged, **group, **merged}
    return dict(list(merged.items())[:MOST_SAMPLED])


RATES = ("received", "sent", "read", "written")


def _choose_event_file_task(part: wire.HostPart) -> str:
    """Return the task to which the event files on this host are attributed: the deciding task
    (whose success is the success of the run) if it runs on this host, otherwise the first task that
    is not a ps."""
    tasks = sorted(part.tasks, key=lambda spec: (not spec.deciding, spec.role == "ps"))
    return tasks[0].task if tasks else ""


def _find_live_processes(
    status: wire.TaskStatus, process_by_pid: Dict[int, processes.Process]
) -> List[processes.Process]:
    """Return the living processes of a task, which are the descendants of its supervisor."""
    below = status.supervisor_pid if status.state in ("starting", "running") else None
    return (
        []
        if below is None
        else [process_by_pid[pid] for pid in processes.descendants([below], process_by_pid)]
    )


def main(argv: List[str]) -> int:
    """Run the command `sample HOST_DIR MINDER_PID [unread]`: take samples until the minder closes
    the standard input of this process. With `unread`, do not read the output of tasks."""
    processes.die_with_parent(int(argv[1]))
    os.umask(0o077)
    paths = RunPaths(argv[0])
    paths.check_owner("tasks")
    part = paths.part()
    if part.sample_every_s <= 0:
        return 0
    os.nice(NICE)
    sampler = Sampler(paths, part, UNREAD not in argv[2:])
    ended, due = False, time.monotonic()
    while not ended and os.path.isdir(paths.host_dir):
        if time.monotonic() >= due:
            due = time.monotonic() + _pause_s(
                _measure_cpu_s(sampler.take_sample), COST_SHARE, part.sample_every_s
            )
        pause_s = _pause_s(_measure_cpu_s(sampler.read_new_lines), LINES_COST_SHARE, LINES_S)
        ended = _is_closed_within(max(0.0, min(pause_s, due - time.monotonic())))
    if ended:
        sampler.take_sample()  # the last sample, which includes the last lines of output
    sampler.close()
    return 0


def _measure_cpu_s(work: Callable[[], None]) -> float:
    """Call `work`, and return how many CPU seconds it used. If it uses STEP_CPU_S seconds, the
    kernel ends this process."""
    begin_s = time.process_time()
    # The timer sends SIGPROF. This signal ends the process even while a regular expression is being
    # matched, which Python cannot interrupt.
    signal.setitimer(signal.ITIMER_PROF, STEP_CPU_S)
    work()
    signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - begin_s


def _pause_s(cost_s: float, share: float, least_s: float) -> float:
    return max(least_s, min(cost_s / share, 10 * least_s))


def _is_closed_within(pause_s: float) -> bool:
    """Wait until the minder has closed standard input, but no longer than `pause_s` seconds. Return
    True if it was closed."""
    return bool(select.select([sys.stdin.fileno()], [], [], pause_s)[0])
