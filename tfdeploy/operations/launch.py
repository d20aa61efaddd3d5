"""`tfdeploy launch`: lock, probe, plan, sync, prepare, start, commit. All or nothing before commit.

From commit on the run belongs to its hosts: nothing here is needed any more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.errors import AgentError, PortTaken, Refused, TfdeployError
from tfdeploy.model.answers.hosts import PING
from tfdeploy.model.answers.runs import RUN_ABORT, RUN_COMMIT, RUN_PREPARE, RUN_START
from tfdeploy.model.answers.verb import Verb
from tfdeploy.model.events import Emit, Event
from tfdeploy.model.hostplan import for_hosts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Secret
from tfdeploy.model.plan import Plan, plan_to_json
from tfdeploy.model.planform import plan_to_file
from tfdeploy.operations.ask import ask_all
from tfdeploy.operations.copy.copy_keep import Spread, spread_keep
from tfdeploy.operations.deletions import Agree, never
from tfdeploy.operations.emit import host_news, note, step
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.launching.certificates import certificates
from tfdeploy.operations.launching.clocks import compare_clocks
from tfdeploy.operations.launching.reachability import check_links, open_to_us
from tfdeploy.operations.launching.readiness import await_up, check
from tfdeploy.operations.launching.renewal import Renewal, has_lapsed, is_told, lapsed
from tfdeploy.operations.lock import locked
from tfdeploy.operations.outcomes import all_or_error, split, together
from tfdeploy.operations.probe import probe
from tfdeploy.operations.setup import recipe_of
from tfdeploy.operations.sync import Shipment, TreeChanged, read_shipment, refused, sync
from tfdeploy.planning.host_parts import host_parts, shared_part
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import hosts_to_probe, make_plan, wished_roles
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet

PING_S = 10.0
TRIES = 3  # a port taken or a file changed in between: probe and plan again
MAX_SOURCE_BYTES = 1 << 20


@dataclass(frozen=True)
class Launch:
    """What is asked for. `now` is UTC seconds; `run` names it; `holder` says who asks, for the lock."""

    inventory: Inventory
    job: Job
    run: str
    now: float
    operator: str
    holder: dict[str, Any]
    options: Options = field(default_factory=Options)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    sync: bool = True
    agree: Agree = never  # to the deletion of most of a data set
    cache: Path | None = None
    setup: str | None = None  # digest of the recipe of the job's environment; found by launch
    aside: tuple[Host, ...] = ()  # hosts of the inventory that the mode has no use for; found by launch


def plan_only(asked: Launch, fleet: Fleet, emit: Emit) -> Plan:
    """`--dry-run`: probes and plans; locks nothing, sends nothing but the agent."""
    asked = _checked(asked)
    return _plan(asked, fleet, read_shipment(asked.job, asked.cache), emit)


def launch(asked: Launch, fleet: Fleet, store: RunStore, emit: Emit) -> Plan:
    """The plan of a run that is up on all its hosts and committed. Raises TfdeployError: then nothing runs."""
    asked = _checked(asked)
    lock = locked(fleet, asked.inventory.hosts, asked.job.name, "launch", asked.holder, emit)
    with step(emit, "lock", asked.run):
        lock.__enter__()
    try:
        with Renewal(fleet) as renewal:
            plan = _prepared(asked, fleet, renewal, emit)
            _come_up(plan, fleet, store, emit)
    except BaseException:
        lock.__exit__(None, None, None)
        raise
    try:
        lock.__exit__(None, None, None)
    except KeyboardInterrupt:  # the point of no return is behind us
        text = f"interrupted when all was up: {plan.run} goes on, and `tfdeploy stop {plan.run}` ends it"
        note(emit, text, level="warning", run=plan.run)
    return plan


def _come_up(plan: Plan, fleet: Fleet, store: RunStore, emit: Emit) -> None:
    """Start and commit of what is prepared on all hosts, or nothing of it is left."""
    started = committing = False
    try:
        store.save(plan)
        with step(emit, "start", plan.run):
            all_or_error("start", ask_all(fleet, plan, PING, timeout_s=PING_S))  # nothing starts unless all hosts are there
            started = True
            if over := _everywhere(fleet, plan, RUN_START, "started", emit):
                if any(is_told(error) for error in over.values()):
                    check(fleet, plan, emit)
                raise lapsed(over, len(plan.hosts))
            await_up(fleet, plan, emit)
        committing = True
        with step(emit, "commit", plan.run):
            if _everywhere(fleet, plan, RUN_COMMIT, "committed", emit):
                check(fleet, plan, emit)
    except BaseException as error:
        roll_back(fleet, plan, emit, _reason(error), purge=not started, committing=committing)
        raise


def _checked(asked: Launch) -> Launch:
    """With the hosts that the mode has a use for. Roles that make no cluster are refused before any host is bothered."""
    wished_roles(asked.inventory, asked.job, asked.options)
    wanted = hosts_to_probe(asked.inventory, asked.job.mode)
    hosts = tuple(host for host in asked.inventory.hosts if host.name in wanted)
    aside = tuple(host for host in asked.inventory.hosts if host.name not in wanted)
    recipe = recipe_of(asked.job, asked.cache)
    inventory = replace(asked.inventory, hosts=hosts)
    return replace(asked, inventory=inventory, aside=aside, setup=recipe.digest if recipe else None)


def _prepared(asked: Launch, fleet: Fleet, renewal: Renewal, emit: Emit) -> Plan:
    """Probe, plan, sync, prepare; again when a port was taken or a file changed in between."""
    for left in reversed(range(TRIES)):
        shipment = read_shipment(asked.job, asked.cache)
        plan = _plan(asked, fleet, shipment, emit)
        try:
            if asked.sync:
                with step(emit, "sync", asked.run):
                    all_or_error("sync", refused(fleet, hosts_of(plan), shipment, asked.agree))
                    all_or_error("sync", sync(fleet, hosts_of(plan), shipment, emit))
            with step(emit, "prepare", asked.run):
                _spread(asked, plan, fleet, emit)
                renewal.of(plan)
                _prepare(asked, plan, fleet, emit)
            return plan
        except (PortTaken, TreeChanged) as error:
            if not left:
                raise
            note(emit, f"{error.what}: probing and planning again", level="warning", run=asked.run)
    raise AssertionError("unreachable")


def _spread(asked: Launch, plan: Plan, fleet: Fleet, emit: Emit) -> None:
    if plan.keep_from is not None:
        spread = Spread(plan.job, plan.keep, asked.inventory.host(plan.keep_from), plan.run)
        spread_keep(fleet, spread, hosts_of(plan), emit)


def _plan(asked: Launch, fleet: Fleet, shipment: Shipment, emit: Emit) -> Plan:
    with step(emit, "probe", asked.run):
        aside = asked.aside if asked.job.keep and not asked.options.ignore_keep else ()
        kept = asked.job.keep
        facts = probe(fleet, asked.inventory.hosts, job=asked.job.name, keep=kept, setup=asked.setup, aside=aside, emit=emit)
    with step(emit, "plan", asked.run):
        plan = make_plan(
            asked.inventory,
            asked.job,
            facts,
            release=shipment.manifest.release,
            sources=_sources(shipment),
            run=asked.run,
            now=asked.now,
            operator=asked.operator,
            options=replace(
                asked.options,
                sync=asked.sync,
                needed_bytes=shipment.manifest.total_bytes,
                files=frozenset(entry.path for entry in shipment.manifest.entries),
                file_data=frozenset(name for name, data in shipment.data.items() if not data.is_folder),
            ),
        )
        emit(Event("plan", time.time(), run=plan.run, data=plan_to_json(plan)))
        for told in plan.notes:
            note(emit, told, run=plan.run)
        note(emit, f"training goes on from {plan.resume}" if plan.resume else "training starts from zero", run=plan.run)
        for warning in shipment.manifest.warnings:
            note(emit, warning, level="warning", run=plan.run)
    return plan


def _sources(shipment: Shipment) -> dict[str, str]:
    """The Python files of the release: planning reads their syntax trees and opens no file itself."""
    texts = {}
    for entry in shipment.manifest.entries:
        if entry.path.endswith((".py", ".sh")) and entry.kind != "link" and entry.size <= MAX_SOURCE_BYTES:
            try:
                content = Path(os.fsdecode(os.path.join(shipment.manifest.root, entry.path))).read_bytes()
            except OSError:
                continue
            texts[entry.path] = content.decode("utf-8", "replace")
    return texts


def _prepare(asked: Launch, plan: Plan, fleet: Fleet, emit: Emit) -> None:
    parts = host_parts(plan, compare_clocks(fleet, plan))
    certs = certificates(plan.run, parts)
    secrets = {name: secret.reveal() for name, secret in asked.secrets.items()}
    shared = _text({"plan": plan_to_file(for_hosts(plan)), "part": shared_part(plan)})
    packed = wire.pack(shared)

    def blob(host: str) -> bytes:
        own = _text({"part": wire.to_wire(parts[host]), "secrets": secrets, "certs": certs[host]})
        long_bytes, most_bytes = len(own) + len(shared), wire.MAX_PACKED_BYTES
        if long_bytes > most_bytes:
            what = f"the plan has {long_bytes:,} bytes, and a host takes at most {most_bytes:,}"
            raise Refused(what, where=host, next="write the long words of `command` and `env` to files of the code")
        return wire.pack(own) + packed

    try:
        results = ask_all(fleet, plan, RUN_PREPARE, blob=blob, timeout_s=300)
        good, bad = split(results)
        for host in good:
            host_news(emit, host, "prepared", run=plan.run)
        if bad:
            raise _prepare_error(bad, len(results))
        check_links(fleet, plan)
        if told := open_to_us(plan):
            note(emit, told, run=plan.run)
    except BaseException as error:
        roll_back(fleet, plan, emit, _reason(error), purge=True)
        raise


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _prepare_error(bad: dict[str, TfdeployError], of: int) -> TfdeployError:
    """PortTaken where nothing else is in the way. Refused alone hides no failure of another host."""
    found = {host: _as_refused(host, error) for host, error in bad.items()}
    other = [error for error in found.values() if not isinstance(error, PortTaken)]
    if all(isinstance(error, Refused) for error in other):
        return next(iter(other or found.values()))
    return together("prepare", found, of)


def _as_refused(host: str, error: TfdeployError) -> TfdeployError:
    code = error.code if isinstance(error, AgentError) else None
    if code == "port_taken":
        return PortTaken(f"a port was taken since the probe: {error.what}", where=host, next=error.next)
    if code in ("live_run", "exists", "refused", "no_release", "no_program", "disk"):
        return Refused(error.what, where=error.where or host, next=error.next)
    return error


def _everywhere(fleet: Fleet, plan: Plan, verb: Verb[Any], said: str, emit: Emit) -> dict[str, TfdeployError]:
    """The verb on all hosts. Returns the hosts that say that the run has ended there, or that they do not know it any more."""
    good, bad = split(ask_all(fleet, plan, verb))
    for host in good:
        host_news(emit, host, said, run=plan.run)
    over = {host: error for host, error in bad.items() if has_lapsed(error)}
    if broken := {host: error for host, error in bad.items() if host not in over}:
        raise together(verb.name.removeprefix("run."), broken, len(plan.hosts))
    return over


def roll_back(fleet: Fleet, plan: Plan, emit: Emit, reason: str, *, purge: bool, committing: bool = False) -> None:
    """Ends all of the run everywhere. What cannot be reached ends by itself within a minute, unless its commit arrived."""
    otherwise = (
        f"if the commit reached it, it goes on: tfdeploy stop {plan.run}" if committing else "it ends by itself within 60 s"
    )
    with step(emit, "rollback", plan.run):
        digest = plan.digest
        args = {host.host: {"reason": reason, "purge": purge, "plan_digest": digest} for host in plan.hosts}
        _, bad = split(ask_all(fleet, plan, RUN_ABORT, args, patience_s=30, timeout_s=90))
        for host, error in bad.items():
            note(emit, f"could not be told to roll back ({error.what}); {otherwise}", level="warning", host=host)


def _reason(error: BaseException) -> str:
    return error.what.splitlines()[0] if isinstance(error, TfdeployError) else "launch was interrupted"
