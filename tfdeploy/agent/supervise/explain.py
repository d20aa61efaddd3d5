"""Why an attempt failed, and whether the next one would fail in the same way. Reads its log and `keep`, once it has ended."""

from __future__ import annotations

import os
import re
import signal

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Optional, Tuple
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.log import last_words, silent_tasks
from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS
from tfdeploy.agent.metric_reader import MetricReader
from tfdeploy.agent.run.folder import RunPaths

AT_START_S = 120.0  # who lives longer has done something, though it printed no step
MOST_FILES = 2000  # of `keep`, that are looked at
_OWN_FAULT = frozenset(
    (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
)  # not those that others send
_AT_START = re.compile(r"events\.out\.tfevents\.|graph\.pbtxt|checkpoint\Z|.*ckpt-0\.")  # written before the first step


def failure(
    paths: RunPaths, part: wire.HostPart, status: wire.TaskStatus, said_bytes: int, lived_s: float
) -> Tuple[Optional[str], str]:
    """TaskStatus.reason and TaskStatus.error of an attempt that failed, or died of a signal.

    `said_bytes`: how much it wrote into its log; `lived_s`: how long it lived."""
    folder = paths.task_dir(status.task)
    blamed = silent_tasks.blame(folder, status.task, said_bytes)
    if blamed is not None or (status.signal is not None and status.signal not in _OWN_FAULT):
        return blamed, ""
    out, err = last_words.read(folder, said_bytes)
    roots = (paths.cwd, os.path.realpath(paths.cwd))
    said = last_words.of_exit(out, err, roots, status.exit_code) if status.signal is None else last_words.of_crash(err, roots)
    if said is None:
        return None, ""
    repeats = said.error and lived_s < AT_START_S and not _made_steps(paths, part, status, out + err)
    return said.words, said.error if repeats else ""


def _made_steps(paths: RunPaths, part: wire.HostPart, status: wire.TaskStatus, text: str) -> bool:
    """Whether it printed a step above 0 or a loss, wrote metrics into event files, or a file into `keep`."""
    try:
        patterns = {name: re.compile(pattern) for name, pattern in part.metrics.items()}
    except (re.error, OverflowError, RecursionError):
        return True  # who knows
    found = MetricReader(patterns).find(text.split("\n")[::-1], lambda name, value: True)
    at = max(found.pop("step", 0.0), found.pop(BATCH, 0.0), found.pop(EPOCH, 1.0) - 1.0)
    if at > 0.0 or set(found) - {EPOCHS, BATCHES}:
        return True
    sample = (read_json(paths.file(layout.NEWEST_SAMPLES)) or {}).get("tasks", {}).get(status.task, {})
    if sample.get("attempt") == status.attempt and any("/" in name for name in sample.get("printed", {})):
        return True
    since = (status.started or 0.0) + part.ahead_s  # by this host's clock
    return any(_has_news(os.path.join(paths.cwd, folder), since) for folder in part.keep)


def _has_news(folder: str, since: float) -> bool:
    seen = 0
    for path, _, names in os.walk(folder):
        for name in names:
            seen += 1
            try:
                if not _AT_START.match(name) and os.stat(os.path.join(path, name)).st_mtime > since:
                    return True
            except OSError:
                pass  # it was removed meanwhile
        if seen > MOST_FILES:
            return True
    return False
