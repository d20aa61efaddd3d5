"""`broadcast.*`: this host's part in a broadcast, for as long as the session lives; see agent/broadcast/.

`broadcast.join` begins it and reports until it is cancelled. The other verbs name it by its id.
"""

from __future__ import annotations

import base64
import queue
import re
import time
import zlib

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, FrozenSet, List
from tfdeploy.agent.broadcast.holdings import Ended, Holdings, WrongSum
from tfdeploy.agent.broadcast.member import Member
from tfdeploy.agent.broadcast.piece_files import PieceFiles
from tfdeploy.agent.broadcast.receive import Parent
from tfdeploy.agent.broadcast.room import Room
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.mesh import handshake_gate
from tfdeploy.agent.ownership import check
from tfdeploy.agent.pieces import Pieces
from tfdeploy.agent.serve.call import Call, Verb
from tfdeploy.agent.serve.data_staging import Staging

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Joined, Nothing, Wanted

MOST_BITMAP = 64 << 20
REPORT_S = 0.5
LOOK_S = 0.05
_ROOT = re.compile(r"[0-9a-f]{64}\Z")
_members: Dict[str, Member] = {}  # of this session


def join(call: Call) -> Joined:
    """Takes part. Items: {"port"} first, then {"have", "received"} when these have changed, and {"failed": [parent, word, why]}.

    Raises VerbError not_begun, bad_listing, bad_argument.
    """
    id_, certs = call.name("id"), call.table("certs")
    folder = layout.data_dir(call.context.workdir, call.name("job"), call.name("name"))
    check(call.context.workdir, "%s/data/%s" % (call.name("job"), call.name("name")))
    staging = Staging(folder)
    moved = staging.moved(_bitmap(call, "moved"))
    room = Room(staging.new, call.integer("reserve"))
    holdings = Holdings(Pieces([each.size for each in moved]), PieceFiles(moved, staging.old, staging.new, room.take))
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
    while not call.cancelled.is_set():
        now, at = (member.holdings.have_bytes, member.holdings.received_bytes), time.monotonic()
        if now != told and (at - told_at >= REPORT_S or member.holdings.complete):
            told, told_at = now, at
            call.item({"have": now[0], "received": now[1], "stripes": list(member.holdings.have_by_stripe)}, b"")
        try:
            failed = member.reports.get(timeout=LOOK_S)
        except queue.Empty:
            continue
        call.item({"failed": list(failed)}, b"")


def feeds(call: Call) -> Nothing:
    """Who feeds it from now on: `parents` [[name, address, port, [stripe, ...]], ...]; `here`: the stripes that come over this
    session."""
    member = _member(call)
    stripes = call.integer("stripes", 1)
    parents = {}
    for row in call.rows("parents"):
        if not isinstance(row, (list, tuple)) or len(row) != 4:
            raise VerbError("bad_argument", "%.200r is no parent" % (row,))
        name, address, port, wanted = row
        token = handshake_gate.token(member.authority, str(name))
        parents[str(name)] = Parent(str(name), str(address), int(port), token, stripes, _stripes(wanted))
    member.set_feeds(stripes, parents, _stripes(call.rows("here")))
    return {}


def roots(call: Call) -> Nothing:
    """The roots of segments from `first` on."""
    given = [str(each) for each in call.rows("roots")]
    if not all(_ROOT.match(each) for each in given):
        raise VerbError("bad_argument", "a root is not 64 hexadecimal digits")
    _member(call).holdings.add_roots(call.integer("first"), [bytes.fromhex(each) for each in given])
    return {}


def leaves(call: Call) -> Wanted:
    """The leaves of a segment from the control machine; answers which of its pieces are wanted from there."""
    member = _member(call)
    try:
        wanted = member.accept_from_here(call.integer("segment"), call.blob)
    except (Ended, WrongSum) as error:
        raise VerbError("wrong_sum", str(error) or "it has ended") from error
    return {"wanted": "%x" % wanted}


def put(call: Call) -> Nothing:
    """One piece from the control machine."""
    try:
        _member(call).put_from_here(call.integer("segment"), call.integer("index"), call.blob)
    except WrongSum as error:
        raise VerbError("wrong_sum", str(error)) from error
    return {}


def _member(call: Call) -> Member:
    member = _members.get(call.text("id"))
    if member is None:
        raise VerbError("not_begun", "this host takes no part in that broadcast")
    return member


def _bitmap(call: Call, key: str) -> bytes:
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(base64.b64decode(call.text(key)), MOST_BITMAP)
    except (ValueError, zlib.error) as error:
        raise VerbError("bad_argument", "%s is no bitmap" % key) from error
    return found


def _stripes(value: Any) -> FrozenSet[int]:
    rows: List[Any] = value if isinstance(value, list) else []
    return frozenset(each for each in rows if isinstance(each, int))


VERBS: Dict[str, Verb] = {
    "broadcast.join": join,
    "broadcast.feeds": feeds,
    "broadcast.roots": roots,
    "broadcast.leaves": leaves,
    "broadcast.put": put,
}
