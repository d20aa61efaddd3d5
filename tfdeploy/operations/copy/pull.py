"""One folder of a host, brought here: listed, pulled beside, checked by the host's own sums, then put in place.

A training may go on writing meanwhile: what changes is fetched again, what only grows is taken as it was, and the record
that names a checkpoint is put in place last, with all that it names. Nothing here is deleted, and nothing newer overwritten.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tfdeploy.errors import BadAnswer, HostFailed, Refused
from tfdeploy.model.answers.files import FETCH_LIST, FETCH_SUMS, Listed, Rows
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.events import Emit
from tfdeploy.model.listing import FoundFile, read_rows
from tfdeploy.operations.copy.below import Below
from tfdeploy.operations.copy.place import Placed, place
from tfdeploy.operations.emit import transfer_news
from tfdeploy.transport.protocols import AgentChannel, Session, Stream
from tfdeploy.transport.rsync.transfer import pull

TRIES = 20  # looks at a folder that keeps changing
SUMS = 500  # files whose sums are asked for at once
SILENCE_S = 600.0  # a folder is read, or a large file summed
LIST_S = 1800.0  # for all of a list
SLACK_BYTES = 256 << 20  # files may grow while they come

Stamp = tuple[int, int]  # size, mtime_ns


@dataclass(frozen=True)
class Source:
    """What to bring of a host: the arguments of fetch.list and fetch.sums. `what`: keep or files."""

    what: str
    job: str
    run: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def args(self) -> Args:
        run = {"run": self.run} if self.run else {}
        keep = {"keep": list(self.keep)} if self.what == "keep" else {}
        return {"what": self.what, "job": self.job, **run, **keep}


@dataclass(frozen=True)
class Listing:
    """`root` as the host calls it; `sharing`: the hosts of the run that have this very workdir."""

    root: str
    found: tuple[FoundFile, ...]
    sharing: tuple[str, ...] = ()


@dataclass
class Brought(Placed):
    """What came of one host."""

    bytes_received: int = 0
    seconds: float = 0.0

    def add(self, other: Placed) -> None:
        self.files += other.files
        self.newer_here += other.newer_here
        self.left_there += other.left_there
        self.bytes_received += getattr(other, "bytes_received", 0)


def look(session: Session, source: Source) -> Listing:
    """Raises AgentError (unknown_run), HostUnreachable, and BadAnswer for a listing that makes no sense."""
    stream = session.agent().stream(FETCH_LIST, source.args, silence_s=SILENCE_S)
    try:
        found = read_rows(_rows(stream))
        value = stream.value
        return Listing(value.root, found, tuple(value.sharing)) if value else Listing("", ())
    except ValueError as error:
        raise BadAnswer(f"the host's list of files is refused: {error}", where=session.host.name) from error
    finally:
        stream.close()


def _rows(stream: Stream[Rows, Listed]) -> Iterator[Any]:
    """Raises ValueError where they come in drops."""
    give_up = time.monotonic() + LIST_S
    for item, _ in stream:
        if time.monotonic() > give_up:
            raise ValueError("it has no end")
        yield from item.rows


def bring(
    session: Session,
    source: Source,
    destination: Path,
    emit: Emit,
    *,
    overwrite: bool = False,
    only: Collection[str] | None = None,
    within: Path | None = None,
) -> Brought:
    """All of it (or `only` these files) in `destination`, laid out as there. Goes on where an earlier fetch was cut off.
    No link is followed below `within` (by default the folder above `destination`).

    Raises HostFailed (keeps changing, disk full here), Refused (a link in the way, no rsync), HostUnreachable.
    """
    within = within or destination.parent
    *folders, name = destination.relative_to(within).parts
    try:
        within.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            Below(within.resolve()) as top,
            top.folder(*folders) as above,
            above.folder(f".{name}.fetching") as staging,
            above.folder(name) as here,
        ):
            one = _Bringing(session, source, here, staging, emit, only)
            one.complete()
            placed = place(staging, here, set(one.checked), one.listing.found, one.changing, overwrite=overwrite)
    except OSError as error:
        raise Refused(
            f"cannot write here: {error.strerror}", where=str(error.filename or destination), next="--to DIR"
        ) from error
    brought = Brought(bytes_received=one.received)
    brought.add(placed)
    if one.changing:
        names = ", ".join(sorted(one.changing)[:5])
        raise HostFailed(f"keeps changing while it is fetched: {names}", where=session.host.name, next="the same command again")
    shutil.rmtree(staging.path, ignore_errors=True)
    return brought


@dataclass
class _Bringing:
    """`checked`: files in `staging` that are the host's by its own sums, as they lie there."""

    session: Session
    source: Source
    destination: Below
    staging: Below
    emit: Emit
    only: Collection[str] | None = None
    listing: Listing = Listing("", ())
    checked: dict[str, Stamp] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    received: int = 0

    def complete(self) -> None:
        """Looks and pulls until all that one look showed is here; what never came to rest is in `changing`."""
        for _ in range(TRIES):
            self.listing = look(self.session, self.source)
            wanted = self._wanted()
            if wanted:
                self._pull(wanted)
                self._check([(one.path, stamp[0]) for one in wanted if (stamp := _stamp(self.staging, one.path))])
            self.changing = {one.path for one in self._wanted()}
            if not self.changing:
                return

    def _wanted(self) -> list[FoundFile]:
        found = [one for one in self.listing.found if one.target is None and (self.only is None or one.path in self.only)]
        return [one for one in found if not self._is_here(one)]

    def _is_here(self, one: FoundFile) -> bool:
        """A file may have grown since that look, or be newer, and is still whole; a record names what was there just then."""
        looked = (one.size, one.mtime_ns)
        if one.path in self.checked:
            return not one.is_record or self.checked[one.path] == looked
        return _stamp(self.destination, one.path) == looked

    def _check(self, files: list[tuple[str, int]]) -> None:
        """Those whose first bytes there have the sum of all bytes here are checked; the others go."""
        for path, _ in files:
            self.checked.pop(path, None)
        for start in range(0, len(files), SUMS):
            batch = dict(files[start : start + SUMS])
            there = _sums(self.session.agent(), self.source, batch)
            for path in batch:
                stamp = _stamp(self.staging, path)
                if stamp is not None and there.get(path) == self.staging.sha256(path):
                    self.checked[path] = stamp
                elif stamp is not None:
                    self.staging.unlink(path)

    def _pull(self, wanted: list[FoundFile]) -> None:
        total = sum(one.size for one in wanted)
        free = shutil.disk_usage(self.staging.path).free
        if total > free:
            raise HostFailed(
                f"{total} bytes are to come, and {free} are free here", where=str(self.staging.path), next="--to DIR"
            )

        def say(state: str, came: int) -> None:
            transfer_news(self.emit, self.session.host.name, self.source.what, state, came, total, done="fetched")

        say("begin", 0)
        try:
            self.received += pull(
                self.session.target,
                self.listing.root,
                str(self.staging.path),
                names=[os.fsencode(one.path) for one in wanted],
                on_progress=lambda came, _: say("moving", min(came, total)),
                max_bytes=2 * total + SLACK_BYTES,
            )
        except BaseException:
            say("failed", 0)
            raise
        say("done", total)


def _sums(agent: AgentChannel, source: Source, lengths: dict[str, int]) -> dict[str, str]:
    """path -> sha256 of its first so many bytes, for those that have them."""
    args = {**source.args, "files": [[path, size] for path, size in lengths.items()]}
    stream = agent.stream(FETCH_SUMS, args, silence_s=SILENCE_S)
    found: dict[str, str] = {}
    try:
        for item, _ in islice(stream, len(lengths)):
            path, sha256 = item.sum
            if sha256 is not None and path in lengths:
                found[path] = sha256
    finally:
        stream.close()
    return found


def _stamp(folder: Below, path: str) -> Stamp | None:
    """Size and time of a plain file; None for anything else."""
    about = folder.stat(path)
    return (about.st_size, about.st_mtime_ns) if about is not None and stat.S_ISREG(about.st_mode) else None
