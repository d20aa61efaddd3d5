"""Collect the answer of `tfdeploy audit` from the hosts. Changes nothing.

The answer tells who did what, how ports and secrets were protected, and what is still on the hosts.
The answer is no proof, because a host can hide files and change its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from tfdeploy import __version__
from tfdeploy.agent import frames
from tfdeploy.errors import BadAnswer, TfdeployError
from tfdeploy.model.allowed import is_ip, is_name
from tfdeploy.model.answers.audit import AUDIT, AuditReport, Entry
from tfdeploy.model.audit_log import AuditLog, read_log
from tfdeploy.model.copy_fields import copy_fields
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.printed import AuditAnswer
from tfdeploy.model.output.rows import (
    AuditAdmittedRow,
    AuditEntryRow,
    AuditPortRow,
    AuditSecretRow,
    AuditVersionRow,
)
from tfdeploy.model.plan import Plan
from tfdeploy.model.text.words import iso_z
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.transport.protocols import Fleet, Session

MOST_LOG_BYTES = 4 << 20  # limit for one audit log, in bytes: twice what an agent sends
SILENCE_S = 60.0


@dataclass(frozen=True)
class Subject:
    """The subject of an audit: one run, or everything on the hosts (`run` is None).

    `plan` is the plan of the run, if known. `secret_paths` is {job: paths at which an older
    tfdeploy may have left secret files}, as withheld_files.secret_paths returns it.
    """

    run: str | None = None
    job: str | None = None
    plan: Plan | None = None
    secret_paths: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)

    def includes(self, entry: Entry) -> bool:
        """Return whether the audit covers this log entry."""
        return self.run is None or (entry.run == self.run and self.job in (None, entry.job))


@dataclass(frozen=True)
class HostAudit:
    """The answer of one host: its audit log, its present state, and its programs' versions."""

    log: AuditLog
    here: AuditReport
    versions: AuditVersionRow


Answers = Mapping[str, HostAudit]  # {host that answered: its answer}


def audit(
    fleet: Fleet, hosts: tuple[Host, ...], subject: Subject
) -> tuple[AuditAnswer, dict[str, TfdeployError]]:
    """Return the merged answer of the hosts, and the errors of hosts without an answer."""
    good, bad = split_outcomes(fleet.each(hosts, lambda session: _ask_host(session, subject)))
    left = [(host, each) for host, one in good.items() for each in one.here.left]
    faults = [(host, *fault) for host, one in good.items() for fault in one.log.faults]
    answer: AuditAnswer = {
        "run": subject.run,
        "ok": not left and not bad,
        "entries": _entry_rows(good, subject),
        "ports": _port_rows(subject.plan) if subject.plan is not None else [],
        "admitted": _admitted_rows(good),
        "secrets": _secret_rows(good, bad, subject),
        "left": [{"host": host, "kind": each.kind, "path": each.path} for host, each in left],
        "faults": [
            {"host": host, "line": line, "what": what, "harmless": True}
            for host, line, what in faults
        ],
        "versions": {"operator": __version__, "hosts": [one.versions for one in good.values()]},
        "errors": [{"host": host, "error": error.what} for host, error in bad.items()],
    }
    return answer, bad


def _ask_host(session: Session, subject: Subject) -> HostAudit:
    agent, host = session.agent(), session.host.name
    args = {
        "python": subject.plan.host(host).python if subject.plan is not None else "",
        "secret_files": subject.secret_paths,
        "run": subject.run,
        "job": subject.job,
    }
    stream = agent.stream(AUDIT, args, silence_s=SILENCE_S)
    contents = [_unpack_log(blob, host) for _, blob in islice(stream, 3)]
    if stream.value is None or len(contents) != 2:
        raise BadAnswer("its answer to audit does not hold exactly two log files", where=host)
    versions: AuditVersionRow = {
        "host": host,
        "tfdeploy": agent.hello.version,
        "agent": agent.hello.agent,
        "python": agent.hello.python_version,
        "tensorflow": stream.value.tensorflow,
    }
    return HostAudit(read_log(*contents), stream.value, versions)


