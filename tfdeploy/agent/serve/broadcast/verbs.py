"""`broadcast.*`: this host's part in a broadcast, for as long as the session lives; see
agent/broadcast/.

`broadcast.join` begins it and reports until it is cancelled. The other verbs name it by its id.
"""

from __future__ import annotations

import os
import queue
import re
import time
from array import array

from tfdeploy.agent import bitmap, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, FrozenSet, List, Tuple
from tfdeploy.agent.broadcast.disk_reserve import DiskReserve
from tfdeploy.agent.broadcast.holdings import Ended, Holdings, WrongSum
from tfdeploy.agent.broadcast.member import Member
from tfdeploy.agent.broadcast.offered_files import OfferedFiles
from tfdeploy.agent.broadcast.piece_files import PieceFiles
from tfdeploy.agent.broadcast.receive import Parent
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.mesh import handshake_gate
from tfdeploy.agent.pieces import Pieces, bitmap_bytes
from tfdeploy.agent.serve.broadcast.files import place
from tfdeploy.agent.serve.call import Call, Verb, audited, fenced
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.staging import unpack

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

REPORT_S = 0.5
LOOK_S = 0.05
_ROOT = re.compile(r"[0-9a-f]{64}\Z")
_members: Dict[str, Member] = {}  # of this session
# of this session: files, and the folder that they lie in
_offers: "Dict[str, Tuple[Listing, str]]" = {}


@fenced
def join(call: Call) -> Answer:
    """Take part in a broadcast, until the call is cancelled. The first item says where this host
    listens.

    Args: job, id, host, members, certs, ports, rate?, reserve?; and name, moved (bitmap of rows):
    of a data set; or release, staging, files [[path, bytes, mtime_ns], ...]: of what release.begin
    misses; or keep [paths], files: into the folder of keep.begin, and what lies in `keep` already
    is read there.

    Raises VerbError not_begun, bad_listing, bad_name, bad_argument.
    """
    files, old, new, later = place(call)
    room = DiskReserve(new if os.path.isdir(new) else old, call.integer("reserve"))
    return _take_part(
        call,
        Holdings(
            Pieces(array("Q", (each.size for each in files))),
            PieceFiles(files, old, new, room.take, later),
        ),
    )


@audited("sync", "lent")
def offer(call: Call) -> Answer:
    """Note the files that this session may lend next: below `root`, or where that is missing in the
    data set `name`.

    Args: id, root or job, name; blob: a packed Listing.

    Raises VerbError bad_listing.
    """
    root = call.text("root") or data_versions.newest(
        layout.data_dir(call.context.workdir, call.name("job"), call.name("name"))
    )
    _offers[call.name("id")] = unpack(call.blob), root
    return {}


def lend(call: Call) -> Answer:
    """Take part in a broadcast with the files of the offer, which are only read.

    Args: id, host, members, certs, ports, rate?.

    Raises VerbError not_begun.
    """
    try:
        rows, root = _offers.pop(call.name("id"))
    except KeyError as error:
        raise VerbError("not_begun", "this host was not asked to lend that") from error
    files = [index for index in range(len(rows)) if rows.is_content(index)]
    offered = OfferedFiles([rows.path(index) for index in files], root)
    holdings = Holdings(Pieces([rows.size(index) for index in files]), offered)
    return _take_part(call, holdings)


def _take_part(call: Call, holdings: Holdings) -> Answer:
    id_, certs = call.name("id"), call.table("certs")
    names = [str(each) for each in call.rows("members")]
    member = Member(id_, call.text("host"), names, holdings, certs, call.integer("rate"))  # type: ignore[arg-type]
    _members[id_] = member
    call.context.closing["broadcast " + id_] = member.close
    try:
        first, last = (int(port) for port in call.rows("ports"))
        call.item({"port": member.listen(first, last)}, b"")
        _report(call, member)
    finally:
        member.close()
        _members.pop(id_, None)
        call.context.closing.pop("broadcast " + id_, None)
    return {"have": holdings.have_bytes, "received": holdings.received_bytes}


def _report(call: Call, member: Member) -> None:
    """Until it is cancelled."""
    told, told_at = (-1, -1), 0.0
    member.holdings.listen(lambda: member.reports.put(None) if member.holdings.complete else None)
    while not call.cancelled.is_set():
        now, at = (member.holdings.have_bytes, member.holdings.received_bytes), time.monotonic()
        if now != told and (at - told_at >= REPORT_S or member.holdings.complete):
            told, told_at = now, at
            call.item(
                {
                    "have": now[0],
                    "received": now[1],
                    "stripes": list(member.holdings.have_by_stripe),
                },
                b"",
            )
        try:
            failed = member.reports.get(timeout=LOOK_S)
        except queue.Empty:
            continue
        if failed is not None:
            call.item({"failed": list(failed)}, b"")


