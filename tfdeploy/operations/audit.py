"""`tfdeploy audit`: who did what on the hosts, how ports and secrets were kept, and what is left. Reads only.

A host may lie about itself: it can hide what it has, and change its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tfdeploy.agent import frames
from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.model.allowed import is_ip, is_name
from tfdeploy.model.answers.audit import AUDIT, AuditHere, Entry
from tfdeploy.model.audit_log import AuditLog, read_log
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.model.rows import (
    AuditAdmittedRow,
    AuditEntryRow,
    AuditFaultRow,
    AuditLeftRow,
    AuditPortRow,
    AuditSecretRow,
    AuditVersionRow,
)
from tfdeploy.model.words import iso_z
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import Fleet, Session

MOST_LOG_BYTES = 4 << 20  # of one file: twice what an agent sends
SILENCE_S = 60.0


@dataclass(frozen=True)
class Subject:
    """What the audit is about. `run` None: all that the hosts have. `plan`: the run's, where it is known. `secret_paths`: by
    job, as withheld_files.secret_paths returns them."""

    run: str | None = None
    job: str | None = None
    plan: Plan | None = None
    secret_paths: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostAudit:
    """What one host says."""

    log: AuditLog
    here: AuditHere
    versions: AuditVersionRow


@dataclass(frozen=True)
class Audit:
    """`errors`: hosts that gave no answer."""

    subject: Subject
    entries: tuple[AuditEntryRow, ...] = ()
    ports: tuple[AuditPortRow, ...] = ()
    admitted: tuple[AuditAdmittedRow, ...] = ()
    secrets: tuple[AuditSecretRow, ...] = ()
    left: tuple[AuditLeftRow, ...] = ()
    faults: tuple[AuditFaultRow, ...] = ()
    versions: tuple[AuditVersionRow, ...] = ()
    errors: Mapping[str, TfdeployError] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Nothing is left on the hosts that answered."""
        return not self.left

    @property
    def ok(self) -> bool:
        return self.clean and not self.errors


def audit(fleet: Fleet, hosts: tuple[Host, ...], subject: Subject) -> Audit:
    """`hosts`: those to ask; with a plan, hosts of the run that are not among them count as unasked."""
    results = fleet.each(hosts, lambda session: _ask(session, subject))
    good, bad = split(results)
    return Audit(
        subject=subject,
        entries=_entries(good, subject),
        ports=_ports(subject.plan) if subject.plan is not None else (),
        admitted=_admitted(good),
        secrets=_secrets(good, bad, subject),
        left=tuple({"host": host, "kind": each.kind, "path": each.path} for host, one in good.items() for each in one.here.left),
        faults=_faults(good),
        versions=tuple(one.versions for one in good.values()),
        errors=bad,
    )


def _ask(session: Session, subject: Subject) -> HostAudit:
    agent, host = session.agent(), session.host.name
    args: dict[str, object] = {"python": _python(subject.plan, host)}
    args |= {"secret_files": subject.secret_paths} if subject.secret_paths else {}
    if subject.run is not None:
        args |= {"run": subject.run, "job": subject.job or ""}
    stream = agent.stream(AUDIT, args, silence_s=SILENCE_S)
    contents = [_unpacked(blob, host) for _, blob in islice(stream, 3)]
    if stream.value is None or len(contents) != 2:
        raise BadAnswer("its answer to audit has not two files of its log", where=host)
    hello = agent.hello
    versions: AuditVersionRow = {
        "host": host,
        "tfdeploy": hello.version,
        "agent": hello.agent,
        "python": hello.python_version,
        "tensorflow": stream.value.tensorflow,
    }
    return HostAudit(read_log(*contents), stream.value, versions)


def _python(plan: Plan | None, host: str) -> str:
    return next((each.python for each in plan.hosts if each.host == host), "") if plan is not None else ""


def _unpacked(blob: bytes, host: str) -> bytes:
    try:
        return frames.unpack(blob, MOST_LOG_BYTES)
    except frames.WireError as error:
        raise BadAnswer(f"its audit log cannot be read: {error}", where=host) from error


