"""Read the host key of a host without a login.

Each key is read only once, because sshd 9.8 and newer penalise clients that connect repeatedly
without a login.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.errors import HostUnreachable
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.host_keys import known_hosts, recording
from tfdeploy.transport.ssh.host_keys.accepted_keys import Judgement, judge
from tfdeploy.transport.ssh.target import Target, resolve

RSA_BITS = 1024  # OpenSSH accepts no RSA key with fewer bits


@dataclass(frozen=True)
class HostKey:
    """The host key that a target presented, and its state according to known_hosts."""

    target: Target
    keytype: str
    key: bytes
    judged: Judgement

    @property
    def state(self) -> str:
        """Return "known", "new", "changed" (the host has other keys on record) or "revoked"."""
        return self.judged.state

    @property
    def name(self) -> str:
        """Return the target's name in known_hosts: `host`, or `[host]:port`."""
        return self.target.known_hosts_name

    @property
    def fingerprint(self) -> str:
        return known_hosts.fingerprint(self.key)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the known_hosts files that may get the key, the preferred one first."""
        return tuple(
            path
            for path in self.target.user_known_hosts
            if recording.is_outside_system_folder(path)
        )

    def line(self) -> bytes:
        """Return the line that records the key in known_hosts.

        The name is hashed if ssh's configuration says so, or if the file already has hashed names.
        """
        configured = self.target.hash_names
        hashes = ssh_config.hashes_names(self.target.hostname) if configured is None else configured
        hashed = hashes or known_hosts.has_hashed(self.files[0])
        return recording.key_line(self.name, self.keytype, self.key, hash_name=hashed)


def list_route_targets(host: Host) -> tuple[Target, ...]:
    """Return the targets on the way to a host: its jump hosts in order, then the host itself."""
    chain = [resolve(host)]
    while chain[0].jump is not None:
        chain.insert(0, chain[0].jump)
    return tuple(chain)


def scan(host: str, target: Target, connector: Connector) -> HostKey:
    """Return the host key that the target presents now. Raises HostUnreachable.

    If there are jump hosts before the target, their keys must already be in known_hosts.
    """
    shown = connector.host_key(host, target)
    if shown.get_name() == "ssh-rsa" and shown.get_bits() < RSA_BITS:
        raise HostUnreachable(
            f"{target.known_hosts_name} shows an RSA key with fewer than {RSA_BITS} bits, which "
            "ssh never accepts",
            where=host,
            next="give the machine a new host key",
            retries=0,
        )
    key = shown.asbytes()
    return HostKey(target, shown.get_name(), key, judge(target, key))
