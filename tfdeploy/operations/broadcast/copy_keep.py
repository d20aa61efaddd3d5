"""Copy a job's keep folders (files that outlive a run, such as checkpoints) between hosts.

The files go from one host to other hosts. This is done before a run in mirrored mode, and by
`fetch --onto`. All hosts list their folders first, so that only missing files are sent. If nothing
was trained since the last copy, nothing is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.answers.files import KEEP_BEGIN, KEEP_PLACE, FoundFile
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.delivery import (
    FileBroadcast,
    FileToSend,
    make_file_listing,
    make_shared_join_args,
)
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.confine import check_below_workdir, check_requested_paths
from tfdeploy.operations.copy.pull import FetchSource, list_files
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.outcomes import combine_errors, split_outcomes, values_or_error
from tfdeploy.text.typed import is_safe_relative_path
from tfdeploy.text.units import format_count
from tfdeploy.transport.protocols import Fleet, Session

# TensorFlow's workers other than the chief write temporary copies into folders of this name. They
# are not copied.
_OF_A_WORKER = re.compile(r"(?:^|/)workertemp_\d+/")


@dataclass(frozen=True)
class KeepDifference:
    """The changes that make the keep folders of a host equal to those of the source.

    `files_to_send` are the files to send. `paths_to_set_aside` are the paths of files to rename:
    checkpoint records (TensorFlow's files named `checkpoint`) that the source does not have, and
    files that are newer than those of the source. `links`: (path, target) of the links to make.
    """

    files_to_send: tuple[FoundFile, ...]
    paths_to_set_aside: tuple[str, ...]
    links: tuple[tuple[str, str | None], ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files_to_send)


@dataclass(frozen=True)
class KeepCopyRequest:
    """A request to copy the keep folders `keep` of a job from the host `source`.

    `run` is the run that needs the folders. It is None for `fetch --onto`.
    """

    job: str
    keep: tuple[str, ...]
    source: Host
    run: str | None = None


def copy_keep(fleet: Fleet, copy: KeepCopyRequest, hosts: tuple[Host, ...], emit: Emit) -> None:
    """Copy the job's keep folders from the source to each of `hosts`.

    Raises one error for the hosts that failed.
    """
    source = copy.source
    others = tuple(host for host in hosts if host.name != source.name)
    wanted = FetchSource("keep", copy.job, keep=copy.keep)
    listings = values_or_error(
        "looking at keep",
        fleet.each((source, *others), lambda session: list_files(session, wanted).files),
    )
    files = listings[source.name]
    differences = {host.name: find_keep_difference(files, listings[host.name]) for host in others}
    unchanged = KeepDifference((), ())
    needing = tuple(host for host in others if differences[host.name] != unchanged)
    if not needing:
        emit_note(emit, f"`keep` of {source.name} is on all hosts already", run=copy.run)
        return
    sessions = values_or_error(
        "keep",
        fleet.each(
            (source, *needing), lambda session: _begin_keep_copy(session, copy, differences)
        ),
    )
    if failed := _broadcast_missing_files(copy, sessions, differences, emit):
        raise combine_errors("keep", failed, len(needing))
    values_or_error(
        "keep",
        fleet.each(
            needing,
            lambda session: _place_keep(session, differences[session.host.name], copy, emit),
        ),
    )


def find_keep_difference(
    source: tuple[FoundFile, ...], existing: tuple[FoundFile, ...]
) -> KeepDifference:
    """Return what must change so that a host with the files `existing` has the files `source`.

    Files are compared by path, size and mtime in whole seconds. A link is not copied if its target
    is outside the folder of the link.
    """
    ours = [file for file in source if file.target is None and not _OF_A_WORKER.search(file.path)]
    theirs = {file.path: _size_and_mtime_s(file) for file in existing if file.target is None}
    times = {file.path: file.mtime_ns for file in ours}
    aside = tuple(
        file.path
        for file in existing
        if file.target is None
        and (
            file.mtime_ns - times[file.path] >= 10**9
            if file.path in times
            else file.is_checkpoint_record
        )
    )
    links = {file[::3] for file in source if is_safe_relative_path(file.target or "")}
    return KeepDifference(
        tuple(file for file in ours if theirs.get(file.path) != _size_and_mtime_s(file)),
        aside,
        tuple(links - {file[::3] for file in existing}),
    )


def _size_and_mtime_s(file: FoundFile) -> tuple[int, int]:
    return file.size, file.mtime_ns // 10**9


def _begin_keep_copy(
    session: Session, copy: KeepCopyRequest, difference_by_host: Mapping[str, KeepDifference]
) -> Session:
    """Let the host make a folder for the files that it lacks, and return the session."""
    difference = difference_by_host.get(session.host.name)
    if difference is not None:
        args = {"job": copy.job, "bytes": difference.total_bytes}
        check_below_workdir(session, session.agent().call(KEEP_BEGIN, args).folder)
    return session


def _broadcast_missing_files(
    copy: KeepCopyRequest,
    session_by_host: Mapping[str, Session],
    difference_by_host: Mapping[str, KeepDifference],
    emit: Emit,
) -> dict[str, TfdeployError]:
    """Send the missing files, and return the errors by host. Raises SourceChanged."""
    files = {
        file
        for difference in difference_by_host.values()
        for file in difference.files_to_send
        if file.size
    }
    lacking = sorted(map(_to_file_to_send, files))
    if not lacking:
        return {}
    join = make_shared_join_args({"job": copy.job, "keep": list(copy.keep)}, lacking)
    file_broadcast = FileBroadcast(
        make_file_listing(lacking),
        range(len(lacking)),
        "keep",
        emit,
        join,
        source_host=copy.source.name,
    )
    lacks = {
        name: each.total_bytes for name, each in difference_by_host.items() if each.total_bytes
    }
    members = {
        name: MemberSession(session_by_host[name], lacks.get(name, 0), file_broadcast.total_bytes)
        for name in (copy.source.name, *lacks)
    }
    return split_outcomes(file_broadcast.run_with_events(members))[1]


def _place_keep(
    session: Session, difference: KeepDifference, copy: KeepCopyRequest, emit: Emit
) -> None:
    """Let the host put the received files in place, and emit a note that says what was copied."""
    agent, host = session.agent(), session.host.name
    files = [list(_to_file_to_send(file)) for file in difference.files_to_send]
    args = {
        "job": copy.job,
        "keep": list(copy.keep),
        "files": files,
        "aside": list(difference.paths_to_set_aside),
        "links": list(difference.links),
    }
    missing = agent.call(KEEP_PLACE, args, timeout_s=600).missing
    if missing := check_requested_paths(
        {file.path for file in difference.files_to_send}, missing, host
    ):
        raise HostFailed(
            f"{missing[0]} of `keep` is incomplete after the copy",
            where=host,
            next="run the same command again",
        )
    count = format_count(len(files) + len(difference.links), "file")
    text = f"`keep` of {copy.source.name} was copied to {host}: {count}"
    text += "".join(
        f"; {path} was renamed, because {copy.source.name} has no such file or an older one"
        for path in difference.paths_to_set_aside
    )
    emit_note(emit, text, run=copy.run, host=host)


def _to_file_to_send(file: FoundFile) -> FileToSend:
    return file.path, file.size, file.mtime_ns
