"""A task's log, brought here whole: `worker-0@n3.log`, the raw bytes of both pipes. A later fetch appends what is new.

Where the beginning was rotated away before it came, the rest stands in `worker-0@n3.from-OFFSET.log`: offsets count from
the run's beginning, and no byte is here twice. What is here is checked by the host's own sum of the same bytes.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import BadAnswer, HostFailed, HostUnreachable, Refused
from tfdeploy.model.answers.files import FETCH_LOG_SUM
from tfdeploy.model.answers.runs import LOGS, RUN_STATUS
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.operations.copy.below import Below
from tfdeploy.operations.copy.pull import Brought
from tfdeploy.operations.emit import transfer_news
from tfdeploy.transport.protocols import AgentChannel, Session

SUM_S = 600.0  # a whole log is summed
SILENCE_S = 60.0  # of a log that is read as it is
SLACK_BYTES = 64 << 20  # a log may rotate while it is read
ITEM_BYTES = 100  # what a piece weighs besides its bytes
MOST_GAPS = 16  # rotations while one log is read: each begins a file here
LEAST_BYTES_S = 4096  # what comes slower is not waited for


@dataclass(frozen=True)
class LocalLog:
    """What is here of a log: bytes from `base` on."""

    name: str
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


def bring_logs(session: Session, plan: Plan, folder: Path, emit: Emit) -> Brought:
    """The logs of this host's tasks. Raises AgentError (unknown_run), HostFailed (not what the host holds), HostUnreachable."""
    try:
        with Below(folder) as here:
            return _bring(session, plan, here, emit)
    except OSError as error:
        raise Refused(f"cannot write here: {error.strerror}", where=str(error.filename or folder), next="--to DIR") from error


def _bring(session: Session, plan: Plan, folder: Below, emit: Emit) -> Brought:
    host, agent = session.host.name, session.agent()
    ends = _ends(agent, plan)
    heres = {task: _here(folder, task, host) for task in ends}
    told = _Told(emit, host, sum(max(0, end - heres[task].end) for task, end in ends.items()))
    if told.total:
        told.say("begin")
    brought = Brought()
    try:
        for task, here in heres.items():
            came = _follow_up(agent, plan, task, folder, here, told)
            kept = _here(folder, task, host)
            if kept.size:
                _check(agent, plan, task, folder, kept, host)
            brought.bytes_received, brought.files = brought.bytes_received + came, brought.files + (came > 0)
    except BaseException:
        told.say("failed")
        raise
    if told.came:
        told.say("done")
    return brought


@dataclass
class _Told:
    """How far all logs of one host are, as events."""

    emit: Emit
    host: str
    total: int
    came: int = 0

    def say(self, state: str, more: int = 0) -> None:
        self.came += more
        transfer_news(self.emit, self.host, "logs", state, self.came, max(self.total, self.came), done="fetched")


def _ends(agent: AgentChannel, plan: Plan) -> dict[str, int]:
    """The tasks of this host that wrote anything, and how much as of now."""
    answer = agent.call(RUN_STATUS, {"run": plan.run, "job": plan.job})
    known = {task.task for task in plan.tasks}
    return {status.task: status.log_bytes for status in answer.tasks if status.task in known}


def _here(folder: Below, task: str, host: str) -> LocalLog:
    """The newest piece that is here of a log, or what it would be."""
    stem = f"{task.replace(':', '-')}@{host}"
    named = re.compile(re.escape(stem) + r"(?:\.from-(\d+))?\.log\Z")
    found = [(int(hit[1] or 0), name) for name in folder.names() if (hit := named.match(name))]
    base, name = max(found, default=(0, f"{stem}.log"))
    about = folder.stat(name)
    return LocalLog(name, base, about.st_size if about is not None else 0)


def _follow_up(agent: AgentChannel, plan: Plan, task: str, folder: Below, here: LocalLog, told: _Told) -> int:
    """Appends what came since. Returns how many bytes."""
    args = {"run": plan.run, "job": plan.job, "tasks": [task], "cursors": {task: here.end}, "follow": False}
    name, end, came, weight, gaps, began = here.name, here.end, 0, 0, 0, time.monotonic()
    with closing(agent.stream(LOGS, args, silence_s=SILENCE_S)) as stream:
        for item, blob in stream:
            offset = item.offset
            gaps += offset > end
            if item.task != task or offset < end or not blob or gaps > MOST_GAPS:
                raise BadAnswer(f"what the host sends as the log of {task} makes no sense", where=told.host)
            if offset > end:  # the beginning, or a piece in between, was rotated away
                name = f"{task.replace(':', '-')}@{told.host}.from-{offset}.log"
            _append(folder, name, blob)
            end, came = offset + len(blob), came + len(blob)
            weight += len(blob) + ITEM_BYTES
            if weight > plan.logs_max_bytes + SLACK_BYTES:
                raise BadAnswer(f"the log of {task} is longer than a log can be", where=told.host)
            if time.monotonic() - began > SUM_S + came / LEAST_BYTES_S:
                raise HostUnreachable(f"the log of {task} comes too slowly: {came} bytes so far", where=told.host)
            told.say("moving", len(blob))
    return came


def _append(folder: Below, name: str, blob: bytes) -> None:
    with os.fdopen(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        log.write(blob)


def _check(agent: AgentChannel, plan: Plan, task: str, folder: Below, here: LocalLog, host: str) -> None:
    """Raises HostFailed where what is here is not the host's."""
    args = {"run": plan.run, "job": plan.job, "task": task, "first": here.base, "end": here.end}
    there = agent.call(FETCH_LOG_SUM, args, timeout_s=SUM_S)
    first = there.first
    if not here.base <= first <= here.end or there.sha256 != folder.sha256(here.name, first - here.base):
        raise HostFailed(
            f"{folder.path / here.name} is not the log that the host holds", where=host, next=f"move {here.name} away, then again"
        )
