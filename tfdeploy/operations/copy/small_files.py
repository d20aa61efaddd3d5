"""Small files of a host come through the session, in frames that are checked here: no rsync meets the host for them.

The host sends what it was asked for, in as many bytes as it had listed, or the file is left out and listed again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tfdeploy.errors import BadAnswer, HostFailed
from tfdeploy.model.answers.files import FETCH_READ, FileRead
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.listing import FoundFile
from tfdeploy.operations.copy.safe_folder import SafeFolder
from tfdeploy.transport.protocols import Session

SMALL_BYTES = 4 << 20  # a file that is larger comes by rsync
ROUND_BYTES, ROUND_FILES = 32 << 20, 500  # of one request
SILENCE_S = 600.0
LEAST_BYTES_S = 4096  # as of logs, beyond SILENCE_S for each round


def read_small(
    session: Session, args: Args, staging: SafeFolder, wanted: Sequence[FoundFile], on_bytes: Callable[[int], None]
) -> None:
    """Writes them to `staging`, under the same paths. `on_bytes`: how many more have come.

    Raises BadAnswer, AgentError, HostUnreachable, HostFailed (too slow), Refused and OSError (no place for them here).
    """
    for batch in _rounds(wanted):
        asked = {one.path: one.size for one in batch}
        give_up = time.monotonic() + SILENCE_S + sum(asked.values()) / LEAST_BYTES_S
        stream = session.agent().stream(
            FETCH_READ, {**args, "files": [list(each) for each in asked.items()]}, silence_s=SILENCE_S
        )
        try:
            for item, blob in islice(stream, len(batch)):
                if time.monotonic() > give_up:
                    raise HostFailed("it sends its files too slowly", where=session.host.name, next="the same command goes on")
                if _is_whole(item, blob, asked, session.host.name):
                    _write(staging, item, blob)
                    on_bytes(len(blob))
        finally:
            stream.close()


def _rounds(wanted: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
    batch: list[FoundFile] = []
    size = 0
    for one in wanted:
        if batch and (size + one.size > ROUND_BYTES or len(batch) == ROUND_FILES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _is_whole(item: FileRead, blob: bytes, asked: dict[str, int], host: str) -> bool:
    """False: the file has gone, or became shorter. Each is taken once. Raises BadAnswer."""
    path, mtime_ns, _ = item.file
    size = asked.pop(path, None)
    if size is None:
        raise BadAnswer(f"its answer to fetch.read makes no sense: {path!r:.200} was not asked for", where=host)
    if len(blob) != (0 if mtime_ns is None else size):
        raise BadAnswer(f"its answer to fetch.read makes no sense: {len(blob)} bytes of {path!r:.200}", where=host)
    return mtime_ns is not None


def _write(staging: SafeFolder, item: FileRead, blob: bytes) -> None:
    """As rsync would: the host's time, readable and writable by its user alone."""
    path, mtime_ns, mode = item.file
    if staging.stat(path) is not None:
        staging.unlink(path)
    descriptor = staging.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file:
        file.write(blob)
        file.flush()
        os.fchmod(descriptor, 0o700 if mode & 0o100 else 0o600)
        os.utime(descriptor, ns=(mtime_ns or 0, mtime_ns or 0))
