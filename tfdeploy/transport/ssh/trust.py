"""Asks a host for its host key, without logging in. Once: sshd 9.8 and later penalises clients that repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.errors import HostUnreachable
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import known_hosts, recording, ssh_config
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.host_keys import judge
from tfdeploy.transport.ssh.known_hosts import KnownKey
from tfdeploy.transport.ssh.known_lines import RSA_BITS, is_key
from tfdeploy.transport.ssh.target import Target, resolve


@dataclass(frozen=True)
class HostKey:
    """The host key that one machine showed. `state`: known, new, changed (other keys are on record) or revoked."""

    target: Target
    keytype: str
    key: bytes
    state: str
    entries: tuple[KnownKey, ...] = ()  # the lines of known_hosts that name the machine

    @property
    def name(self) -> str:
        """As it stands in known_hosts: host, or [host]:port."""
        return self.target.known_name

    @property
    def fingerprint(self) -> str:
        return known_hosts.fingerprint(self.key)

    @property
    def recorded(self) -> tuple[KnownKey, ...]:
        """The keys of the machine itself that are on record."""
        return tuple(entry for entry in self.entries if not entry.marker)

    @property
    def files(self) -> tuple[str, ...]:
        """Where its key may be recorded, the first preferred."""
        return tuple(path for path in self.target.user_known_hosts if recording.is_ours(path))

    def line(self) -> bytes:
        """The line that records it: without the name being readable where the file, or ssh's configuration, has it so."""
        asked = self.target.hash_names
        hashes = ssh_config.hashes_names(self.target.hostname) if asked is None else asked
        hashed = hashes or known_hosts.has_hidden(self.files[0])
        return recording.key_line(self.name, self.keytype, self.key, hashed=hashed)


def targets(host: Host) -> tuple[Target, ...]:
    """The jump hosts on the way, first hop first, then the host itself."""
    chain = [resolve(host)]
    while chain[0].jump is not None:
        chain.insert(0, chain[0].jump)
    return tuple(chain)


def scan(host: str, target: Target, connector: Connector) -> HostKey:
    """The key that the target shows now. A jump host on the way must be known already.

    Raises HostUnreachable.
    """
    shown = connector.host_key(host, target)
    return _compare(host, target, shown.get_name(), shown.asbytes())


def _compare(host: str, target: Target, keytype: str, key: bytes) -> HostKey:
    if not is_key(keytype, key):
        what = f"{target.known_name} shows a key that ssh accepts from nobody ({keytype}): RSA keys have at least {RSA_BITS} bits"
        raise HostUnreachable(what, where=host, next="give the machine a new host key", retries=0)
    judged = judge(target, key)
    return HostKey(target, keytype, key, judged.state, judged.entries)
