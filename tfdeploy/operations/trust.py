"""Scan the host keys of machines, and record the keys that the user confirms (`tfdeploy trust`).

If a machine's key differs from its recorded key, this is only reported. `replace_key` replaces the
recorded key of one machine, which the user must name.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.inventory import Hosts
from tfdeploy.transport.ssh.connect import Connector, OnNotice, drop_notice
from tfdeploy.transport.ssh.errors import copy_error, jump_host_error, refused_key_error
from tfdeploy.transport.ssh.host_keys import recording
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.trust import HostKey, list_route_targets
from tfdeploy.transport.ssh.trust import scan as scan_one

PARALLEL = 32  # machines that are scanned at once
Outcome = HostKey | TfdeployError


@dataclass(frozen=True)
class HostKeyScan:
    """The host key of one machine, or the error of the scan."""

    host: str  # the host's name in the inventory, or the host name of a jump host
    outcome: Outcome

    @property
    def state(self) -> str:
        """Return "known", "new", "changed", "revoked" or "unreachable"."""
        return self.outcome.state if isinstance(self.outcome, HostKey) else "unreachable"


def scan_host_keys(
    hosts: Hosts, parallel: int = PARALLEL, on_notice: OnNotice = drop_notice
) -> list[HostKeyScan]:
    """Return the host keys of all jump hosts, then those of `hosts` in order.

    Each machine is scanned only once, because sshd penalises connections without a login. A machine
    behind a jump host is scanned only if known_hosts already contains the key of the jump host.
    Otherwise, the caller must first record that key and then call this function again.
    """
    hops: dict[Target, str] = {}
    destinations: list[tuple[str, Target | TfdeployError]] = []
    for host in hosts:
        try:
            *jumps, target = list_route_targets(host)
        except TfdeployError as error:
            destinations.append((host.name, error))
            continue
        destinations.append((host.name, target))
        hops.update({hop: hop.hostname for hop in jumps if hop not in hops})
    entries = [*((name, hop) for hop, name in hops.items()), *destinations]
    machines: dict[Target, tuple[str, Target]] = {}
    for name, entry in entries:
        if isinstance(entry, Target):
            machines.setdefault(_without_login_fields(entry), (name, entry))
    with closing(Connector(on_notice=on_notice)) as connector:
        scans = _scan_by_jump_count(machines, parallel, connector)
    return [HostKeyScan(name, _outcome_for_host(scans, name, entry)) for name, entry in entries]


def _scan_by_jump_count(
    machines: dict[Target, tuple[str, Target]], parallel: int, connector: Connector
) -> dict[Target, Outcome]:
    """Scan the machines that need no jump host first, then those behind one jump host, and so on.

    Return {machine: its host key, or the error of the scan}.
    """
    scans: dict[Target, Outcome] = {}

    def scan_machine(machine: Target) -> Outcome:
        name, target = machines[machine]
        if (jump := target.jump) is not None:
            outcome = scans[_without_login_fields(jump)]
            if not isinstance(outcome, HostKey):
                return jump_host_error(outcome, jump, name)
            if outcome.state != "known":
                return jump_host_error(
                    refused_key_error(name, jump, outcome.keytype, outcome.key, outcome.judged),
                    jump,
                    name,
                )
        return _scan_or_error(name, target, connector)

    with ThreadPoolExecutor(parallel) as pool:
        for distance in sorted(set(map(_count_jumps, machines))):
            level = [machine for machine in machines if _count_jumps(machine) == distance]
            scans.update(zip(level, pool.map(scan_machine, level), strict=True))
    return scans


def _outcome_for_host(
    scans: dict[Target, Outcome], name: str, target: Target | TfdeployError
) -> Outcome:
    """Return the outcome of the scan of the host's machine, changed so that it names this host.

    Several hosts of the inventory may be the same machine, which is scanned only once.
    """
    if isinstance(target, TfdeployError):
        return target
    outcome = scans[_without_login_fields(target)]
    if isinstance(outcome, HostKey):
        return replace(outcome, target=target)
    error = copy_error(outcome)
    error.where = name
    return error


def _without_login_fields(target: Target) -> Target:
    """Return the target without the fields that only a login uses, to find equal machines."""
    return replace(
        target,
        user="",
        identity_files=(),
        identities_only=False,
        agent="",
        certificates=(),
        unused=(),
    )


def _count_jumps(target: Target) -> int:
    """Return the number of jump hosts on the way to the machine."""
    return 0 if target.jump is None else 1 + _count_jumps(target.jump)


def scan_by_name(hosts: Hosts, name: str, on_notice: OnNotice = drop_notice) -> HostKeyScan | None:
    """Scan the host of this name, or else the jump host of this name.

    Returns None if neither exists.
    """
    target = _find_target(hosts, name)
    if target is None:
        return None
    with closing(Connector(on_notice=on_notice)) as connector:
        return HostKeyScan(name, _scan_or_error(name, target, connector))


def _find_target(hosts: Hosts, name: str) -> Target | None:
    for host in hosts:
        if host.name == name:
            return list_route_targets(host)[-1]
    jumps = (jump for host in hosts for jump in list_route_targets(host)[:-1])
    return next((jump for jump in jumps if name in (jump.name, jump.hostname)), None)


def record_new_keys(results: Iterable[HostKeyScan]) -> list[HostKeyScan]:
    """Record each new key in `results` once, and return the results whose keys were recorded.

    Raises HostFailed if a key cannot be recorded.
    """
    recorded: dict[tuple[str, str, bytes], HostKeyScan] = {}
    for result in results:
        key = result.outcome
        if not isinstance(key, HostKey) or key.state != "new":
            continue
        path = known_hosts_file_to_write(result)
        entry = (path, key.name, key.key)
        if entry not in recorded:
            recording.append_key(path, key.name, key.line())
            recorded[entry] = result
    return list(recorded.values())


def replace_key(result: HostKeyScan) -> None:
    """Replace the recorded keys of the machine by the key in `result`. Raises HostFailed."""
    key = result.outcome
    assert isinstance(key, HostKey)
    known_hosts_file_to_write(result)
    recording.replace_key(
        key.files, key.name, key.line(), [entry.key for entry in key.judged.recorded]
    )


def known_hosts_file_to_write(result: HostKeyScan) -> str:
    """Return the known_hosts file in which to record the key.

    Raises HostFailed if the user has no such file.
    """
    assert isinstance(result.outcome, HostKey)
    if not result.outcome.files:
        raise HostFailed(
            "you have no known_hosts file in which the key can be recorded",
            where=result.host,
            next="set `known_hosts:` in the inventory",
        )
    return result.outcome.files[0]


def _scan_or_error(name: str, target: Target, connector: Connector) -> Outcome:
    try:
        return scan_one(name, target, connector)
    except TfdeployError as error:
        return error


def read_fingerprints(text: str) -> dict[str, str]:
    """Return {host: fingerprint} from the text of `--fingerprints FILE`.

    A line is `HOST SHA256:...`, or HOST followed by a line of the output of `ssh-keygen -lf`.
    """
    fingerprints: dict[str, str] = {}
    for line in text.splitlines():
        columns = line.split()
        hashes = [column for column in columns if column.startswith("SHA256:")]
        if hashes and not columns[0].startswith("#"):
            fingerprints[columns[0]] = hashes[0].rstrip("=")
    return fingerprints