def feeds(call: Call) -> Answer:
    """Say who feeds this host from now on; `here`: the stripes that come over this session.

    Args: id, stripes, parents [[name, address, port, [stripe, ...]], ...], here [stripe, ...];
    first, roots: as of broadcast.roots, where there are new ones.
    """
    member = _member(call)
    _add_roots(call, member)
    stripes = call.integer("stripes", 1)
    parents = {}
    for row in call.rows("parents"):
        if not isinstance(row, (list, tuple)) or len(row) != 4:
            raise VerbError("bad_argument", "%.200r is no parent" % (row,))
        name, address, port, wanted = row
        token = handshake_gate.token(member.authority, str(name))
        parents[str(name)] = Parent(
            str(name), str(address), int(port), token, stripes, _stripes(wanted)
        )
    member.set_feeds(stripes, parents, _stripes(call.rows("here")))
    return {}


def roots(call: Call) -> Answer:
    """Add the roots of segments from `first` on.

    Args: id, first, roots.
    """
    _add_roots(call, _member(call))
    return {}


def _add_roots(call: Call, member: Member) -> None:
    given = [str(each) for each in call.rows("roots")]
    if not all(_ROOT.match(each) for each in given):
        raise VerbError("bad_argument", "a root is not 64 hexadecimal digits")
    member.holdings.add_roots(call.integer("first"), [bytes.fromhex(each) for each in given])


def leaves(call: Call) -> Answer:
    """Take the leaves of a segment, and answer which of its pieces are wanted from the control
    machine.

    Args: id, segment; blob: leaves.

    Raises VerbError wrong_sum.
    """
    member = _member(call)
    try:
        wanted = member.accept_from_here(call.integer("segment"), call.blob)
    except (Ended, WrongSum) as error:
        raise VerbError("wrong_sum", str(error) or "it has ended") from error
    return {"wanted": bitmap.pack(bitmap_bytes(wanted))}


def put(call: Call) -> Answer:
    """Store one piece that the control machine sends.

    Args: id, segment, index; blob: the piece.

    Raises VerbError wrong_sum, disk.
    """
    try:
        _member(call).put_from_here(call.integer("segment"), call.integer("index"), call.blob)
    except WrongSum as error:
        raise VerbError("wrong_sum", str(error)) from error
    return {}


def sums(call: Call) -> Answer:
    """Sum a segment from this host's own files: it is the source.

    Args: id, segment.

    Raises VerbError not_begun, changed.
    """
    holdings = _member(call).holdings
    leaves = holdings.leaves_here(_within(call, "segment", holdings.cut.segments))
    if leaves is None:
        raise VerbError("changed", "a file of the source is gone, or shorter")
    return {"leaves": leaves.hex()}


def read(call: Call) -> Answer:
    """Send one piece of this host's own files, for a host that no other reaches.

    Args: id, segment, index.

    Raises VerbError not_begun, changed.
    """
    holdings = _member(call).holdings
    segment = _within(call, "segment", holdings.cut.segments)
    index = _within(call, "index", holdings.cut.count_in(segment))
    try:
        content = holdings.read(segment, index)
    except OSError as error:
        raise VerbError("changed", "a file of the source is gone, or shorter") from error
    call.item({"index": index}, content)
    return {}


def _within(call: Call, key: str, end: int) -> int:
    number = call.integer(key)
    if not 0 <= number < end:
        raise VerbError("bad_argument", "%s %d is not below %d" % (key, number, end))
    return number


def _member(call: Call) -> Member:
    member = _members.get(call.text("id"))
    if member is None:
        raise VerbError("not_begun", "this host takes no part in that broadcast")
    return member


def _stripes(value: Any) -> FrozenSet[int]:
    rows: List[Any] = value if isinstance(value, list) else []
    return frozenset(each for each in rows if isinstance(each, int))


VERBS: Dict[str, Verb] = {
    "broadcast.join": join,
    "broadcast.offer": offer,
    "broadcast.lend": lend,
    "broadcast.feeds": feeds,
    "broadcast.roots": roots,
    "broadcast.leaves": leaves,
    "broadcast.put": put,
    "broadcast.sums": sums,
    "broadcast.read": read,
}
