"""Split the raw bytes of one task's log into lines with time, stream and attempt.

The lines are bytes. They are not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfdeploy.model.answers.runs import Record
from tfdeploy.model.loglines import Batch, LineBlock, LogLine

MAX_LINE_BYTES = 1 << 20  # a line that is longer than this is cut into pieces of this size
STREAMS = ("out", "err")


class LineSplitter:
    """Splits the log of one task into lines.

    Each of the two streams is split separately, so that a line has bytes of only one stream.
    """

    def __init__(self, task: str, host: str) -> None:
        self.task = task
        self.host = host
        # The unfinished line of each stream: {stream: (time, attempt, offset, bytes so far)}.
        self._open: dict[int, tuple[float, int, int, bytearray]] = {}

    def feed(self, offset: int, records: Sequence[Record], blob: bytes) -> Iterator[Batch]:
        """Yield the lines that end in `blob`, the part of the log that begins at `offset`.

        `records` is [[offset in the blob, UTC seconds, stream, attempt], ...]: see
        docs/agent-protocol.md.
        """
        for index, record in enumerate(records):
            begin = max(record[0], 0)
            end = records[index + 1][0] if index + 1 < len(records) else len(blob)
            if end > begin:
                yield from self._split_chunk(offset + begin, record, blob[begin:end])

    def take_unfinished_lines(self) -> Iterator[list[LogLine]]:
        """Yield the lines without a newline at the end. Call this when no more bytes can follow."""
        for stream, (time, attempt, offset, text) in sorted(self._open.items()):
            if text:
                yield [
                    LogLine(
                        time,
                        self.task,
                        self.host,
                        attempt,
                        STREAMS[stream],
                        bytes(text),
                        offset,
                        False,
                    )
                ]
        self._open.clear()

    def _split_chunk(self, offset: int, record: Record, chunk: bytes) -> Iterator[Batch]:
        _, time, stream, attempt = record
        task, host, name = self.task, self.host, STREAMS[1 if stream else 0]
        before = self._open.pop(stream, None)
        if before is not None and before[1] != attempt:
            yield [
                LogLine(before[0], task, host, before[1], name, bytes(before[3]), before[2], False)
            ]
            before = None
        whole = chunk.rfind(b"\n") + 1
        if before is not None:
            text, offset = before[3], before[2]
            if not whole and len(text) + len(chunk) <= MAX_LINE_BYTES:
                # Append in place, because a line may consist of a million chunks.
                text += chunk
                self._open[stream] = (time, attempt, offset, text)
                return
            whole += len(text) if whole else 0
            chunk = bytes(text) + chunk
        last = chunk[whole:]
        if whole:
            yield LineBlock(
                time, task, host, attempt, name, chunk[:whole] if last else chunk, offset
            )
            offset += whole
        while len(last) > MAX_LINE_BYTES:
            yield [LogLine(time, task, host, attempt, name, last[:MAX_LINE_BYTES], offset, False)]
            last = last[MAX_LINE_BYTES:]
            offset += MAX_LINE_BYTES
        if last:
            self._open[stream] = (time, attempt, offset, bytearray(last))
