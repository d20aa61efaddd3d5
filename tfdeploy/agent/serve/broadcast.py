"""Answers `broadcast.*`: makes this host a member of a broadcast, in which hosts pass pieces of
files on to each other (agent/broadcast/). The files are those of a data set, of a release, or of
keep folders.

`broadcast.join` begins the membership and sends reports until the call is cancelled. The other
verbs name the broadcast by its id. A membership ends with the session at the latest.

For a release and for keep folders, the call names each file. For a release, only files that
`release.begin` has listed as missing are accepted.
"""

from __future__ import annotations

import os
import queue
import re
import stat
import time
from array import array

from tfdeploy.agent import bitmap, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Sequence, Tuple
from tfdeploy.agent.broadcast.disk_reserve import DiskReserve
from tfdeploy.agent.broadcast.holdings import BroadcastEnded, Holdings, WrongHash
from tfdeploy.agent.broadcast.member import Member
from tfdeploy.agent.broadcast.offered_files import OfferedFiles
from tfdeploy.agent.broadcast.piece_files import BroadcastFile, PieceFiles
from tfdeploy.agent.broadcast.receive import Parent
from tfdeploy.agent.call import Call, Verb, audited, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.atomic import create_empty
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.mesh import handshake_gate
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.pieces import Pieces, bitmap_bytes
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.datasets.files import Staging, data_folder, unpack_listing

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

REPORT_S = 0.5  # shortest time between two progress items
POLL_S = 0.05
_ROOT = re.compile(r"[0-9a-f]{64}\Z")
_SOURCE_CHANGED = "a file of the source was removed or became shorter"
# Id of a broadcast -> this session's membership in that broadcast.
_members: Dict[str, Member] = {}
# Id of a broadcast -> (listing of the files that this session can send as a source, the folder that
# holds these files).
_offers: "Dict[str, Tuple[Listing, str]]" = {}


@requires_job_lock
def join_broadcast(call: Call) -> Answer:
    """Join a broadcast until the call is cancelled. The first item says at which port this host
    listens.

    Args: job, id, host, members, certs, ports, rate?, reserve?. For a data set also: name, moved
    (bitmap: which rows of the data set's listing to receive). For a release also: release, staging,
    files [[path, bytes, mtime_ns], ...]; release.begin must have listed these files as missing. For
    keep folders also: keep [paths], files; the files arrive in the folder that keep.begin made, and
    files that this host already has are not received again.

    Raises VerbError not_begun, bad_listing, bad_name, bad_argument.
    """
    files, old, new, later = locate_files(call)
    reserve_file = DiskReserve(new if os.path.isdir(new) else old, call.integer("reserve"))
    return _run_broadcast_member(
        call,
        Holdings(
            Pieces(array("Q", (each.size for each in files))),
            PieceFiles(files, old, new, reserve_file.check_space, later),
        ),
    )


@audited("sync", "lent")
def store_file_offer(call: Call) -> Answer:
    """Store the list of files that broadcast.lend may send later in this session. The files are
    below the folder `root`, or, without `root`, in the data set `name`.

    Args: id, root or job, name; blob: a packed Listing.

    Raises VerbError bad_listing.
    """
    root = call.text("root") or data_versions.newest_version_folder(data_folder(call))
    _offers[call.name("id")] = unpack_listing(call.blob), root
    return {}


def join_as_source(call: Call) -> Answer:
    """Join a broadcast as a source of the files that broadcast.offer has listed. The files are only
    read.

    Args: id, host, members, certs, ports, rate?.

    Raises VerbError not_begun.
    """
    try:
        rows, root = _offers.pop(call.name("id"))
    except KeyError as error:
        raise VerbError(
            "not_begun", "no call of broadcast.offer in this session has listed the files to send"
        ) from error
    files = [index for index in range(len(rows)) if rows.has_own_content(index)]
    offered = OfferedFiles([rows.path(index) for index in files], root)
    holdings = Holdings(Pieces([rows.sizes[index] for index in files]), offered)
    return _run_broadcast_member(call, holdings)


def _run_broadcast_member(call: Call, holdings: Holdings) -> Answer:
    id_, certs = call.name("id"), call.table("certs")
    names = [str(each) for each in call.rows("members")]
    member = Member(id_, call.text("host"), names, holdings, certs, call.integer("rate"))  # type: ignore[arg-type]
    _members[id_] = member
    call.context.closing_functions["broadcast " + id_] = member.close
    try:
        first, last = (int(port) for port in call.rows("ports"))
        call.item({"port": member.listen(first, last)}, b"")
        _send_progress_until_cancelled(call, member)
    finally:
        member.close()
        _members.pop(id_, None)
        call.context.closing_functions.pop("broadcast " + id_, None)
    return {"have": holdings.have_bytes, "received": holdings.received_bytes}


