"""Fetch the whole log of each task, the raw bytes of both streams, as `worker-0@n3.log`.

A later fetch appends the new bytes. If bytes were rotated away before they were fetched, the bytes
after them are in `worker-0@n3.from-OFFSET.log`. Offsets count from the beginning of the run, and no
byte is stored twice. The local bytes are compared with the host's hash of the same bytes. The file
`worker-0@n3.times` tells when the bytes were written: see tasklogs/log_times.py.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import BadAnswer, HostFailed, HostUnreachable
from tfdeploy.model.answers.files import FETCH_LOG_SUM
from tfdeploy.model.answers.runs import LOGS, RUN_STATUS
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.operations.copy.fetch_budget import FetchBudget
from tfdeploy.operations.copy.pull import HostFetch
from tfdeploy.operations.copy.safe_folder import SafeFolder, refuse_unwritable
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.operations.tasklogs.log_times import (
    log_files,
    log_stem,
    pack_time_records,
    times_name,
)
from tfdeploy.transport.protocols import AgentChannel, Session

SUM_S = 600.0  # timeout in seconds while the host hashes a whole log
SILENCE_S = 60.0  # longest pause, in seconds, that a host may make while it sends a log
# A host may send this many bytes more than the size limit of a log, because the log may rotate
# while it is read.
SLACK_BYTES = 64 << 20
ITEM_BYTES = 100  # each piece of a log counts as this many bytes more than its content
# In one fetch, a log may have at most this many gaps. A gap is a range of bytes that the host has
# rotated away. After each gap, a new local file begins.
MOST_GAPS = 16
LEAST_BYTES_S = 4096  # a host that sends fewer bytes per second counts as unreachable


@dataclass(frozen=True)
class LocalLog:
    """The part of a log that this machine has: `size` bytes from offset `first_offset` on."""

    name: str
    first_offset: int
    size: int

    @property
    def end(self) -> int:
        """Return the offset in the log after the last byte that this machine has."""
        return self.first_offset + self.size


def fetch_logs(
    session: Session, plan: Plan, folder: Path, emit: Emit, budget: FetchBudget
) -> HostFetch:
    """Fetch the logs of the host's tasks into `folder`. `budget` limits the bytes.

    Raises AgentError (unknown_run), HostFailed (a hash differs, too many bytes), HostUnreachable,
    and Refused (`folder` cannot be written).
    """
    with refuse_unwritable(folder), SafeFolder(folder) as local_folder:
        return _fetch_host_logs(session, plan, local_folder, emit, budget)


def _fetch_host_logs(
    session: Session, plan: Plan, folder: SafeFolder, emit: Emit, budget: FetchBudget
) -> HostFetch:
    host, agent = session.host.name, session.agent()
    ends = _log_sizes(agent, plan)
    local_logs = {task: _newest_local_log(folder, task, host) for task in ends}
    progress = _Progress(
        emit, host, sum(max(0, end - local_logs[task].end) for task, end in ends.items()), budget
    )
    budget.check_fits(progress.total, folder.path)
    if progress.total:
        progress.count_and_emit("begin")
    fetched = HostFetch()
    try:
        for task, local_log in local_logs.items():
            received = _append_new_bytes(agent, plan, task, folder, local_log, progress)
            local_copy = _newest_local_log(folder, task, host)
            if local_copy.size:
                _check_hash(agent, plan, task, folder, local_copy, host)
            fetched.bytes_received += received
            fetched.files += received > 0
    except BaseException:
        progress.count_and_emit("failed")
        raise
    if progress.received:
        progress.count_and_emit("done")
    return fetched


@dataclass
class _Progress:
    """Emits how many bytes of all logs of one host have been received."""

    emit: Emit
    host: str
    total: int
    budget: FetchBudget
    received: int = 0

    def count_and_emit(self, state: str, received: int = 0) -> None:
        """Add `received` to the number of received bytes, and emit the progress."""
        self.received += received
        emit_transfer(
            self.emit,
            self.host,
            "logs",
            state,
            self.received,
            max(self.total, self.received),
            end_word="fetched",
        )


def _log_sizes(agent: AgentChannel, plan: Plan) -> dict[str, int]:
    """Return {task: size of its log in bytes}, for the tasks of the host."""
    answer = agent.call(RUN_STATUS, plan.run_args)
    planned_tasks = {task.task for task in plan.tasks}
    return {
        status.task: status.log_bytes for status in answer.tasks if status.task in planned_tasks
    }


def _newest_local_log(folder: SafeFolder, task: str, host: str) -> LocalLog:
    """Return the newest local file of a task's log, with size 0 if no file exists yet."""
    base, name = max(
        log_files(folder.list_names(), task, host), default=(0, f"{log_stem(task, host)}.log")
    )
    file_stat = folder.stat(name)
    return LocalLog(name, base, file_stat.st_size if file_stat is not None else 0)