def _unpack_log(blob: bytes, host: str) -> bytes:
    try:
        return frames.decompress(blob, MOST_LOG_BYTES)
    except frames.WireError as error:
        raise BadAnswer(f"its audit log cannot be read: {error}", where=host) from error


def _entry_rows(good: Answers, subject: Subject) -> list[AuditEntryRow]:
    """Return the log entries, sorted by time.

    Hosts that share a workdir share a log, so several hosts may report the same entry. Such an
    entry is listed once, for the host that is named in the entry.
    """
    entries: dict[bytes, AuditEntryRow] = {}
    for host, one in good.items():
        for entry in filter(subject.includes, one.log.entries):
            key = msgspec.json.encode(entry)
            if key not in entries or entry.host == host:
                given = {"time": iso_z(entry.time) or "", "host": host, "from": entry.client}
                entries[key] = copy_fields(AuditEntryRow, entry, **given)
    return sorted(entries.values(), key=lambda row: (row["time"].rstrip("Z"), row["host"]))


def _port_rows(plan: Plan) -> list[AuditPortRow]:
    used: list[tuple[str, int, str | None]] = [
        (host.host, host.mesh_port, None) for host in plan.hosts
    ]
    used += [(task.host, task.port, task.task) for task in plan.tasks if task.port is not None]
    rows: list[AuditPortRow] = [
        {"host": host, "port": port, "task": task, "protect": plan.protect.level_of(host)}
        for host, port, task in used
    ]
    return sorted(rows, key=lambda row: (row["host"], row["port"]))


def _admitted_rows(good: Answers) -> list[AuditAdmittedRow]:
    """Return the addresses that hosts have let in since the launch of the run.

    Rows without a valid address and name are dropped, because a host may send anything.
    """
    return [
        {"host": host, "address": each.address, "of": each.of}
        for host, one in good.items()
        for each in one.here.admitted
        if is_ip(each.address) and is_name(each.of)
    ]


def _secret_rows(
    good: Answers, bad: Mapping[str, TfdeployError], subject: Subject
) -> list[AuditSecretRow]:
    """Return a row for each secret that was sent to a host.

    `delivered` (the host got the secret) and `forgotten` (the host has deleted the secret) are None
    if the host did not answer. If the host's log has no entry about a secret, `delivered` is
    derived from the plan and the files on the host.
    """
    rows: dict[tuple[str, str, str], AuditSecretRow] = {}

    def add(host: str, run: str, name: str, delivered: bool | None, forgotten: bool | None) -> None:
        rows[host, run, name] = {
            "host": host,
            "run": run,
            "name": name,
            "delivered": delivered,
            "forgotten": forgotten,
        }

    held = {host: _runs_with_secrets(host, one, good) for host, one in good.items()}
    if (plan := subject.plan) is not None:
        for host in (name for name in plan.host_names if name in good or name in bad):
            is_held = (plan.job, plan.run) in held.get(host, ())
            for name in plan.secrets:
                add(
                    host, plan.run, name, *((None, None) if host in bad else (is_held, not is_held))
                )
    for host, one in good.items():
        for entry in one.log.entries:
            # The entry belongs to another host that shares the log and has answered.
            is_shared = entry.host != host and entry.host in good
            if entry.run is not None and not is_shared and subject.run in (None, entry.run):
                for name in entry.secrets:
                    add(host, entry.run, name, True, (entry.job, entry.run) not in held[host])
    return [rows[key] for key in sorted(rows)]


def _runs_with_secrets(host: str, one: HostAudit, good: Answers) -> set[tuple[str, str]]:
    """Return (job, run) of each run whose secrets are on the host.

    Secrets of another host that shares the workdir are left out, if that host has answered.
    """
    return {
        (each.job, each.run) for each in one.here.held if each.host == host or each.host not in good
    }
