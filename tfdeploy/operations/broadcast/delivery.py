"""Run one broadcast of some files of a listing, and collect every host's outcome.

Data sets, wheels, code and keep folders are sent in this way. They differ in how a host is asked
what it lacks, in the arguments of the verb broadcast.join, and in the verb that puts the files in
place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfdeploy.agent.listing import FILE, NOT_LINKED, Listing, Row
from tfdeploy.errors import TfdeployError
from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.broadcast import Broadcast, Progress
from tfdeploy.operations.broadcast.held_source import HostBroadcastSource
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.broadcast.source import BroadcastSource
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import Session

FileToSend = tuple[str, int, int]  # (path, size in bytes, mtime in ns)


@dataclass
class ReceivedFiles:
    """The data that one host has received.

    `sent_names` says what was sent, such as "code" or "data digits". `source` is the host that sent
    the last bytes. It is "" if this machine sent them, and None if nothing was sent.
    """

    received_bytes: int = 0
    sent_names: list[str] = field(default_factory=list)
    source: str | None = None


Outcome = ReceivedFiles | TfdeployError


def merge_outcomes(results: dict[str, Outcome], outcomes: Mapping[str, Outcome]) -> None:
    """Merge `outcomes` into `results`, by host. The first error of a host is kept."""
    for host, outcome in outcomes.items():
        before = results.get(host, ReceivedFiles())
        if isinstance(before, ReceivedFiles):
            results[host] = (
                _combine_received(before, outcome)
                if isinstance(outcome, ReceivedFiles)
                else outcome
            )


def _combine_received(earlier: ReceivedFiles, later: ReceivedFiles) -> ReceivedFiles:
    sets = list(dict.fromkeys([*earlier.sent_names, *later.sent_names]))
    source = earlier.source if later.source is None else later.source
    return ReceivedFiles(earlier.received_bytes + later.received_bytes, sets, source)


@dataclass(frozen=True)
class FileBroadcast:
    """A broadcast of some files of `listing`: those with the row numbers `rows`.

    The files are below `root` on this machine, or on the host `source_host`. `event_name` names the
    broadcast in events. `join_args_for` returns a host's arguments of the verb broadcast.join.
    `put_in_place` makes a host put its files in place. For `check_source` and `reconnect`, see the
    class Broadcast.
    """

    listing: Listing
    rows: Sequence[int]
    event_name: str
    emit: Emit
    join_args_for: Callable[[MemberSession], Args]
    root: str = ""
    source_host: str | None = None
    put_in_place: Callable[[MemberSession], None] = lambda member: None
    check_source: Callable[[], None] = lambda: None
    reconnect: Callable[[MemberSession], Session] | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def total_bytes(self) -> int:
        return sum(self.listing.sizes[row] for row in self.rows)

    def run(
        self, members: Mapping[str, MemberSession], progress: Progress, *, event_name: str
    ) -> tuple[Broadcast, dict[str, Outcome]]:
        """Run the broadcast, and return every host's outcome.

        `event_name` is the name of the broadcast in events, or "" for no events. Raises
        SourceChanged.
        """
        if self.source_host is None:
            source = BroadcastSource(self.root, self.listing, self.rows)
        else:
            source = HostBroadcastSource(
                members[self.source_host].session, self.id, self.listing, self.rows
            )
        broadcast = Broadcast(
            source,
            members,
            self.emit,
            progress,
            event_name,
            self.check_source,
            self.put_in_place,
            self.reconnect,
            self.id,
        )
        failed = broadcast.run(
            lambda member: {**self.join_args_for(member), **member.host_join_args}
        )
        outcomes: dict[str, Outcome] = {
            name: failed.get(name)
            or ReceivedFiles(
                member.received_bytes, [self.event_name], broadcast.last_sender_to(name)
            )
            for name, member in members.items()
        }
        return broadcast, outcomes

    def run_with_events(self, members: Mapping[str, MemberSession]) -> dict[str, Outcome]:
        """Run the broadcast, emit its progress as events, and return every host's outcome."""
        self._emit_transfers(members.values(), "begin")
        try:
            _, outcomes = self.run(members, self._emit_progress, event_name=self.event_name)
        finally:
            self._emit_transfers(
                (member for member in members.values() if not member.is_complete), "failed"
            )
        self._emit_transfers((member for member in members.values() if member.is_complete), "done")
        return outcomes

    def _emit_progress(self, host: str, received: int, lacking_bytes: int) -> None:
        if lacking_bytes:
            emit_transfer(
                self.emit,
                host,
                self.event_name,
                "moving",
                min(received, lacking_bytes),
                lacking_bytes,
            )

    def _emit_transfers(self, members: Iterable[MemberSession], state: str) -> None:
        for member in members:
            if lacking := member.lacking_bytes:
                arrived = lacking if state == "done" else 0
                emit_transfer(self.emit, member.name, self.event_name, state, arrived, lacking)


def make_shared_join_args(
    args: Args, files: Iterable[FileToSend]
) -> Callable[[MemberSession], Args]:
    """Return a `join_args_for` function for FileBroadcast that gives all hosts the same `args` and
    `files`."""
    join_args = {**args, "files": [list(each) for each in files]}
    return lambda member: join_args


def make_file_listing(files: Iterable[FileToSend]) -> Listing:
    """Return a listing with one row for each file, in the same order."""
    listing = Listing()
    for path, size, mtime_ns in files:
        listing.add(Row(os.fsencode(path), FILE, size, mtime_ns, 0o600, b"", NOT_LINKED, size))
    return listing
