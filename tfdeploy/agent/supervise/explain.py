"""Explain from its log why an attempt failed. Also decide whether the next attempt would fail in
the same way, from the log and the files in `keep`."""

from __future__ import annotations

import os
import re
import signal

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Optional, Tuple
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.log import failure_reason, silent_tasks
from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS
from tfdeploy.agent.metric_reader import MetricReader, compile_patterns
from tfdeploy.agent.run.folder import RunPaths

# An attempt that has lived for this many seconds has made progress, even if it printed no step.
START_PHASE_S = 300.0
# A `keep` folder is searched for new files. If it has more files than this, the search stops, and
# the attempt counts as one that has made progress.
MOST_FILES = 2000
# The signals that a fault of the program itself causes. All others are sent by another process.
_CRASH_SIGNALS = frozenset(
    (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
)
# The names of files that a program writes before its first step. They do not show progress.
_START_FILES = re.compile(r"events\.out\.tfevents\.|graph\.pbtxt|checkpoint\Z|.*ckpt-0\.")


def explain_failure(
    paths: RunPaths,
    part: wire.HostPart,
    status: wire.TaskStatus,
    written_bytes: int,
    lived_s: float,
) -> Tuple[Optional[str], str]:
    """Return the values of TaskStatus.reason and TaskStatus.error for an attempt that failed or was
    killed by a signal. The error is "" unless the next attempt would fail in the same way.

    `written_bytes`: how many bytes the attempt wrote to its log. `lived_s`: how many seconds it
    lived.
    """
    folder = paths.task_dir(status.task)
    ended = paths.state().ended_tasks
    endings = {task: each for task, each in ended.items() if each.get("round", 1) == status.round}
    out, err = failure_reason.read_output_end(folder, written_bytes)
    blamed = silent_tasks.describe_tasks_without_heartbeat(out + err, status.task, endings)
    if blamed is not None or (status.signal is not None and status.signal not in _CRASH_SIGNALS):
        return blamed, ""
    roots = (paths.cwd, os.path.realpath(paths.cwd))
    if status.signal is None:
        reason = failure_reason.explain_exit(out, err, roots, status.exit_code)
    else:
        reason = failure_reason.explain_crash(err, roots)
    if reason is None:
        return None, ""
    repeats = (
        reason.error
        and lived_s < START_PHASE_S
        and not _has_progressed(paths, part, status, out + err)
    )
    return reason.text, reason.error if repeats else ""


def _has_progressed(
    paths: RunPaths, part: wire.HostPart, status: wire.TaskStatus, text: str
) -> bool:
    """Return True if the attempt has done more than start. The signs of this are: it has printed a
    step above 0 or another metric such as a loss, has written a step to event files, or has written
    a file to `keep`."""
    patterns = compile_patterns(part.metrics)
    if len(patterns) < len(part.metrics):
        # A pattern is missing because it is invalid. It may be the pattern for the step, so it is
        # unknown whether the attempt printed a step.
        return True
    metrics = MetricReader(patterns).find_metrics(text.split("\n")[::-1], lambda name, value: True)
    at = max(metrics.pop("step", 0.0), metrics.pop(BATCH, 0.0), metrics.pop(EPOCH, 1.0) - 1.0)
    if at > 0.0 or set(metrics) - {EPOCHS, BATCHES}:
        return True
    samples = (read_json(paths.file(layout.NEWEST_SAMPLES)) or {}).get("tasks", {})
    started = status.started or 0.0  # a time of the run's clock, as is "step_time"
    if samples.get(status.task, {}).get("step_time", 0.0) > started:
        return True
    return any(
        _has_new_file(os.path.join(paths.cwd, folder), started + part.ahead_s)
        for folder in part.keep
    )


def _has_new_file(folder: str, since: float) -> bool:
    count = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                if (
                    not _START_FILES.match(name)
                    and os.stat(os.path.join(path, name)).st_mtime > since
                ):
                    return True
            except OSError:
                pass  # the file was removed after the folder was listed
        count += len(names)
        if count > MOST_FILES:
            return True
    return False
