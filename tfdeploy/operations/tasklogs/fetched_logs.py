"""Read logs that `tfdeploy fetch` has stored on this machine.

If a host does not answer or no longer has the run, its fetched logs are shown instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.errors import HostUnreachable, TfdeployError, has_code
from tfdeploy.model.answers.runs import Record
from tfdeploy.model.loglines import Batch
from tfdeploy.operations.tasklogs.log_times import log_files, read_records, times_name
from tfdeploy.operations.tasklogs.split_lines import LineSplitter
from tfdeploy.transport.protocols import Errors

_BLOCK_BYTES = 256 << 10


@dataclass
class FetchedLogs:
    """The logs of one run that `tfdeploy fetch` has stored in `folder`.

    If the fetched logs of a host are read instead of its present logs, `replaced_hosts` maps the
    host to the error that it returned.
    """

    folder: Path
    replaced_hosts: Errors = field(default_factory=dict)

    def read_fetched_lines(
        self, task: str, host: str, error: TfdeployError
    ) -> Iterator[Batch] | None:
        """Return the fetched lines of a task whose host returned `error` instead of the log.

        Returns None if no log of the task was fetched. Also returns None if the host has answered
        and still has the run: the caller must then report `error`.
        """
        if not (isinstance(error, HostUnreachable) or has_code(error, "unknown_run")):
            return None
        try:
            files = log_files(os.listdir(self.folder), task, host)
        except OSError:
            return None
        if not files:
            return None
        self.replaced_hosts[host] = error
        return self._read_lines(task, host, files)

    def _read_lines(self, task: str, host: str, files: list[tuple[int, str]]) -> Iterator[Batch]:
        splitter = LineSplitter(task, host)
        times = _TimeRecords(self.folder / times_name(task, host))
        for base, name in files:
            path = self.folder / name
            with path.open("rb") as log:
                # Older versions of tfdeploy fetched logs without times. The lines of such logs get
                # the mtime of the file as their time.
                written = path.stat().st_mtime
                offset = base
                while block := log.read(_BLOCK_BYTES):
                    yield from splitter.feed(
                        offset, times.records_between(offset, offset + len(block), written), block
                    )
                    offset += len(block)
            # A line does not continue in the next file, because the bytes between the two files
            # were rotated away.
            yield from splitter.take_unfinished_lines()


class _TimeRecords:
    """The time records of one log, read once from beginning to end."""

    def __init__(self, path: Path) -> None:
        self._records = read_records(path)
        self._next = next(self._records, None)
        # The last record that was read. It also applies to the bytes before the next record.
        self._previous: Record | None = None

    def records_between(self, start: int, end: int, default_time: float) -> list[Record]:
        """Return the time records for the bytes from `start` to `end` of the log.

        The offsets in the result are relative to `start`. Bytes before the first record of the log
        get the time `default_time`.
        """
        records: list[Record] = [(0, *(self._previous or (0, default_time, 0, 1))[1:])]
        while self._next is not None and self._next[0] < end:
            record, self._next = self._next, next(self._records, None)
            if self._previous is not None and record[0] < self._previous[0]:
                # This record was already read: an interrupted fetch stored it, and the next fetch
                # stored it again.
                continue
            self._previous = record
            if record[0] <= start:
                records.clear()
            records.append((max(0, record[0] - start), *record[1:]))
        return records