def _send_progress_until_cancelled(call: Call, member: Member) -> None:
    """Until the call is cancelled, send a progress item at most once every REPORT_S, and each
    failure at once."""
    sent, sent_at, holdings = (-1, -1), 0.0, member.holdings
    holdings.add_listener(lambda: member.reports.put(None) if holdings.is_complete else None)
    while not call.cancelled.is_set():
        progress, now = (holdings.have_bytes, holdings.received_bytes), time.monotonic()
        if progress != sent and (now - sent_at >= REPORT_S or holdings.is_complete):
            sent, sent_at = progress, now
            have, received = progress
            stripes = list(holdings.have_by_stripe)
            call.item({"have": have, "received": received, "stripes": stripes}, b"")
        try:
            failed = member.reports.get(timeout=POLL_S)
        except queue.Empty:
            continue
        if failed is not None:
            call.item({"failed": list(failed)}, b"")


def set_parents(call: Call) -> Answer:
    """Set the parents: the members that send data to this host from now on. `here`: the stripes
    that come from the control machine, over this session.

    Args: id, stripes (how many there are), parents [[name, address, port, [stripe, ...]], ...],
    here [stripe, ...]; first, roots: new root hashes, as for broadcast.roots.
    """
    member = _find_member(call)
    _store_root_hashes(call, member)
    stripes = call.integer("stripes", 1)
    parents = {}
    for name, address, port, wanted in call.rows("parents", str, str, int, list):
        token = handshake_gate.server_name_token(member.ca_pem, name)
        parents[name] = Parent(name, address, port, token, stripes, frozenset(wanted))
    member.set_senders(stripes, parents, frozenset(call.rows("here")))
    return {}


def add_root_hashes(call: Call) -> Answer:
    """Store the root hashes of segments (groups of pieces). `first`: the number of the first of
    these segments; the others follow it.

    Args: id, first, roots.
    """
    _store_root_hashes(call, _find_member(call))
    return {}


def _store_root_hashes(call: Call, member: Member) -> None:
    roots = [str(each) for each in call.rows("roots")]
    if not all(map(_ROOT.match, roots)):
        raise VerbError("bad_argument", "a root hash is not 64 hexadecimal digits")
    member.holdings.add_root_hashes(call.integer("first"), list(map(bytes.fromhex, roots)))


def accept_piece_hashes(call: Call) -> Answer:
    """Accept the hashes of a segment's pieces, and return which of these pieces the control machine
    has to send.

    Args: id, segment; blob: the hashes.

    Raises VerbError wrong_sum.
    """
    member = _find_member(call)
    try:
        wanted = member.accept_leaves_and_find_lacking_bitmap(call.integer("segment"), call.blob)
    except (BroadcastEnded, WrongHash) as error:
        raise VerbError("wrong_sum", str(error) or "the broadcast has ended") from error
    return {"wanted": bitmap.pack(bitmap_bytes(wanted))}


def store_piece(call: Call) -> Answer:
    """Store one piece that the control machine sends.

    Args: id, segment, index; blob: the piece.

    Raises VerbError wrong_sum, disk.
    """
    try:
        _find_member(call).store_from_control(
            call.integer("segment"), call.integer("index"), call.blob
        )
    except WrongHash as error:
        raise VerbError("wrong_sum", str(error)) from error
    return {}


def hash_segment_pieces(call: Call) -> Answer:
    """Return the hashes of the pieces of a segment, computed from this host's own files. This host
    is the source of the broadcast.

    Args: id, segment.

    Raises VerbError not_begun, changed, permission.
    """
    holdings = _find_member(call).holdings
    segment = _checked_index(call, "segment", holdings.cut.segment_count)
    try:
        return {"leaves": holdings.compute_leaves(segment).hex()}
    except PermissionError:  # the answer names the file
        raise
    except OSError as error:
        raise VerbError("changed", _SOURCE_CHANGED) from error


def send_piece_to_control(call: Call) -> Answer:
    """Send one piece of this host's own files to the control machine, for a host that no member of
    the broadcast can reach.

    Args: id, segment, index.

    Raises VerbError not_begun, changed, permission.
    """
    holdings = _find_member(call).holdings
    segment = _checked_index(call, "segment", holdings.cut.segment_count)
    index = _checked_index(call, "index", holdings.cut.count_pieces(segment))
    try:
        content = holdings.read(segment, index)
    except PermissionError:  # the answer names the file
        raise
    except OSError as error:
        raise VerbError("changed", _SOURCE_CHANGED) from error
    call.item({"index": index}, content)
    return {}


def _checked_index(call: Call, key: str, end: int) -> int:
    number = call.integer(key)
    if not 0 <= number < end:
        raise VerbError("bad_argument", "%s %d must be below %d" % (key, number, end))
    return number


def _find_member(call: Call) -> Member:
    member = _members.get(call.text("id"))
    if member is None:
        raise VerbError("not_begun", "this host takes no part in that broadcast")
    return member


# --- the files of a broadcast


class BroadcastFiles(NamedTuple):
    """The files of a broadcast. `present_folder`: the folder with the content that this host has
    now. `incoming_folder`: the folder in which new content is received. `installed_folders`: the
    folders into which the new content may be moved later."""

    files: Sequence[BroadcastFile]
    present_folder: str
    incoming_folder: str
    installed_folders: List[str]


