"""Some files by name, to hosts that lack them: of a release or of `keep`, by one broadcast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tfdeploy.agent.listing import FILE, NOT_LINKED, Listing, Row
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.broadcast import Broadcast
from tfdeploy.operations.broadcast.data_sets import DataSent, Outcome
from tfdeploy.operations.broadcast.source import Source
from tfdeploy.operations.broadcast.taker import Taker
from tfdeploy.operations.emit import emit_transfer
from tfdeploy.transport.protocols import Session

NamedFile = tuple[str, int, int]  # path, bytes, mtime_ns


def listing_of(files: Iterable[NamedFile]) -> Listing:
    """One row for each, in the same order."""
    listing = Listing()
    for path, size, mtime_ns in files:
        listing.add(Row(os.fsencode(path), FILE, size, mtime_ns, 0o600, b"", NOT_LINKED, size))
    return listing


@dataclass(frozen=True)
class NamedFiles:
    """`files`: what moves; `what`: their name in progress; `join`: arguments of broadcast.join for every host."""

    files: tuple[NamedFile, ...]
    what: str
    join: Args
    emit: Emit

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size, _ in self.files)

    def send(
        self,
        id_: str,
        source: Source,
        takers: Mapping[str, Taker],
        place: Callable[[Session], None] = lambda session: None,
    ) -> dict[str, Outcome]:
        """Every host's outcome. `takers`: by host name; one that lacks nothing feeds the others. `place`: called for each host
        that has all files.

        Raises SourceChanged.
        """
        args = {**self.join, "files": [list(each) for each in self.files]}
        self._tell(takers, "begin")
        try:
            broadcast = Broadcast(
                source, takers, self.emit, self._moving, self.what, place=lambda taker: place(taker.session), id=id_
            )
            failed = broadcast.run(lambda taker: {**args, **taker.own_args})
        finally:
            self._tell({name: taker for name, taker in takers.items() if not taker.complete}, "failed")
        self._tell({name: taker for name, taker in takers.items() if taker.complete}, "done")
        return {
            name: failed.get(name) or DataSent(taker.received_bytes, [self.what], broadcast.fed_by(name))
            for name, taker in takers.items()
        }

    def _moving(self, host: str, received: int, lacking: int) -> None:
        if lacking:
            emit_transfer(self.emit, host, self.what, "moving", min(received, lacking), lacking)

    def _tell(self, takers: Mapping[str, Taker], state: str) -> None:
        for name, taker in takers.items():
            if taker.lacking_bytes:
                sent = taker.lacking_bytes if state == "done" else 0
                emit_transfer(self.emit, name, self.what, state, sent, taker.lacking_bytes)
