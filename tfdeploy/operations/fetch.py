"""`tfdeploy fetch`: checkpoints, what a program left behind, and logs of a run, from all its hosts at once.

    DIR/keep/<path>          from the host that holds the newest of it
    DIR/files/<host>/<path>  what each program left in its working directory, outside keep
    DIR/logs/worker-0@n3.log

What one host lacks does not keep the others from completing. The run may be live.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.events import Emit
from tfdeploy.model.listing import newest
from tfdeploy.model.plan import Plan
from tfdeploy.operations.copy.pull import Brought, Listing, Source, bring, look
from tfdeploy.operations.copy.pull_logs import bring_logs
from tfdeploy.operations.emit import note, transfer_news
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import Fleet, Session

PARTS = ("keep", "files", "logs")
CLOCK_S = 2.0  # what two hosts' clocks may differ by after they were compared


@dataclass(frozen=True)
class FetchOptions:
    """`only`: these hosts alone are asked; None: all hosts of the run."""

    to: Path
    parts: tuple[str, ...] = PARTS
    overwrite: bool = False
    only: frozenset[str] | None = None


@dataclass
class Fetched:
    """Every host's outcome, and where the kept folders came from (None: nowhere has any)."""

    hosts: dict[str, Brought | TfdeployError]
    keep_from: str | None = None
    others: list[str] = field(default_factory=list)  # hosts whose older or other kept files were not brought


@dataclass(frozen=True)
class Seen:
    """What a host has, before anything is brought."""

    keep: Listing | None
    files: Listing | None
    clock_skew_s: float


def fetch(fleet: Fleet, plan: Plan, options: FetchOptions, emit: Emit) -> Fetched:
    """Raises UsageError where no host is left to ask; what goes wrong on hosts stands in the result."""
    hosts = tuple(host for host in hosts_of(plan) if options.only is None or host.name in options.only)
    if not hosts:
        raise UsageError(f"no host of {plan.run} is meant", where="--limit/--exclude", next=f"it ran on {_names(plan)}")
    keep, files = Source("keep", plan.job, keep=plan.keep), Source("files", plan.job, plan.run)

    def see(session: Session) -> Seen:
        kept = look(session, keep) if "keep" in options.parts and plan.keep else None
        left = look(session, files) if "files" in options.parts else None
        return Seen(kept, left, session.agent().clock_skew_s)

    seen, failed = split(fleet.each(hosts, see))
    chosen = newest_host(seen, deciding_host(plan))
    sharers = _first_of_those_that_share(seen)

    def one(session: Session) -> Brought:
        began, name = time.monotonic(), session.host.name
        brought = Brought()
        if "logs" in options.parts:
            brought.add(bring_logs(session, plan, options.to / "logs", emit))
        if name in sharers:
            brought.add(bring(session, files, options.to / "files" / name, emit, overwrite=options.overwrite, within=options.to))
        if name == chosen:
            brought.add(bring(session, keep, options.to / "keep", emit, overwrite=options.overwrite))
        brought.seconds = time.monotonic() - began
        _done(emit, name, brought)
        return brought

    if chosen is not None and failed and "keep" in options.parts:
        note(emit, f"kept files are taken from {chosen}; a newer one may be on {', '.join(failed)}", level="warning")
    reached = tuple(host for host in hosts if host.name in seen)
    results = {**failed, **fleet.each(reached, one)}
    others = [name for name, what in seen.items() if name != chosen and what.keep is not None and what.keep.found]
    return Fetched({host.name: results[host.name] for host in hosts}, chosen, others)


def _names(plan: Plan) -> str:
    return ", ".join(host.host for host in plan.hosts[:12])


def deciding_host(plan: Plan) -> str | None:
    return next((task.host for task in plan.tasks if task.deciding), None)


def newest_host(seen: Mapping[str, Seen], prefer: str | None) -> str | None:
    """Where the newest checkpoint is, by the control machine's clock; without one, `prefer`, else where the newest file is.

    Clocks are only known to within a moment: of those as good as the newest it is `prefer`, or else always the same one.
    """
    having = {name: newest(what.keep.found) for name, what in seen.items() if what.keep is not None and what.keep.found}
    records = {name: record / 1e9 - seen[name].clock_skew_s for name, (record, _) in having.items() if record}
    latest = max(records.values(), default=0.0)
    good = [name for name in sorted(records or having) if not records or records[name] >= latest - CLOCK_S]
    return prefer if prefer in good else max(good, key=having.__getitem__, default=None)


def _first_of_those_that_share(seen: Mapping[str, Seen]) -> set[str]:
    """One host of each workdir: hosts that share one have the same files."""
    firsts: set[str] = set()
    for name, what in seen.items():
        if what.files is not None and what.files.found and not firsts & set(what.files.sharing):
            firsts.add(name)
    return firsts


def _done(emit: Emit, host: str, brought: Brought) -> None:
    transfer_news(emit, host, "all", "done", brought.bytes_received, brought.bytes_received, done="fetched")
