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
from tfdeploy.model.answers.audit import AUDIT, AuditEntry, AuditLog, AuditReport, parse_audit_log
from tfdeploy.model.answers.clean import SecretPathsByJob
from tfdeploy.model.inventory import Hosts
from tfdeploy.model.output.printed import AuditAnswer
from tfdeploy.model.output.rows import (
    AuditAdmittedRow,
    AuditEntryRow,
    AuditPortRow,
    AuditSecretRow,
    AuditVersionRow,
)
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.text.allowed import is_ip, is_name
from tfdeploy.text.row_values import copy_fields, iso_z
from tfdeploy.transport.protocols import Errors, Fleet, Session

# A host's answer is refused if one of its two audit logs is larger than this number of bytes. An
# agent renames a log that reaches 1 MiB, so a correct log is far below this limit.
MOST_LOG_BYTES = 4 << 20
SILENCE_S = 60.0


@dataclass(frozen=True)
class AuditSubject:
    """The subject of an audit: one run, or everything on the hosts (`run` is None).

    `plan` is the plan of the run, if known. `secret_paths_by_job` is a result of
    `possibly_sent_secret_paths`: paths at which an older tfdeploy may have left secret files.
    """

    run: str | None = None
    job: str | None = None
    plan: Plan | None = None
    secret_paths_by_job: SecretPathsByJob = field(default_factory=dict)

    def includes(self, entry: AuditEntry) -> bool:
        """Return whether the audit covers this log entry."""
        return self.run is None or (entry.run == self.run and self.job in (None, entry.job))


@dataclass(frozen=True)
class HostAudit:
    """The answer of one host: its audit log, its present state, and its programs' versions."""

    log: AuditLog
    host_state: AuditReport
    versions: AuditVersionRow


Audits = Mapping[str, HostAudit]  # the answers by host name; hosts that did not answer are missing


def audit(fleet: Fleet, hosts: Hosts, subject: AuditSubject) -> tuple[AuditAnswer, Errors]:
    """Return the merged answer of the hosts, and the errors of hosts without an answer."""
    audits, errors = split_outcomes(
        fleet.each(hosts, lambda session: _audit_host(session, subject))
    )
    leftovers = [
        (host, each) for host, host_audit in audits.items() for each in host_audit.host_state.left
    ]
    faults = [
        (host, *fault) for host, host_audit in audits.items() for fault in host_audit.log.faults
    ]
    answer: AuditAnswer = {
        "run": subject.run,
        "ok": not leftovers and not errors,
        "entries": _entry_rows(audits, subject),
        "ports": _port_rows(subject.plan) if subject.plan is not None else [],
        "admitted": _admitted_address_rows(audits),
        "secrets": _secret_rows(audits, errors, subject),
        "left": [{"host": host, "kind": each.kind, "path": each.path} for host, each in leftovers],
        "faults": [
            {"host": host, "line": line, "what": problem, "harmless": True}
            for host, line, problem in faults
        ],
        "versions": {
            "operator": __version__,
            "hosts": [host_audit.versions for host_audit in audits.values()],
        },
        "errors": [{"host": host, "error": error.what} for host, error in errors.items()],
    }
    return answer, errors


def _audit_host(session: Session, subject: AuditSubject) -> HostAudit:
    agent, host = session.agent(), session.host.name
    args = {
        "python": subject.plan.host(host).python if subject.plan is not None else "",
        "secret_files": subject.secret_paths_by_job,
        "run": subject.run,
        "job": subject.job,
    }
    stream = agent.stream(AUDIT, args, silence_s=SILENCE_S)
    contents = [_unpack_log(blob, host) for _, blob in islice(stream, 3)]
    if stream.value is None or len(contents) != 2:
        raise BadAnswer("the host's answer to audit does not have exactly two logs", where=host)
    versions: AuditVersionRow = {
        "host": host,
        "tfdeploy": agent.hello.version,
        "agent": agent.hello.agent,
        "python": agent.hello.python_version,
        "tensorflow": stream.value.tensorflow,
    }
    return HostAudit(parse_audit_log(*contents), stream.value, versions)


def _unpack_log(blob: bytes, host: str) -> bytes:
    try:
        return frames.decompress(blob, MOST_LOG_BYTES)
    except frames.WireError as error:
        raise BadAnswer(f"the host's audit log cannot be read: {error}", where=host) from error


def _entry_rows(audits: Audits, subject: AuditSubject) -> list[AuditEntryRow]:
    """Return the log entries, sorted by time.

    Hosts that share a workdir share a log, so several hosts may report the same entry. Such an
    entry is listed once, for the host that is named in the entry.
    """
    entries: dict[bytes, AuditEntryRow] = {}
    for host, host_audit in audits.items():
        for entry in filter(subject.includes, host_audit.log.entries):
            key = msgspec.json.encode(entry)
            if key not in entries or entry.host == host:
                own_fields = {"time": iso_z(entry.time) or "", "host": host, "from": entry.client}
                entries[key] = copy_fields(AuditEntryRow, entry, **own_fields)
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


def _admitted_address_rows(audits: Audits) -> list[AuditAdmittedRow]:
    """Return the addresses that hosts have admitted to the run's ports since its launch.

    A host may send anything, so rows are dropped if their address or name is invalid.
    """
    return [
        {"host": host, "address": each.address, "of": each.of}
        for host, host_audit in audits.items()
        for each in host_audit.host_state.admitted
        if is_ip(each.address) and is_name(each.of)
    ]


def _secret_rows(
    audits: Audits, errors: Mapping[str, TfdeployError], subject: AuditSubject
) -> list[AuditSecretRow]:
    """Return a row for each secret that was sent to a host, sorted by host, run and name.

    `delivered` (the host got the secret) and `forgotten` (the host has deleted the secret) are None
    if the host did not answer. If the host's log has no entry about a secret, `delivered` is
    derived from the plan and the files on the host.
    """
    # {(host, run, secret): (delivered, forgotten)}
    secrets: dict[tuple[str, str, str], tuple[bool | None, bool | None]] = {}
    runs_with_secrets = {
        host: _runs_with_secrets(host, host_audit, audits) for host, host_audit in audits.items()
    }
    if (plan := subject.plan) is not None:
        for host in (name for name in plan.host_names if name in audits or name in errors):
            is_held = (plan.job, plan.run) in runs_with_secrets.get(host, ())
            for name in plan.secrets:
                secrets[host, plan.run, name] = (
                    (None, None) if host in errors else (is_held, not is_held)
                )
    for host, host_audit in audits.items():
        for entry in host_audit.log.entries:
            # Hosts may share one log, so this log may contain an entry about another host. If that
            # other host has answered too, the entry is skipped here and taken from its answer.
            is_shared = entry.host != host and entry.host in audits
            if entry.run is not None and not is_shared and subject.run in (None, entry.run):
                is_held = (entry.job, entry.run) in runs_with_secrets[host]
                for name in entry.secrets:
                    secrets[host, entry.run, name] = (True, not is_held)
    return [
        {"host": host, "run": run, "name": name, "delivered": delivered, "forgotten": forgotten}
        for (host, run, name), (delivered, forgotten) in sorted(secrets.items())
    ]


def _runs_with_secrets(host: str, host_audit: HostAudit, audits: Audits) -> set[tuple[str, str]]:
    """Return (job, run) of each run whose secrets are on the host.

    Hosts may share a workdir, so a host may report secrets of another host. They are left out if
    the other host has answered too, because its own answer contains them.
    """
    return {
        (each.job, each.run)
        for each in host_audit.host_state.held
        if each.host == host or each.host not in audits
    }