def _entries(good: Mapping[str, HostAudit], subject: Subject) -> tuple[AuditEntryRow, ...]:
    """By time. Hosts that share a workdir share a log: an entry that several show is listed once, for the host that it names."""
    found: dict[Any, AuditEntryRow] = {}
    for host, one in good.items():
        for entry in one.log.entries:
            if subject.run is not None and (entry.run != subject.run or subject.job not in (None, entry.job)):
                continue
            row = _entry_row(host, entry)
            key = (entry.time, entry.host, entry.command, entry.verb, entry.job, entry.run, entry.outcome)
            if key not in found or entry.host == host:
                found[key] = row
    return tuple(sorted(found.values(), key=lambda row: (row["time"].rstrip("Z"), row["host"])))


def _entry_row(host: str, entry: Entry) -> AuditEntryRow:
    return {
        "time": iso_z(entry.time) or "",
        "host": host,
        "operator": entry.operator,
        "user": entry.user,
        "from": entry.client,
        "key": entry.key,
        "key_by": entry.key_by,
        "verb": entry.verb,
        "job": entry.job,
        "run": entry.run,
        "outcome": entry.outcome,
        "version": entry.version,
    }


def _ports(plan: Plan) -> tuple[AuditPortRow, ...]:
    found: list[AuditPortRow] = [
        {"host": host.host, "port": host.mesh_port, "task": None, "protect": plan.protect.level_of(host.host)}
        for host in plan.hosts
    ]
    found += [
        {"host": task.host, "port": task.port, "task": task.task, "protect": plan.protect.level_of(task.host)}
        for task in plan.tasks
        if task.port is not None
    ]
    return tuple(sorted(found, key=lambda row: (row["host"], row["port"])))


def _admitted(good: Mapping[str, HostAudit]) -> tuple[AuditAdmittedRow, ...]:
    """Return the rows with a valid address and name: a host may say anything."""
    return tuple(
        {"host": host, "address": each.address, "of": each.of}
        for host, one in good.items()
        for each in one.here.admitted
        if is_ip(each.address) and is_name(each.of)
    )


def _secrets(good: Mapping[str, HostAudit], bad: Mapping[str, TfdeployError], subject: Subject) -> tuple[AuditSecretRow, ...]:
    """A row for each secret that a host got. `delivered` and `forgotten` are null where the host did not answer."""
    found: dict[tuple[str, str, str], AuditSecretRow] = {}
    for host, one in good.items():
        held = _held(host, one, good)
        for entry in one.log.entries:
            shared = entry.host != host and entry.host in good  # a log that hosts share names them
            if entry.run is None or shared or (subject.run is not None and entry.run != subject.run):
                continue
            for name in entry.secrets:
                gone = (entry.job, entry.run) not in held
                found[host, entry.run, name] = {
                    "host": host,
                    "run": entry.run,
                    "name": name,
                    "delivered": True,
                    "forgotten": gone,
                }
    if subject.plan is not None:
        _add_planned(found, subject.plan, good, bad)
    return tuple(found[key] for key in sorted(found))


def _held(host: str, one: HostAudit, good: Mapping[str, HostAudit]) -> set[tuple[str, str]]:
    """(job, run) whose secrets lie there, without those of other hosts that share its workdir."""
    return {(each.job, each.run) for each in one.here.held if each.host == host or each.host not in good}


def _add_planned(
    found: dict[tuple[str, str, str], AuditSecretRow],
    plan: Plan,
    good: Mapping[str, HostAudit],
    bad: Mapping[str, TfdeployError],
) -> None:
    """Of hosts without an answer, and of those whose log lost or never had the entry, the plan says what they got."""
    for host in (each.host for each in plan.hosts if each.host in good or each.host in bad):
        held = host in good and (plan.job, plan.run) in _held(host, good[host], good)
        for name in plan.secrets:
            delivered, forgotten = (None, None) if host in bad else (held, not held)
            row: AuditSecretRow = {"host": host, "run": plan.run, "name": name, "delivered": delivered, "forgotten": forgotten}
            found.setdefault((host, plan.run, name), row)


def _faults(good: Mapping[str, HostAudit]) -> tuple[AuditFaultRow, ...]:
    return tuple(
        {"host": host, "line": fault.line, "what": fault.what, "harmless": True}
        for host, one in good.items()
        for fault in one.log.faults
    )
