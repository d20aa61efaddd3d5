"""Run one broadcast: hosts that lack the same files receive them and pass them on to each other.

The planner decides which members send to which: each member has parents, which send to it. The
planner plans again if a member fails, is slow, or cannot be reached by another member. Pieces that
have arrived are not sent again.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES, SEGMENT
from tfdeploy.errors import HostFailed, HostUnreachable, TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.files import BroadcastMemberReport
from tfdeploy.model.events import Emit
from tfdeploy.operations.broadcast.feeder import PieceFeeder
from tfdeploy.operations.broadcast.member_session import MemberSession
from tfdeploy.operations.broadcast.report import BroadcastReport
from tfdeploy.operations.broadcast.source import BroadcastSource, SourceChanged
from tfdeploy.operations.broadcast.stalled_hosts import StalledHosts
from tfdeploy.operations.emit import emit_note, emit_transfer
from tfdeploy.operations.launching.certificates import make_certificates
from tfdeploy.planning.broadcast.feeds import Feed, FeedPlan
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan
from tfdeploy.text.typed import Args
from tfdeploy.transport.protocols import Session

CALLS_AT_ONCE = 16  # at most this many members are called at the same time
PLAN_S = 0.5  # every PLAN_S seconds, tfdeploy plans anew which member sends to which
RETRY_S = 0.05  # every RETRY_S seconds, check whether a call over a lost connection ended
# The source is hashed at most this many segments ahead of the fastest member, so that the segments
# are still in the page cache when they are sent.
SEGMENTS_AHEAD = 4
JOIN_TIMEOUT_S = 30.0  # a member that has not joined after this many seconds has failed
# A member that lost its connection must join again within JOIN_TIMEOUT_S seconds, or within
# REJOIN_S seconds if all other members are done.
REJOIN_S = 5.0
START_WITHOUT_S = 2.0  # after this many seconds, the broadcast starts with the members that joined

Progress = Callable[[str, int, int], None]
OnError = Callable[[Exception], None]
MemberMessage = BroadcastMemberReport | Exception


@dataclass
class Broadcast:
    """Sends the files of `source` to all members.

    members: the members by host name.
    progress: called for each report with (host, arrived bytes, bytes the host lacked at first).
    event_name: the name of the transfer in events; "" emits no events.
    check_source: raises SourceChanged if the source has changed.
    put_in_place: puts a member's files in place. The member continues to send to others.
    reconnect: returns a new session of a member whose connection ended, or raises TfdeployError.
        If `reconnect` is None, a member fails when its connection ends.
    """

    source: BroadcastSource
    members: Mapping[str, MemberSession]
    emit: Emit
    progress: Progress
    event_name: str
    check_source: Callable[[], None]
    put_in_place: Callable[[MemberSession], None]
    reconnect: Callable[[MemberSession], Session] | None
    id: str
    control_sent_bytes: int = 0  # bytes that this machine itself has sent
    _reports: queue.SimpleQueue[tuple[MemberSession | None, int, MemberMessage]] = field(
        default_factory=queue.SimpleQueue
    )
    _join_args: dict[str, Args] = field(default_factory=dict)
    _roots: list[bytes] = field(default_factory=list)
    _unreachable_pairs: set[tuple[str, str]] = field(default_factory=set)
    _plan: FeedPlan | None = None  # never changed, only replaced, because other threads read it
    # {host that has not joined: monotonic time since which tfdeploy has waited for the host}
    _not_joined: dict[str, float] = field(default_factory=dict)
    # Hosts whose connection ended after their files were in place.
    _placed_and_lost: set[str] = field(default_factory=set)
    _is_source_hashed: bool = False  # True once all files are hashed and were found unchanged
    _is_checking_source: bool = False
    _ended: bool = False
    _joined_at: float = 0.0
    _stalled: StalledHosts = field(init=False)
    report: BroadcastReport = field(init=False)

    def __post_init__(self) -> None:
        self.report = BroadcastReport(self.event_name, self.members, self.emit)
        self._stalled = StalledHosts(self.members)

    def run(self, args_for: Callable[[MemberSession], Args]) -> dict[str, TfdeployError]:
        """Run until each member has its files in place or has failed. Return the errors by host.

        `args_for` returns the arguments of broadcast.join for a member. Raises SourceChanged.
        """
        keys = make_certificates(f"broadcast {self.id}", self.members)
        names = sorted(self.members)
        start_thread(self._hash_source, name="sums")
        try:
            with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
                try:
                    for member in self.members.values():
                        own_args = {"host": member.name, "certs": keys[member.name]}
                        args = {**args_for(member), "id": self.id, "members": names, **own_args}
                        self._join_args[member.name] = args
                        self._not_joined[member.name] = time.monotonic()
                        try:
                            member.join(args, self._make_report_queuer(member))
                        except TfdeployError as error:
                            self._fail_member(member, error)
                    self._joined_at = time.monotonic()
                    while not self._fail_late_members_and_test_done():
                        self._process_reports(PLAN_S)
                        self._plan_and_tell_members(pool)
                        self._place_complete_members(pool)
                finally:
                    self._ended = True
        finally:
            for member in self.members.values():
                member.leave()
        return {name: member.error for name, member in self.members.items() if member.error}

    def last_sender_to(self, host: str) -> str | None:
        """Return the host that sent to `host` last; "" for this machine, None if none has sent."""
        return next(iter(reversed(self.report.last_parents.get(host, {}).values())), None)

    def _members_planned_before_joining(self) -> set[str]:
        """Return the members that have not joined yet but are part of the plan.

        After START_WITHOUT_S seconds, the result is empty if at least one member has joined.
        """
        is_late = time.monotonic() > self._joined_at + START_WITHOUT_S
        if is_late and len(self._not_joined) < len(self.members):
            return set()
        return {name for name in self._not_joined if not self.members[name].reconnects}

    def _fail_late_joiners(self) -> None:
        """Mark members that have not joined in time as failed.

        If all other members are done, a member that lost its connection has only REJOIN_S seconds.
        """
        others_done = all(
            member.placed for member in self._live_members() if member.name not in self._not_joined
        )
        for name, since in list(self._not_joined.items()):
            why = self.members[name].why_lost
            if time.monotonic() - since > (REJOIN_S if why and others_done else JOIN_TIMEOUT_S):
                error = why or HostFailed("the host did not join the broadcast in time", where=name)
                self._fail_member(self.members[name], error)

    def _fail_stalled_members(self) -> None:
        of_host = f" of {self.source.source_host}" if self.source.source_host else ""
        what = f"the host has received no further piece of the data{of_host}"
        waiting = [
            member
            for member in self._live_members()
            if not member.is_complete and member.name not in self._not_joined
        ]
        for member in self._stalled.timed_out_members(waiting):
            error = HostFailed(
                f"{what} for {self._stalled.timeout_s:g} s",
                where=member.name,
                next="run the same command again",
            )
            self._fail_member(member, error)

    def _process_reports(self, within_s: float) -> None:
        """Process reports for `within_s` seconds.

        Return early after a report that is more than plain progress, such as a failure. The caller
        plans anew after each return. Planning after every report would take a core with 200 hosts.
        """
        deadline = time.monotonic() + within_s
        due = False
        while not (due and self._reports.empty()) and (left_s := deadline - time.monotonic()) > 0:
            try:
                member, reconnects, message = self._reports.get(timeout=left_s)
            except queue.Empty:
                return
            if member is None or reconnects != member.reconnects:
                due = True
            else:
                was_complete = member.is_complete
                self._apply_report(member, message)
                due |= isinstance(message, Exception) or message.have is None
                due |= member.is_complete != was_complete

    def _apply_report(self, member: MemberSession, message: MemberMessage) -> None:
        if isinstance(message, Exception):
            if not isinstance(message, TfdeployError):
                raise message
            self._reconnect_once_or_fail(member, message)
            return
        if member.error is not None:
            return
        if member.name in self._not_joined:
            del self._not_joined[member.name]
            member.port = message.port
            return
        if message.failed is not None:
            self._record_feed_failure(member, *message.failed)
            return
        member.record_report(message)
        self.progress(member.name, member.arrived_bytes, member.lacking_bytes)

    def _record_feed_failure(
        self, member: MemberSession, parent: str, kind: str, reason: str
    ) -> None:
        if kind == "disk":
            self._fail_member(
                member, HostFailed(f"the host cannot write the data: {reason}", where=member.name)
            )
        elif kind == "differs" and member.name == self.source.source_host:
            what = "the host's files changed while they were sent"
            self.source.error = SourceChanged(what, where=member.name)
        elif kind == "differs" and member.is_lender:
            text = f"files of {member.name} differ from the source, so this host sends no files"
            emit_note(self.emit, text, host=member.name)
            self._fail_member(
                member, HostFailed("the host's files differ from the source", where=member.name)
            )
        elif kind == "differs" and not member.content_differs and not member.placing:
            member.content_differs = True
            text = f"files of {member.name} are sent again: same size and time, but other content"
            emit_note(self.emit, text, host=member.name)
        elif (
            parent in self.members
            and parent in member.parents
            and (member.name, parent) not in self._unreachable_pairs
        ):
            self._unreachable_pairs.add((member.name, parent))
            if kind == "wrong":
                self.members[parent].accusers.add(member.name)
                text = f"{parent} sent {member.name} a wrong piece; another host sends this piece"
                emit_note(self.emit, text, level="warning")
            elif not self.members[parent].error:
                relation = "does not reach" if kind == "unreached" else "lost"
                text = f"{member.name} {relation} {parent}: {reason}"
                emit_note(self.emit, text, level="detail", host=member.name)

    def _reconnect_once_or_fail(self, member: MemberSession, error: TfdeployError) -> None:
        """Reconnect to a member whose connection ended. The second time, fail the member.

        After a reconnect, the member resumes where it was. A member whose files are in place is
        neither reconnected nor failed, unless it is the source or lends its files.
        """
        is_first = (
            isinstance(error, HostUnreachable) and member.error is None and not member.reconnects
        )
        is_needed = member.is_lender or member.name == self.source.source_host
        if member.placed and member.error is None and not is_needed:
            member.record_lost_connection(error)
            self._not_joined.pop(member.name, None)
            self._placed_and_lost.add(member.name)
        elif not is_first or self.reconnect is None or member.is_lender or self._ended:
            self._fail_member(member, error)
        else:
            text = f"{error.what}: connecting again"
            emit_note(self.emit, text, level="warning", host=member.name)
            member.record_lost_connection(error)
            self._not_joined[member.name] = time.monotonic()
            start_thread(self._reconnect_member, member, error, name=f"again-{member.name}")

    def _reconnect_member(self, member: MemberSession, lost: TfdeployError) -> None:
        assert self.reconnect is not None
        report = self._make_report_queuer(member)
        try:
            session = self.reconnect(member)
            # A call over the old connection may still be in progress. Wait until the call fails.
            while member.busy:
                time.sleep(RETRY_S)
            member.reset_for_reconnect(session)
            if not self._ended:
                member.join(self._join_args[member.name], report)
        except TfdeployError:
            # Report why the connection was lost. This explains more than why the reconnect failed.
            report(lost)
        except Exception as error:  # noqa: BLE001 - the main loop raises unexpected errors
            report(error)

    def _make_report_queuer(self, member: MemberSession) -> Callable[[MemberMessage], None]:
        """Return a callback that queues the reports of the member's present connection."""
        reconnects = member.reconnects
        return lambda message: self._reports.put((member, reconnects, message))

    def _make_feeder_callback(self, report: OnError) -> OnError:
        """Return the error callback of a feeder (threads that send from this machine to a member).

        The callback reports an error of the host that has the source as that host's error, and any
        other error as the member's error.
        """
        source_host = self.members.get(self.source.source_host or "")

        def failed(error: Exception) -> None:
            where = error.where if isinstance(error, TfdeployError) else None
            if source_host is not None and where == source_host.name:
                self._make_report_queuer(source_host)(error)
            else:
                report(error)

        return failed

    def _wake_main_loop(self) -> None:
        self._reports.put((None, 0, BroadcastMemberReport()))

    def _fail_member(self, member: MemberSession, error: TfdeployError) -> None:
        self._not_joined.pop(member.name, None)
        if member.error is None:
            member.error = error
            if self.event_name:
                arrived, lacking = member.arrived_bytes, member.lacking_bytes
                emit_transfer(self.emit, member.name, self.event_name, "failed", arrived, lacking)
            if member.feeder is not None:
                member.feeder.close()
            if member.name == self.source.source_host and not self._can_do_without_source():
                self.source.error = self.source.error or error

    def _can_do_without_source(self) -> bool:
        """Return True if the source's host is no longer needed, because a member has all files."""
        return self._is_source_hashed and any(member.is_complete for member in self._live_members())

    # --- planning, and putting files in place

    def _fail_late_members_and_test_done(self) -> bool:
        self._fail_late_joiners()
        self._fail_stalled_members()
        waited_for = [member for member in self._live_members() if not member.is_complete]
        if len(waited_for) < len(self.members):
            for member in waited_for:
                member.shorten_timeouts_if_silent()
        # No member receives anything. The cause may be an unreachable lender (a member that has
        # all files and only sends them), so the lenders' timeouts are shortened.
        if waited_for and all(member.is_stuck for member in waited_for):
            for member in self._live_members():
                if member.is_lender:
                    member.shorten_timeouts_if_silent()
        return not waited_for and all(member.placed for member in self._live_members())

    def _live_members(self) -> list[MemberSession]:
        return [member for member in self.members.values() if member.error is None]

    def _plan_and_tell_members(self, pool: ThreadPoolExecutor) -> None:
        """Plan who sends to whom, and tell each member its new parents and the new hashes."""
        if self.source.error is not None:
            raise self.source.error
        expected = self._members_planned_before_joining()
        planned = [
            member.to_planner_member(is_expected=member.name in expected)
            for member in self.members.values()
        ]
        out = {*self._not_joined, *self._placed_and_lost} - expected | {
            name for name, member in self.members.items() if member.error is not None
        }
        before = self._plan
        if before is None:
            joined = [member for member in planned if member.name not in out]
            plan = first_plan(joined, self.source.cut.total_bytes)
            if plan.stripes > 1:
                wanted = self.source.cut.stripe_bytes(plan.stripes)
                for member in self.members.values():
                    member.set_stripes(wanted)
        else:
            shut = frozenset(self._unreachable_pairs | self._stalled.forbidden_pairs)
            plan = next_plan(before, planned, unreachable_pairs=shut, lost_members=frozenset(out))
        if plan is not before:
            self._plan = plan
            self.report.record_plan(plan)
        self.report.emit_changes()
        for member in self._live_members():
            feeds = plan.by_child.get(member.name, ())
            involved = {member.name, *(feed.parent for feed in feeds)}
            if (
                member.name not in out
                and not member.busy
                and self._not_joined.keys().isdisjoint(involved)
                and member.needs_update(feeds, len(self._roots))
            ):
                member.busy = True
                pool.submit(
                    self._try_to_send_plan_changes,
                    member,
                    self._make_report_queuer(member),
                )

    def _place_complete_members(self, pool: ThreadPoolExecutor) -> None:
        """Put the files in place on each member as soon as the member has all of them.

        A member whose files were compared only by size and time must wait until all other members
        have received their files. Until then, the hashes may show that its content differs.
        """
        if self.source.error is not None:
            raise self.source.error
        received = all(member.is_complete for member in self._live_members())
        unseen = []
        for member in self._live_members() if self._is_source_hashed else ():
            is_ready = member.is_complete and (member.is_verified or received)
            if member.placing or not is_ready or member.name in self._not_joined:
                continue
            if member.source_seen:
                member.placing = True
                pool.submit(self._place_member_files, member, self._make_report_queuer(member))
            else:
                unseen.append((member, member.reconnects))
        if unseen and not self._is_checking_source:
            self._is_checking_source = True
            pool.submit(self._check_source_and_mark_seen, unseen)

    def _check_source_and_mark_seen(self, members: list[tuple[MemberSession, int]]) -> None:
        """Check that the source is unchanged, then set `source_seen` of each of `members`.

        `members`: pairs (member, how often the member's connection has ended so far). If a member
        loses its connection during the check, `source_seen` is not set for that member.
        """
        try:
            self.check_source()
        except HostUnreachable:
            # The source cannot be checked, which does no harm: the members have what was hashed.
            pass
        except Exception as error:  # noqa: BLE001 - the main loop raises it
            self.source.error = error
        for member, reconnects in members:
            member.source_seen = member.reconnects == reconnects
        self._is_checking_source = False
        self._wake_main_loop()

    def _place_member_files(self, member: MemberSession, report: OnError) -> None:
        try:
            self.put_in_place(member)
            member.placed = True
            self._wake_main_loop()
        except Exception as error:  # noqa: BLE001 - the main loop raises unexpected errors
            report(error)

    def _send_plan_changes(self, member: MemberSession, report: OnError) -> None:
        """Send the member its parents and hashes. Start or stop sending from this machine to it."""
        plan = self._plan
        assert plan is not None
        feeds = plan.by_child.get(member.name, ())
        parents = {
            name: (each.address or "", each.port or 0) for name, each in self.members.items()
        }
        member.send_feeds(self.id, plan.stripes, feeds, parents, list(self._roots))
        self._update_control_feeder(member, feeds, report)
        member.send_root_hashes(self.id, list(self._roots))

    def _try_to_send_plan_changes(self, member: MemberSession, report: OnError) -> None:
        try:
            if not self._ended and member.error is None:
                self._send_plan_changes(member, report)
        except Exception as error:  # noqa: BLE001 - the main loop raises unexpected errors
            report(error)
        finally:
            member.busy = False
            self._wake_main_loop()  # the plan may have changed during the call to the member

    def _update_control_feeder(
        self, member: MemberSession, feeds: tuple[Feed, ...], report: OnError
    ) -> None:
        """Replace the feeder if the stripes (data shares) that this machine sends have changed."""
        stripes = frozenset(feed.stripe for feed in feeds if not feed.parent)
        if stripes == member.stripes_from_control:
            return
        if member.feeder is not None:
            member.feeder.close()
        member.stripes_from_control, member.feeder = stripes, None
        if stripes:
            failed = self._make_feeder_callback(report)
            member.feeder = PieceFeeder(
                self.id, member.name, member.agent, self.source, self._count_sent_bytes, failed
            )

    def _count_sent_bytes(self, byte_count: int) -> None:
        self.control_sent_bytes += byte_count

    def _hash_source(self) -> None:
        """Hash the source, but stay at most SEGMENTS_AHEAD segments ahead of the fastest member."""
        ahead = SEGMENTS_AHEAD * SEGMENT * PIECE_BYTES
        try:
            for segment in range(self.source.cut.segment_count):
                while segment * SEGMENT * PIECE_BYTES > ahead + max(
                    (member.have_bytes for member in self._live_members()), default=0
                ):
                    if self._ended:
                        return
                    time.sleep(0.05)
                self._roots.append(self.source.hash_next_segment())
                self._stalled.hashed_at = time.monotonic()
                self._wake_main_loop()
            self.check_source()
            self._is_source_hashed = True
            self._wake_main_loop()
        except Exception as error:  # noqa: BLE001 - the main loop raises it
            self.source.error = error
