"""Copies the chief's keep to the other hosts of the gang before it starts again, from minder to minder, over the mesh.

Asked on one connection: {"ask": {"keep": round}}; the answer is a line with [path, size, mtime_ns] of every file; then a line
with the numbers of the missing ones; then the bytes of each and their sha256. Nothing is put in place before all have come
with the right sums. Without this, the tasks of a gang would restore different steps, each from its own disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import threading
import time
from contextlib import contextmanager

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import Any, Iterator, List, Tuple
from tfdeploy.agent.mesh import bounded_json, tls
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.run import keep_receive
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.keep_folders import RECORD, keep_rows

AGAIN_S = 1.0
PATIENCE_S = 120.0  # while the other side lists its keep
LISTING_S = 600.0  # for the whole of it
MOST_LINE_BYTES = 64 << 20  # of a listing: several hundred thousand files
_MOST_VALUES = 1 << 22
_BLOCK_BYTES = 1 << 18
_OF_A_WORKER = re.compile(r"(?:^|/)workertemp_\d+/")  # where TensorFlow lets workers other than the chief write; never read
_SUM_BYTES = hashlib.sha256().digest_size
File = Tuple[str, int, int]  # path, size, mtime_ns


class KeepOffer:
    """Answers other minders that ask for this host's keep."""

    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._paths, self._part = paths, part

    def answer(self, question: Any, channel: ssl.SSLSocket) -> None:
        """Raises OSError, ValueError; then the connection ends, and the other side asks again."""
        if not isinstance(question, dict) or "keep" not in question:
            raise ValueError("an unknown question")
        root = layout.keep_dir(self._paths.workdir, self._paths.job, "")
        files = _files(self._paths, self._part)
        channel.settimeout(PATIENCE_S)
        channel.sendall(json.dumps({"files": files}).encode("ascii") + b"\n")
        for path, size, _ in _chosen(_read(channel), files):
            _send(channel, os.path.join(root, path), size)


class KeepFetch:
    """Fetches the keep of the chief's host, in the background."""

    def __init__(self, paths: RunPaths, part: wire.HostPart, mesh: Mesh) -> None:
        self._paths, self._part, self._mesh = paths, part, mesh
        self._lock = threading.Lock()
        self._wanted = self._arrived = 1
        self._fetching = False
        self.error = ""  # why the last try failed

    def has_arrived(self, number: int) -> bool:
        """Whether it lies here for that round. The first call for a round begins to fetch it."""
        with self._lock:
            self._wanted = max(self._wanted, number)
            if self._arrived < number and not self._fetching:
                threading.Thread(target=self._fetch, daemon=True).start()  # it waits for the lock
                self._fetching = True
            return self._arrived >= number

    def give_up(self) -> None:
        """From now on nothing is put in place: the run is over here, and another run may write there."""
        with self._lock:
            self._wanted = 0

    def _fetch(self) -> None:
        while True:
            with self._lock:
                number = self._wanted
                self._fetching = self._arrived < number
                if not self._fetching:
                    return
            try:
                self._fetch_round(number)
            except Exception as error:  # noqa: BLE001 - tried again, whatever the error: the gang waits
                self.error = str(error)
                time.sleep(AGAIN_S)
                continue
            with self._lock:
                self._arrived, self.error = number, ""
            self._mesh.notify()

    @contextmanager
    def _while_wanted(self, number: int) -> Iterator[None]:
        """That round is wanted, and `give_up` waits meanwhile. Raises ValueError where it is not wanted any more."""
        with self._lock:
            if self._wanted != number:
                raise ValueError("not wanted any more")
            yield

    def _fetch_round(self, number: int) -> None:
        paths, source = self._paths, self._part.supply_from
        address = next(one for one in self._part.mesh if one.host == source)
        with self._mesh.call(address) as channel:
            self._mesh.ask(channel, {"keep": number})
            channel.settimeout(PATIENCE_S)
            files = _checked(_read(channel), self._part.keep)
            have = {path: (size, at) for path, size, at in _files(paths, self._part)}
            lacking = [n for n, (path, size, at) in enumerate(files) if have.get(path) != (size, at)]
            names = {path for path, _, _ in files}
            aside = [path for path in have if os.path.basename(path) == RECORD and path not in names]
            chosen = [files[n] for n in lacking]
            with self._while_wanted(number):
                folder = keep_receive.make_room(paths.workdir, paths.job, sum(size for _, size, _ in chosen))
            channel.sendall(json.dumps({"send": lacking}).encode("ascii") + b"\n")
            for each in chosen:
                with self._while_wanted(number):
                    pass
                _receive(channel, folder, each)
        with self._while_wanted(number):
            missing = keep_receive.put_in_place(paths.workdir, paths.job, chosen, aside)
        if missing:
            raise ValueError("%s did not come whole" % missing[0])


def _read(channel: ssl.SSLSocket) -> Any:
    return bounded_json.parse(tls.read_line(channel, MOST_LINE_BYTES, LISTING_S), _MOST_VALUES)


def _files(paths: RunPaths, part: wire.HostPart) -> List[File]:
    rows = keep_rows(paths.workdir, paths.job, part.keep)
    return [(path, size, at) for path, size, at, link in rows if link is None and not _OF_A_WORKER.search(path)]


def _chosen(value: Any, files: List[File]) -> List[File]:
    numbers = value.get("send") if isinstance(value, dict) else None
    if not isinstance(numbers, list) or len(numbers) > len(files):
        raise ValueError("not a choice of files")
    which = bounded_json.integer(0, len(files) - 1)
    return [files[which(each)] for each in numbers]


def _checked(value: Any, keep: List[str]) -> List[File]:
    files: List[File] = []
    rows = value.get("files") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise ValueError("not a list of files")
    for path, size, at in rows:
        files.append((keep_receive.inside(path, keep), _count(size), _count(at)))
    return files


_count = bounded_json.integer(0, (1 << 63) - 1)


def _receive(channel: ssl.SSLSocket, folder: str, file: File) -> None:
    """One file into `folder`. Raises ValueError when its sum is another."""
    path, size, at = file
    whole = os.path.join(folder, path)
    os.makedirs(os.path.dirname(whole), mode=0o700, exist_ok=True)
    digest = hashlib.sha256()
    with open(whole, "wb") as stream:
        for block in _received(channel, size):
            stream.write(block)
            digest.update(block)
    if digest.digest() != b"".join(_received(channel, _SUM_BYTES)):
        raise ValueError("%s came with another content" % path)
    os.utime(whole, ns=(at, at))


def _received(channel: ssl.SSLSocket, left: int) -> Iterator[bytes]:
    while left > 0:
        block = channel.recv(min(left, _BLOCK_BYTES))
        if not block:
            raise ValueError("the connection ended too early")
        left -= len(block)
        yield block


def _send(channel: ssl.SSLSocket, path: str, left: int) -> None:
    """So many bytes of it, and their sum. Raises ValueError where there are fewer by now."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while left > 0:
            block = stream.read(min(left, _BLOCK_BYTES))
            if not block:
                raise ValueError("%s is shorter by now" % path)
            channel.sendall(block)
            digest.update(block)
            left -= len(block)
    channel.sendall(digest.digest())