def locate_files(call: Call) -> BroadcastFiles:
    """Find the files of the broadcast that the call describes, and their folders. Raises VerbError
    not_begun, bad_listing, bad_name, bad_argument; OSError."""
    if call.args.get("keep"):
        return _locate_keep_files(call)
    return _locate_release_files(call) if call.args.get("release") else _locate_data_files(call)


def _locate_data_files(call: Call) -> BroadcastFiles:
    folder = layout.data_dir(call.workdir, call.job, call.name("name"))
    check_owners(call.workdir, "%s/data/%s" % (call.job, call.name("name")))
    staging = Staging(folder)
    later = [folder, data_versions.hidden_sibling_path(folder, data_versions.NEXT)]
    return BroadcastFiles(
        staging.list_broadcast_files(_bitmap_of_moved_rows(call)),
        staging.old_folder,
        staging.new_folder,
        later,
    )


def _locate_release_files(call: Call) -> BroadcastFiles:
    """Return the files of a release that are missing on this host. Also create each missing file
    whose size is 0.

    A piece is not received if the newest release on this host has the same content at the same
    offset of the same file.
    """
    from tfdeploy.agent.serve.release import store as release_store
    from tfdeploy.agent.serve.release.verbs import (
        checked_staging_path,
        find_release_begun_in_session,
    )

    folder, begun = checked_staging_path(call), find_release_begun_in_session(call)
    # If the broadcast fails, it may leave partial files in the folder.
    call.context.begun_releases[folder] = begun._replace(is_new=False)
    before = release_store.newest_release(os.path.dirname(folder)) or folder
    missing = set(begun.missing)
    sizes = {entry.path: entry.size for entry in begun.entries if entry.path in missing}
    files = []
    for path, size, mtime_ns in _file_rows(call):
        if sizes.pop(path, None) != size:
            raise VerbError(
                "bad_argument",
                "%r, with this size, is not a file that release.begin listed as missing" % path,
            )
        new = folder + "/" + path
        is_partial = _remove_unless_partial(new, size)
        if not size:
            create_empty(new)
            os.utime(new, ns=(mtime_ns, mtime_ns))
        old = _stat_regular_file(os.path.join(before, path)) if before != folder else None
        files.append(
            BroadcastFile(
                os.fsencode(path), size, mtime_ns, partial=is_partial, old=old.st_size if old else 0
            )
        )
    final = layout.release_dir(call.workdir, call.job, call.name("release"))
    return BroadcastFiles(files, before, folder, [final])


def _locate_keep_files(call: Call) -> BroadcastFiles:
    """Return the files in `keep` folders that the call names. A file is not received again if this
    host has a file of the same size whose time, rounded down to seconds, is the same."""
    from tfdeploy.agent.run.keep_folders import check_keep_paths
    from tfdeploy.agent.run.keep_receive import check_inside_keep, incoming_folder, is_complete_file

    keep = check_keep_paths(call.rows("keep"))
    root = layout.keep_dir(call.workdir, call.job, "")
    files = []
    for path, size, mtime_ns in _file_rows(call):
        kept = os.path.join(root, check_inside_keep(path, keep))
        current = _stat_regular_file(kept)
        files.append(
            BroadcastFile(
                os.fsencode(path),
                size,
                mtime_ns,
                lacking=not is_complete_file(kept, size, mtime_ns),
                old=current.st_size if current else 0,
            )
        )
    return BroadcastFiles(files, root, incoming_folder(call.workdir, call.job), [])


def _file_rows(call: Call) -> List[Tuple[str, int, int]]:
    rows = call.rows("files", str, int, int)
    if any(size < 0 for _, size, _ in rows):
        raise VerbError("bad_argument", "a file has a size below 0")
    return rows


def _remove_unless_partial(path: str, size: int) -> bool:
    """Return whether an earlier broadcast left an incomplete file at the path. Anything else at the
    path is removed, not overwritten: it may be a hard link to a file of an older release, and
    writing to it would change that file."""
    try:
        file_stat = os.lstat(path)
    except FileNotFoundError:
        return False
    if size and stat.S_ISREG(file_stat.st_mode) and file_stat.st_nlink == 1:
        return True
    os.unlink(path)
    return False


def _stat_regular_file(path: str) -> "os.stat_result | None":
    """Return the stat result of the path, or None if it is not a regular file."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return None
    return file_stat if stat.S_ISREG(file_stat.st_mode) else None


def _bitmap_of_moved_rows(call: Call) -> bytes:
    try:
        return bitmap.unpack(call.text("moved"))
    except ValueError as error:
        raise VerbError("bad_argument", "moved is no bitmap") from error


VERBS: Dict[str, Verb] = {
    "broadcast.join": join_broadcast,
    "broadcast.offer": store_file_offer,
    "broadcast.lend": join_as_source,
    "broadcast.feeds": set_parents,
    "broadcast.roots": add_root_hashes,
    "broadcast.leaves": accept_piece_hashes,
    "broadcast.put": store_piece,
    "broadcast.sums": hash_segment_pieces,
    "broadcast.read": send_piece_to_control,
}
