"""Copy the chief's `keep` folders to the other hosts of a gang before the gang restarts. A gang is
a group of tasks that must restart together. The minders (the processes that watch a run on each
host) copy the folders over their mesh. Without the copy, each task would restore the checkpoint on
the disk of its own host, and these checkpoints may be of different steps.

A connection begins with the question {"ask": {"keep": round}}. The answer is one line with [path,
size, mtime_ns] of every file and [path, target] of every link. The asking host replies with one
line that lists the files that it lacks. Then the other host sends the pieces of these files, each
preceded by its hash (see agent/pieces.py). The asking host moves the files to their final place
only after all of them have arrived.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from contextlib import contextmanager

from tfdeploy.agent import json_text, layout, pieces, wire
from tfdeploy.agent.annotations import Any, Iterator, List, Tuple
from tfdeploy.agent.broadcast.messages import receive_into
from tfdeploy.agent.broadcast.offered_files import OfferedFiles
from tfdeploy.agent.broadcast.piece_files import BroadcastFile, PieceFiles
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.mesh import bounded_json, tls
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.pieces import Piece, Pieces
from tfdeploy.agent.run import keep_receive
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.keep_folders import RECORD, list_keep_rows

RETRY_S = 1.0  # the pause before a retry
# The time limit for each operation on the connection. An operation may have to wait until the other
# host has listed its files.
OPERATION_TIMEOUT_S = 120.0
LISTING_TIMEOUT_S = 600.0  # limits the time to receive a whole listing
# The greatest length of a listing. Several hundred thousand files fit into a listing of this
# length.
MOST_LINE_BYTES = 64 << 20
_MOST_VALUES = 1 << 22  # limits the number of JSON values in a listing
# Matches the paths of files in temporary folders, into which TensorFlow lets workers other than the
# chief save. TensorFlow never reads these files, so they are not copied.
_OF_A_WORKER = re.compile(r"(?:^|/)workertemp_\d+/")
File = Tuple[str, int, int]  # path, size, mtime_ns
Link = Tuple[str, str]  # path, target


def send_keep_folders(
    paths: RunPaths, part: wire.HostPart, question: Any, channel: ssl.SSLSocket
) -> None:
    """Send the `keep` folders of this host to the minder of another host, which has asked for them.
    If this raises OSError or ValueError, the connection ends, and the other host tries again."""
    if not isinstance(question, dict) or "keep" not in question:
        raise ValueError("an unknown question")
    root = layout.keep_dir(paths.workdir, paths.job, "")
    files, links = _list_files(paths, part)
    channel.settimeout(OPERATION_TIMEOUT_S)
    channel.sendall(json_text.encode({"files": files, "links": links}) + b"\n")
    _send_files(channel, root, _choose_files(_read_message(channel), files))


class KeepFetch:
    """Fetches the `keep` folders of the chief's host on a background thread."""

    def __init__(self, paths: RunPaths, part: wire.HostPart, mesh: Mesh) -> None:
        self._paths, self._part, self._mesh = paths, part, mesh
        self._lock = threading.Lock()
        self._wanted = self._arrived = 1
        self._fetching = False
        self.error = ""  # why the last try failed

    def has_arrived_else_fetch(self, round_number: int) -> bool:
        """Return True if the chief's `keep` folders for round `round_number` have arrived.
        Otherwise start to fetch them on another thread, unless that thread already runs. A round is
        one common start of the tasks that restart together."""
        with self._lock:
            self._wanted = max(self._wanted, round_number)
            if self._arrived < round_number and not self._fetching:
                # `_fetching` is set after the thread is started, because the start may fail. The
                # new thread first waits for the lock, so it cannot reset `_fetching` before it is
                # set here.
                start_thread(self._fetch)
                self._fetching = True
            return self._arrived >= round_number

    def give_up(self) -> None:
        """Stop changing the `keep` folders: received files are no longer moved there. The run is
        over on this host, and another run may now use these folders."""
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
                self._fetch_keep_for_round(number)
            except Exception as error:  # noqa: BLE001 - retry after any error: tasks wait
                self.error = str(error)
                time.sleep(RETRY_S)
                continue
            with self._lock:
                self._arrived, self.error = number, ""
            self._mesh.changed()

    @contextmanager
    def _locked_while_wanted(self, round_number: int) -> Iterator[None]:
        """Hold the lock during the `with` block, so that `give_up` waits until the block has ended.
        Raises ValueError if the files of round `round_number` are no longer needed, because the run
        is over or a later round (common start of the tasks) is wanted."""
        with self._lock:
            if self._wanted != round_number:
                raise ValueError("the files are no longer needed")
            yield

    def _fetch_keep_for_round(self, round_number: int) -> None:
        paths, source = self._paths, self._part.supply_from
        address = next(each for each in self._part.mesh if each.host == source)
        with self._mesh.connect(address) as channel:
            self._mesh.send_question(channel, {"keep": round_number})
            channel.settimeout(OPERATION_TIMEOUT_S)
            files, links = _check_files(_read_message(channel), self._part.keep)
            present = set(_list_files(paths, self._part)[0])
            lacking = [index for index, file in enumerate(files) if file not in present]
            outdated = {path for path, _, _ in present} - {path for path, _, _ in files}
            aside = [path for path in sorted(outdated) if os.path.basename(path) == RECORD]
            chosen = [files[index] for index in lacking]
            with self._locked_while_wanted(round_number):
                folder = keep_receive.make_incoming_folder(
                    paths.workdir, paths.job, sum(size for _, size, _ in chosen)
                )
            channel.sendall(json_text.encode({"send": lacking}) + b"\n")
            for piece, content, target in _receive_pieces(channel, folder, chosen):
                with self._locked_while_wanted(round_number):
                    target.write(piece, content)
        with self._locked_while_wanted(round_number):
            missing = keep_receive.move_received_into_keep(
                paths.workdir, paths.job, chosen, aside, links
            )
        if missing:
            raise ValueError("%s is not complete" % missing[0])


