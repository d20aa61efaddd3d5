"""Decide for one data set which files each host should have, and which host sends them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.model.answers.files import DATA_STATE
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast.bitmaps import RowSelection, RowSet
from tfdeploy.operations.broadcast.origin import has_origin_changed, list_origin_data
from tfdeploy.operations.broadcast.split import DataSplit
from tfdeploy.operations.broadcast.wanted import WantedFiles, all_wanted_files
from tfdeploy.planning.broadcast.streams import Stream, assign_streams
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing
from tfdeploy.tree.datasets import has_changed, list_again

# This applies to a data set that is read from this machine. If a host already has the whole data
# set, and the files to send have at least this many bytes, then that host sends them to the other
# hosts. Otherwise, this machine sends them.
LENT_BYTES = 64 << 20
LISTING_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class DataSet:
    """A data set that is sent to hosts.

    `listing` lists the whole data set. `origin` is the host that the data comes from
    (None: this machine). `split` tells which host gets which files (None: each host gets all).
    `by_rsync`: this machine sends the data to each host by rsync.
    """

    listing: DataListing
    origin: Host | None = None
    split: DataSplit | None = None
    by_rsync: bool = False

    def expected_on(self, host: str) -> WantedFiles | None:
        """Return what a host should have; None if it should have nothing of the data set."""
        return (
            all_wanted_files(self.listing)
            if self.split is None
            else self.split.wanted_by_host.get(host)
        )

    def list_again(self, fleet: Fleet) -> DataListing:
        """Return a new listing of the data."""
        return (
            list_again(self.listing)
            if self.origin is None
            else list_origin_data(fleet, self.origin, self.listing.source)
        )

    def has_changed(self, fleet: Fleet) -> bool:
        """Return whether the data has changed since it was listed."""
        return (
            has_changed(self.listing)
            if self.origin is None
            else has_origin_changed(fleet, self.origin, self.listing)
        )

    def plan_streams(
        self,
        lacking_by_host: Mapping[str, RowSelection],
        wanted_by_host: Mapping[str, Sequence[int]],
        complete_hosts: Iterable[Host],
    ) -> list[Stream]:
        """Return the streams (each sends some of the files) that bring every host what it lacks.

        Files are given as row numbers of the listing of the whole data set. `lacking_by_host`: the
        rows that each host lacks. `wanted_by_host`: all rows that each of these hosts should have.
        `complete_hosts`: the hosts that lack nothing.
        """
        sizes, origin = self.listing.rows.sizes, self.origin.name if self.origin else None
        lacking = {name: each.rows for name, each in lacking_by_host.items() if each.rows}
        if self.by_rsync:
            return [
                Stream((name,), None, array("I", (row for row in rows if sizes[row])))
                for name, rows in lacking.items()
            ]
        if self.split is not None:
            # If the data set is read from a host (the origin), only the files of the origin are
            # certainly correct. So only the origin sends, even if other hosts hold some files.
            held = {} if origin is not None else self.split.held_rows_by_host
            return assign_streams(
                {name: wanted_by_host[name] for name in lacking}, lacking, sizes, held, origin
            )
        # Most hosts lack the same rows, so there are only a few different selections of rows.
        different = set(lacking_by_host.values())
        moved = array(
            "I", RowSet((row for each in different for row in each.rows if sizes[row]), len(sizes))
        )
        lender = (
            next((host.name for host in complete_hosts), None)
            if sum(sizes[row] for row in moved) >= LENT_BYTES
            else None
        )
        return [Stream(tuple(lacking), origin or lender, moved)] if moved else []

    def is_sent_by_rsync(self, stream: Stream) -> bool:
        """Return whether rsync sends this stream. If not, the stream is broadcast.

        rsync can only send from this machine to a single host. Sparse files are broadcast even to a
        single host, because rsync would send their holes too. With `by_rsync`, rsync sends them.
        """
        rows = self.listing.rows
        return (
            stream.lender is None
            and len(stream.receivers) == 1
            and (self.by_rsync or not any(map(rows.is_sparse, stream.rows)))
        )


def has_data_set(session: Session, data_args: Args, wanted: WantedFiles) -> bool:
    """Return True if the host has exactly the files of the data set that it should have.

    `data_args`: the names of the job and of the data set.
    """
    answer = session.agent().call(DATA_STATE, data_args, timeout_s=LISTING_TIMEOUT_S)
    expected = wanted.digest, wanted.attributes_digest, wanted.part_numbers_digest
    return answer is not None and (answer.digest, answer.attributes, answer.parts) == expected
