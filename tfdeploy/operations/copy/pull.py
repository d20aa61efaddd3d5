"""Fetch one folder of a host.

The host lists the folder, and rsync pulls the files into a staging folder and compares their
contents. Then the host lists the folder again. A pulled file with the size and time of this second
list is complete. Any other pulled file is compared with the host's file by its hash.

The program may write to the files meanwhile. A file that has changed is fetched again. A file that
has only grown is accepted without its new bytes. A checkpoint record (a file named `checkpoint`) is
put in place last, because it names other files. A file that the host's user may not read is skipped
and reported. No local file is deleted, and a newer local file is overwritten only on request.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tfdeploy.errors import BadAnswer, HostFailed
from tfdeploy.model.answers.files import (
    CHECKPOINT_RECORD,
    FETCH_LIST,
    FETCH_SUMS,
    FoundFile,
    FoundFiles,
    ListedFolder,
    validate_listing,
)
from tfdeploy.model.events import Emit
from tfdeploy.operations.copy.fetch_budget import FetchBudget
from tfdeploy.operations.copy.place import PlacedFiles, put_in_place
from tfdeploy.operations.copy.safe_folder import SafeFolder, refuse_unwritable
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import AgentChannel, Session, Stream
from tfdeploy.transport.rsync.transfer import pull

TRIES = 20  # a folder that changes is listed and pulled at most this many times
SUMS_PER_REQUEST = 500  # one request asks for the hashes of at most this many files
SILENCE_S = 600.0  # timeout in seconds for reading a folder or hashing one large file on the host
LIST_S = 1800.0  # a host must send its whole list of files within this many seconds
LEAST_BYTES_S = 4096  # a pull of N bytes may take SILENCE_S + N / LEAST_BYTES_S seconds
# A pull of N bytes may receive 2 * N + SLACK_BYTES bytes, because files may grow in the meantime.
SLACK_BYTES = 256 << 20

SizeAndMtime = tuple[int, int]  # (size in bytes, mtime in ns)


@dataclass(frozen=True)
class FetchSource:
    """The files to fetch from a host.

    `kind` is "keep" (files in the job's keep folders) or "files" (other files that the program
    wrote).
    """

    kind: str
    job: str
    run: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def request_args(self) -> Args:
        """Return the arguments for the verbs fetch.list and fetch.sums."""
        run = {"run": self.run} if self.run else {}
        keep = {"keep": list(self.keep)} if self.kind == "keep" else {}
        return {"what": self.kind, "job": self.job, **run, **keep}


@dataclass(frozen=True)
class HostFileList:
    """The list of files of one host.

    `root` is the path, on the host, of the folder that contains the files. `hosts_sharing_workdir`
    are the hosts of the run that use the same workdir, for example by NFS.
    """

    root: str
    files: tuple[FoundFile, ...]
    hosts_sharing_workdir: tuple[str, ...] = ()


@dataclass
class HostFetch(PlacedFiles):
    """What was fetched from one host."""

    bytes_received: int = 0
    seconds: float = 0.0

    def add(self, result: PlacedFiles) -> None:
        """Add the counts and paths of another result."""
        self.files += result.files
        self.newer_here += result.newer_here
        self.left_there += result.left_there
        self.unreadable += result.unreadable
        self.bytes_received += getattr(result, "bytes_received", 0)


def list_files(session: Session, source: FetchSource) -> HostFileList:
    """Return the host's list of the files of `source`.

    Raises AgentError (unknown_run), HostUnreachable, and BadAnswer for an invalid list.
    """
    stream = session.agent().stream(FETCH_LIST, source.request_args, silence_s=SILENCE_S)
    try:
        files = validate_listing(_receive_rows(stream))
        value = stream.value
        return (
            HostFileList(value.root, files, tuple(value.sharing)) if value else HostFileList("", ())
        )
    except ValueError as error:
        raise BadAnswer(
            f"the host's list of files is refused: {error}", where=session.host.name
        ) from error
    finally:
        stream.close()


def _receive_rows(stream: Stream[FoundFiles, ListedFolder]) -> Iterator[FoundFile]:
    """Yield the rows as they come. Raise ValueError after LIST_S seconds."""
    give_up = time.monotonic() + LIST_S
    for item, _ in stream:
        if time.monotonic() > give_up:
            raise ValueError("the list takes too long")
        yield from item.rows


def fetch_folder(
    session: Session,
    source: FetchSource,
    destination: Path,
    emit: Emit,
    budget: FetchBudget,
    *,
    overwrite: bool,
    top_folder: Path | None = None,
) -> HostFetch:
    """Fetch all files of the source to the same paths below `destination`.

    Resumes an interrupted fetch. Links below `top_folder` (default: the parent of `destination`)
    are not followed. `budget` limits the bytes. Raises HostFailed (files keep changing, too many
    bytes, the disk of this machine is full), Refused (a link in the way, no rsync), and
    HostUnreachable.
    """
    top_folder = top_folder or destination.parent
    *folders, name = destination.relative_to(top_folder).parts
    with refuse_unwritable(destination):
        top_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            SafeFolder(top_folder.resolve()) as top,
            top.open_subfolder(*folders) as above,
            above.open_subfolder(f".{name}.fetching") as staging,
            above.open_subfolder(name) as destination_folder,
        ):
            fetch = _FolderFetch(session, source, destination_folder, staging, emit, budget)
            fetch.fetch_all_files()
            placed = put_in_place(
                staging,
                destination_folder,
                set(fetch.verified_files),
                fetch.listing.files,
                fetch.changing | fetch.unreadable,
                overwrite=overwrite,
            )
            placed.unreadable = sorted(fetch.unreadable | fetch.records_beside_unreadable)
    fetched = HostFetch(bytes_received=fetch.received)
    fetched.add(placed)
    if fetch.changing:
        names = ", ".join(sorted(fetch.changing)[:5])
        raise HostFailed(
            f"files keep changing while they are fetched: {names}",
            where=session.host.name,
            next="run the same command again",
        )
    shutil.rmtree(staging.path, ignore_errors=True)
    return fetched


@dataclass
class _FolderFetch:
    """One fetch of a folder.

    `verified_files` is {path: size and mtime} for the files in `staging` that have the same content
    as on the host. `unreadable` are listed files that the host's user may not read. `received` is
    the number of received bytes.
    """

    session: Session
    source: FetchSource
    destination: SafeFolder
    staging: SafeFolder
    emit: Emit
    budget: FetchBudget
    listing: HostFileList = HostFileList("", ())
    verified_files: dict[str, SizeAndMtime] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    received: int = 0

    def fetch_all_files(self) -> None:
        """List the files and pull them. Repeat this until all listed files are received.

        After TRIES rounds, the method gives up: `changing` then has the files that kept changing.
        """
        suspects: set[str] = set()
        for _ in range(TRIES):
            self.listing, before, suspects = list_files(self.session, self.source), suspects, set()
            missing = self._missing_files()
            if missing:
                for file in missing:
                    self.verified_files.pop(file.path, None)
                self._mark_unchanged(self._pull(missing))
                self._verify_or_delete_files(
                    [
                        (file.path, stamp[0])
                        for file in missing
                        if file.path not in self.verified_files
                        and (stamp := _read_size_and_mtime(self.staging, file.path))
                    ]
                )
                suspects = self._find_unreadable_files(
                    [
                        file.path
                        for file in missing
                        if _read_size_and_mtime(self.staging, file.path) is None
                    ]
                )
            # A file that is being replaced is unreadable in one round only.
            self.unreadable = suspects & before
            self.changing = {file.path for file in self._missing_files()} - self.unreadable
            if not self.changing:
                return

    def _missing_files(self) -> list[FoundFile]:
        """Return the listed files that are not received yet."""
        return [
            file
            for file in self.listing.files
            if file.target is None and not self._is_received(file)
        ]

    def _is_received(self, file: FoundFile) -> bool:
        """Return whether this machine has the file, in `staging` or at its destination.

        A file in `staging` counts as received if its content was once equal to that on the host.
        Otherwise, a file that the program changes often would never be received. Only a file named
        `checkpoint` must still have the size and time that the host lists now.
        """
        listed = (file.size, file.mtime_ns)
        if file.path in self.verified_files:
            return not file.is_checkpoint_record or self.verified_files[file.path] == listed
        return _read_size_and_mtime(self.destination, file.path) == listed

    def _mark_unchanged(self, pulled: list[FoundFile]) -> None:
        """Mark as verified the pulled files that have not changed on the host since the pull.

        They are recognised by their size and time. rsync has compared the contents of these files,
        so they need not be hashed.
        """
        if not pulled:
            return
        listed = {
            file.path: (file.size, file.mtime_ns)
            for file in list_files(self.session, self.source).files
        }
        for file in pulled:
            stamp = _read_size_and_mtime(self.staging, file.path)
            if stamp is not None and stamp == listed.get(file.path):
                self.verified_files[file.path] = stamp

    def _verify_or_delete_files(self, paths_and_sizes: list[tuple[str, int]]) -> None:
        """Compare files in `staging` with the files of the host, by their hashes.

        `paths_and_sizes`: pairs (path, size in `staging`). The host's file may have grown, so the
        host hashes only as many bytes as `staging` has. Equal files are marked as verified, and the
        others are deleted. A checkpoint record is always deleted: rsync may have read the time of
        one record and the content of the next, which names files that are not in the list.
        """
        for start in range(0, len(paths_and_sizes), SUMS_PER_REQUEST):
            batch = dict(paths_and_sizes[start : start + SUMS_PER_REQUEST])
            host_hashes = _host_checksums(self.session.agent(), self.source, batch)
            for path in batch:
                stamp = _read_size_and_mtime(self.staging, path)
                if stamp is None:
                    continue
                is_record = posixpath.basename(path) == CHECKPOINT_RECORD
                if not is_record and host_hashes.get(path) == self.staging.sha256(path):
                    self.verified_files[path] = stamp
                else:
                    self.staging.unlink(path)

    @property
    def records_beside_unreadable(self) -> set[str]:
        """Return the checkpoint records that are not put in place, because they may name an
        unreadable file."""
        folders = {posixpath.dirname(path) for path in self.unreadable}
        return {
            path
            for path in self.verified_files
            if posixpath.basename(path) == CHECKPOINT_RECORD and posixpath.dirname(path) in folders
        }

    def _find_unreadable_files(self, paths: list[str]) -> set[str]:
        """Return those of the paths that the host lists and cannot hash."""
        hashed: dict[str, str] = {}
        for start in range(0, len(paths), SUMS_PER_REQUEST):
            batch = dict.fromkeys(paths[start : start + SUMS_PER_REQUEST], 0)
            hashed |= _host_checksums(self.session.agent(), self.source, batch)
        if unhashed := {*paths} - hashed.keys():
            unhashed &= {file.path for file in list_files(self.session, self.source).files}
        return unhashed

    def _pull(self, missing: list[FoundFile]) -> list[FoundFile]:
        """Pull the files by rsync, and return the pulled ones.

        A file that `staging` already has, with the listed size and time, is skipped.
        """
        missing = [
            file
            for file in missing
            if _read_size_and_mtime(self.staging, file.path) != (file.size, file.mtime_ns)
        ]
        if not missing:
            return []
        total = sum(file.size for file in missing)
        self.budget.check_fits(total, self.staging.path)

        def report(state: str, received: int) -> None:
            emit_transfer(
                self.emit,
                self.session.host.name,
                self.source.kind,
                state,
                min(received, total),
                total,
                end_word="fetched",
            )

        report("begin", 0)
        try:
            received = pull(
                self.session.target,
                self.listing.root,
                str(self.staging.path),
                names=[os.fsencode(file.path) for file in missing],
                on_progress=lambda received: report("moving", received),
                max_bytes=min(
                    2 * total + SLACK_BYTES, self.budget.remaining_bytes(self.staging.path)
                ),
                max_s=SILENCE_S + total / LEAST_BYTES_S,
                session=self.session,
                total_bytes=total,
            )
        except BaseException:
            report("failed", 0)
            raise
        self.received += received
        self.budget.count_received(min(received, total))
        report("done", total)
        return missing


def _host_checksums(
    agent: AgentChannel, source: FetchSource, length_by_path: dict[str, int]
) -> dict[str, str]:
    """Return {path: the host's sha256 of the file's first `length_by_path[path]` bytes}.

    Files that the host lacks, or that are shorter there, are left out.
    """
    args = {**source.request_args, "files": [[path, size] for path, size in length_by_path.items()]}
    stream = agent.stream(FETCH_SUMS, args, silence_s=SILENCE_S)
    digests: dict[str, str] = {}
    try:
        for item, _ in islice(stream, len(length_by_path)):
            path, sha256 = item.sum
            if sha256 is not None and path in length_by_path:
                digests[path] = sha256
    finally:
        stream.close()
    return digests


def _read_size_and_mtime(folder: SafeFolder, path: str) -> SizeAndMtime | None:
    """Return the size and mtime of a regular file; None if the path is anything else or missing."""
    file_stat = folder.stat(path)
    return (
        (file_stat.st_size, file_stat.st_mtime_ns)
        if file_stat is not None and stat.S_ISREG(file_stat.st_mode)
        else None
    )