def _append_new_bytes(
    agent: AgentChannel,
    plan: Plan,
    task: str,
    folder: SafeFolder,
    local_log: LocalLog,
    progress: _Progress,
) -> int:
    """Append the bytes that were written since the last fetch, and return their number."""
    args = {
        **plan.run_args,
        "tasks": [task],
        "cursors": {task: local_log.end},
        "follow": False,
    }
    name, end, began = local_log.name, local_log.end, time.monotonic()
    received = weight = gaps = times_bytes = 0
    with closing(agent.stream(LOGS, args, silence_s=SILENCE_S)) as stream:
        for item, blob in stream:
            offset = item.offset
            gaps += offset > end
            if item.task != task or offset < end or not blob or gaps > MOST_GAPS:
                raise BadAnswer(
                    f"the host sent an invalid part of the log of {task}", where=progress.host
                )
            progress.budget.count_received(len(blob))
            # There is a gap: the host has rotated the bytes from `end` to `offset` away.
            if offset > end:
                name = f"{log_stem(task, progress.host)}.from-{offset}.log"
            _append_bytes(folder, name, blob)
            # The total size of the time records is limited too, because a host may send far more of
            # them than a log of this size can have.
            if times_bytes < plan.logs_max_bytes + SLACK_BYTES:
                times = pack_time_records(offset, item.records, len(blob))
                _append_bytes(folder, times_name(task, progress.host), times)
                times_bytes += len(times)
            end, received = offset + len(blob), received + len(blob)
            weight += len(blob) + ITEM_BYTES
            if weight > plan.logs_max_bytes + SLACK_BYTES:
                raise BadAnswer(
                    f"the host sends a larger log of {task} than allowed", where=progress.host
                )
            if time.monotonic() - began > SUM_S + received / LEAST_BYTES_S:
                raise HostUnreachable(
                    f"the log of {task} arrives too slowly: {received} bytes so far",
                    where=progress.host,
                )
            progress.count_and_emit("moving", len(blob))
    return received


def _append_bytes(folder: SafeFolder, name: str, blob: bytes) -> None:
    with os.fdopen(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        log.write(blob)


def _check_hash(
    agent: AgentChannel, plan: Plan, task: str, folder: SafeFolder, local_log: LocalLog, host: str
) -> None:
    """Raise HostFailed if the local bytes differ from the bytes on the host."""
    args = {
        **plan.run_args,
        "task": task,
        "first": local_log.first_offset,
        "end": local_log.end,
    }
    host_hash = agent.call(FETCH_LOG_SUM, args, timeout_s=SUM_S)
    first = host_hash.first
    if not local_log.first_offset <= first <= local_log.end or host_hash.sha256 != folder.sha256(
        local_log.name, first - local_log.first_offset
    ):
        raise HostFailed(
            f"{folder.path / local_log.name} differs from the log on the host",
            where=host,
            next=f"move {local_log.name} away, then run the same command again",
        )
