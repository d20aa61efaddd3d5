"""Send the code by a broadcast to all hosts that lack the same files, if the files are large.

Small code is not broadcast: this machine sends it in less time than hosts need to find each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.delivery import (
    FileBroadcast,
    Outcome,
    make_file_listing,
    make_shared_join_args,
)
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.broadcast.source import SourceChanged
from tfdeploy.operations.copy.code_files import (
    LEAST_BROADCAST_BYTES,
    CodeChanged,
    CodeFiles,
    ReadyHost,
)
from tfdeploy.transport.protocols import Session

PlaceFiles = Callable[[Session], None]


def send_release_files(
    job: str,
    release: str,
    code: CodeFiles,
    ready_hosts: Mapping[str, ReadyHost],
    emit: Emit,
    put_in_place: PlaceFiles,
) -> dict[str, Outcome]:
    """Send the missing files, and return the outcomes by host.

    `put_in_place` is called for each host as soon as the host has all of its files.

    Nothing is sent to a host if its missing files are small, or if no other host lacks the same
    files. The returned outcomes do not include such a host.
    """
    groups: dict[tuple[str, ...], dict[str, ReadyHost]] = {}
    for name, each in ready_hosts.items():
        groups.setdefault(tuple(sorted(each.missing_paths)), {})[name] = each
    outcomes: dict[str, Outcome] = {}
    for wanted, group in groups.items():
        if len(group) > 1 and code.size_bytes(wanted) >= LEAST_BROADCAST_BYTES:
            files = tuple((path, code.size_bytes([path]), code.mtime_ns(path)) for path in wanted)
            file_broadcast = FileBroadcast(
                make_file_listing(files),
                range(len(files)),
                "code",
                emit,
                make_shared_join_args({"job": job, "release": release}, files),
                root=code.root,
                put_in_place=lambda member: put_in_place(member.session),
            )
            outcomes.update(_send_to_group(file_broadcast, group, code.root))
    return outcomes


def _send_to_group(
    file_broadcast: FileBroadcast, group: Mapping[str, ReadyHost], root: str
) -> dict[str, Outcome]:
    total = file_broadcast.total_bytes
    members = {
        name: MemberSession(each.session, total, total, join_args={"staging": each.staging})
        for name, each in group.items()
    }
    try:
        outcomes = file_broadcast.run_with_events(members)
    except SourceChanged as error:
        outcomes = dict.fromkeys(group, error)
    for name, outcome in outcomes.items():
        if isinstance(outcome, SourceChanged):
            outcomes[name] = CodeChanged(outcome.what, where=root, next=outcome.next)
    return outcomes
