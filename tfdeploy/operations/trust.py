"""trust: the host keys of hosts that are not known yet, shown with their fingerprints and recorded on a yes.

It never replaces a key: a changed one is reported, and its old line is the user's to remove.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import known_hosts
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.trust import HostKey, targets
from tfdeploy.transport.ssh.trust import scan as scan_one

PARALLEL = 32


@dataclass(frozen=True)
class Scanned:
    """One machine's key, or why it could not be asked. `host` is the inventory's name, or that of a jump host."""

    host: str
    found: HostKey | TfdeployError

    @property
    def state(self) -> str:
        """known, new, changed or unreachable."""
        return self.found.state if isinstance(self.found, HostKey) else "unreachable"


def scan(hosts: tuple[Host, ...], parallel: int = PARALLEL) -> list[Scanned]:
    """Every host once, in order, and before them the jump hosts on their way.

    A host behind a jump host that is not known yet is reported as unreachable: record the jump host, scan again.
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

    def ask(asked: tuple[str, Target | TfdeployError]) -> Scanned:
        name, target = asked
        try:
            return Scanned(name, target if isinstance(target, TfdeployError) else scan_one(name, target, connector))
        except TfdeployError as error:
            return Scanned(name, error)

    try:
        with ThreadPoolExecutor(parallel) as pool:
            return [
                *pool.map(ask, ((name, target) for target, name in first.items())),
                *pool.map(ask, last),
            ]
    finally:
        connector.close()


def record(found: Iterable[Scanned]) -> list[Scanned]:
    """Writes down the new keys among `found`, each once; returns those. Raises HostFailed where a file cannot be written."""
    written: dict[tuple[str, str, bytes], Scanned] = {}
    for one in found:
        key = one.found
        if not isinstance(key, HostKey) or key.state != "new" or (key.file, key.name, key.key) in written:
            continue
        if not key.file:
            raise HostFailed("there is no known_hosts file to record it in", where=one.host, next="set `known_hosts:`")
        known_hosts.record(key.file, key.name, key.keytype, key.key)
        written[(key.file, key.name, key.key)] = one
    return list(written.values())


def read_fingerprints(text: str) -> dict[str, str]:
    """`--fingerprints FILE`: lines of `host SHA256:...`, or what `ssh-keygen -lf` prints behind a name. name -> fingerprint."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        prints = [word for word in words if word.startswith("SHA256:")]
        if prints and not words[0].startswith("#"):
            found[words[0]] = prints[0].rstrip("=")
    return found
