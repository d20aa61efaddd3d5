"""One data set: what each host is to have of it, whether it has that, and from where what hosts
lack would come."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.model.answers.files import DATA_STATE
from tfdeploy.model.answers.verb import Args
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.bitmaps import NamedRows, RowSet
from tfdeploy.operations.broadcast.origin import has_changed_there, look_at
from tfdeploy.operations.broadcast.split import Split
from tfdeploy.operations.broadcast.wanted import Wanted, whole
from tfdeploy.planning.broadcast.streams import Stream, streams
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing
from tfdeploy.tree.datasets import has_changed, read_again

# from so many on, a host that has all of the data feeds the others, and not this machine
LENT_BYTES = 64 << 20
LOOK_S = 600.0


@dataclass(frozen=True)
class DataSet:
    """`listing`: of all of it. `origin`: the host that it comes from; None: this machine. `split`:
    who gets which files."""

    listing: DataListing
    origin: Host | None = None
    split: Split | None = None

    def wanted(self, host: str) -> Wanted | None:
        """What a host is to have; None: nothing of it."""
        return whole(self.listing) if self.split is None else self.split.wanted.get(host)

    def read_again(self, fleet: Fleet) -> DataListing:
        return (
            read_again(self.listing)
            if self.origin is None
            else look_at(fleet, self.origin, self.listing.source)
        )

    def has_changed(self, fleet: Fleet) -> bool:
        """Since it was listed."""
        return (
            has_changed(self.listing)
            if self.origin is None
            else has_changed_there(fleet, self.origin, self.listing)
        )

    def streams(
        self,
        lacks: Mapping[str, NamedRows],
        wanting: Mapping[str, Sequence[int]],
        complete: Iterable[Host],
    ) -> list[Stream]:
        """`lacks`, `wanting`: rows of the whole data set, of hosts that lack some; `complete`:
        hosts that have what they are to have."""
        sizes, origin = self.listing.rows.sizes, self.origin.name if self.origin else None
        lacking = {name: each.rows for name, each in lacks.items() if each.rows}
        if self.split is not None:
            # what the origin has is right by itself
            held = {} if origin is not None else self.split.held
            return streams({name: wanting[name] for name in lacking}, lacking, sizes, held, origin)
        different = set(lacks.values())  # most hosts lack the same
        moved = array(
            "I", RowSet((row for each in different for row in each.rows if sizes[row]), len(sizes))
        )
        lender = (
            next((host.name for host in complete), None)
            if sum(sizes[row] for row in moved) >= LENT_BYTES
            else None
        )
        return [Stream(tuple(lacking), origin or lender, moved)] if moved else []


def is_there(session: Session, where: Args, wanted: Wanted) -> bool:
    """`where`: job and name."""
    there = session.agent().call(DATA_STATE, where, timeout_s=LOOK_S)
    if there is None:
        return False
    return (there.digest, there.attributes, there.parts) == (
        wanted.digest,
        wanted.attributes,
        wanted.parts_name,
    )