def _read_message(channel: ssl.SSLSocket) -> Any:
    return bounded_json.parse(
        tls.read_line(channel, MOST_LINE_BYTES, LISTING_TIMEOUT_S), _MOST_VALUES
    )


def _list_files(paths: RunPaths, part: wire.HostPart) -> Tuple[List[File], List[Link]]:
    """Return the files and links of this host's `keep` folders. A file that the run's user cannot
    read is left out: the chief cannot read it either."""
    root = layout.keep_dir(paths.workdir, paths.job, "")
    rows = list_keep_rows(paths.workdir, paths.job, part.keep)
    files = [
        (path, size, at)
        for path, size, at, link in rows
        if link is None and not _OF_A_WORKER.search(path) and os.access(root + path, os.R_OK)
    ]
    return files, [(path, target) for path, _, _, target in rows if target]


def _choose_files(value: Any, files: List[File]) -> List[File]:
    numbers = bounded_json.pick_checked_fields(value, {"send": bounded_json.check_list}, ("send",))[
        "send"
    ]
    if len(numbers) > len(files):
        raise ValueError("the other host requests more files than were listed for it")
    check_number = bounded_json.integer_check(0, len(files) - 1)
    return [files[check_number(number)] for number in numbers]


def _check_files(value: Any, keep: List[str]) -> Tuple[List[File], List[Link]]:
    checks = {"files": bounded_json.check_list, "links": bounded_json.check_list}
    fields = bounded_json.pick_checked_fields(value, checks, ("files",))
    check_row = bounded_json.fixed_list_check(
        lambda path: keep_receive.check_inside_keep(path, keep), _count, _count
    )
    links = fields.get("links", ())
    return list(map(check_row, fields["files"])), [
        (keep_receive.check_inside_keep(path, keep), str(target)) for path, target in links
    ]


_count = bounded_json.integer_check(0, (1 << 63) - 1)


def _receive_pieces(
    channel: ssl.SSLSocket, folder: str, files: List[File]
) -> Iterator[Tuple[Piece, memoryview, PieceFiles]]:
    """Yield (piece, content, the object that writes the piece to files below `folder`). Raises
    ValueError if the content does not match its hash, and EOFError if the connection ends first."""
    moved = [BroadcastFile(os.fsencode(path), size, at) for path, size, at in files]
    target = PieceFiles(moved, folder, folder)
    leaf, buffer = (
        memoryview(bytearray(pieces.LEAF_BYTES)),
        memoryview(bytearray(pieces.PIECE_BYTES)),
    )
    try:
        for piece in Pieces([size for _, size, _ in files]):
            content = buffer[: pieces.piece_bytes(piece)]
            receive_into(channel, leaf)
            receive_into(channel, content)
            if pieces.hash_piece(content) != leaf:
                raise ValueError("%s arrived with wrong content" % files[piece[0][0]][0])
            yield piece, content, target
    finally:
        target.close()


def _send_files(channel: ssl.SSLSocket, root: str, files: List[File]) -> None:
    """Send the content of the files in pieces. Raises OSError if a file has become shorter."""
    source = OfferedFiles([os.fsencode(path) for path, _, _ in files], root)
    for piece in Pieces([size for _, size, _ in files]):
        content = source.read(piece)
        channel.sendall(pieces.hash_piece(content) + content)
