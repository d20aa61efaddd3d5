"""`tfdeploy trust`: shows the fingerprints of unknown host keys, and records the keys that the user confirms.

A changed key is reported; only `renew`, for one machine that the user names, replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import recording
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.trust import HostKey, targets
from tfdeploy.transport.ssh.trust import scan as scan_one

PARALLEL = 32


@dataclass(frozen=True)
class ScanResult:
    """One machine's host key, or the error of asking for it. `host`: its name in the inventory, or the jump host's name."""

    host: str
    found: HostKey | TfdeployError

    @property
    def state(self) -> str:
        """known, new, changed, revoked or unreachable."""
        return self.found.state if isinstance(self.found, HostKey) else "unreachable"


def scan(hosts: tuple[Host, ...], parallel: int = PARALLEL) -> list[ScanResult]:
    """The host keys of the jump hosts, then of all hosts in order, each once.

    A host behind a jump host whose key is unknown is reported as unreachable: record the jump host's key, scan again.
    """
    first: dict[Target, str] = {}
    last: list[tuple[str, Target | TfdeployError]] = []
    for host in hosts:
        try:
            *hops, target = targets(host)
        except TfdeployError as error:
            last.append((host.name, error))
            continue
        last.append((host.name, target))
        first.update({hop: hop.hostname for hop in hops if hop not in first})
    connector = Connector()

    def ask(asked: tuple[str, Target | TfdeployError]) -> ScanResult:
        return _ask(*asked, connector)

    try:
        with ThreadPoolExecutor(parallel) as pool:
            return [
                *pool.map(ask, ((name, target) for target, name in first.items())),
                *pool.map(ask, last),
            ]
    finally:
        connector.close()


def find_machine(hosts: tuple[Host, ...], name: str) -> ScanResult | None:
    """The host key of one host, or of the jump host of that name. None: there is no such machine."""
    behind = (host for host in hosts if any(name in (hop.name, hop.hostname) for hop in targets(host)[:-1]))
    asked = next((host for host in hosts if host.name == name), None) or next(behind, None)
    if asked is None:
        return None
    hops = targets(asked)
    target = hops[-1] if asked.name == name else next(hop for hop in hops if name in (hop.name, hop.hostname))
    connector = Connector()
    try:
        return _ask(name, target, connector)
    finally:
        connector.close()


def record(found: Iterable[ScanResult]) -> list[ScanResult]:
    """Records the new keys among `found`, each once; returns those. Raises HostFailed where a file cannot be written."""
    written: dict[tuple[str, str, bytes], ScanResult] = {}
    for one in found:
        key = one.found
        if not isinstance(key, HostKey) or key.state != "new":
            continue
        place = (_file_of(one, key), key.name, key.key)
        if place not in written:
            recording.append(place[0], key.name, key.line())
            written[place] = one
    return list(written.values())


def renew(one: ScanResult) -> None:
    """Replaces the keys that the user has seen by the one that the machine showed. Raises HostFailed."""
    key = one.found
    assert isinstance(key, HostKey)
    _file_of(one, key)
    recording.replace(key.files, key.name, key.line(), [entry.key for entry in key.recorded])


def _file_of(one: ScanResult, key: HostKey) -> str:
    if not key.files:
        raise HostFailed(
            "there is no known_hosts file of yours to record it in", where=one.host, next="set `known_hosts:` in the inventory"
        )
    return key.files[0]


def _ask(name: str, target: Target | TfdeployError, connector: Connector) -> ScanResult:
    try:
        return ScanResult(name, target if isinstance(target, TfdeployError) else scan_one(name, target, connector))
    except TfdeployError as error:
        return ScanResult(name, error)


def read_fingerprints(text: str) -> dict[str, str]:
    """name -> fingerprint, from `--fingerprints FILE`: lines `host SHA256:...`, or a name and what `ssh-keygen -lf` prints."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        prints = [word for word in words if word.startswith("SHA256:")]
        if prints and not words[0].startswith("#"):
            found[words[0]] = prints[0].rstrip("=")
    return found
