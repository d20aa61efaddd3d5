"""Read the host key of a host without logging in.

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

RSA_BITS = 1024  # OpenSSH accepts no shorter RSA key


@dataclass(frozen=True)
class HostKey:
    """The host key that one machine presented, and its state according to known_hosts."""

    target: Target
    keytype: str
    key: bytes
    judged: Judgement

    @property
    def state(self) -> str:
        """Return known, new, changed (known_hosts has other keys of the host) or revoked."""
        return self.judged.state

    @property
    def name(self) -> str:
        """Return the name in known_hosts: host, or [host]:port."""
        return self.target.known_name

    @property
    def fingerprint(self) -> str:
        return known_hosts.fingerprint(self.key)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files in which the key may be recorded. The first one is preferred."""
        return tuple(path for path in self.target.user_known_hosts if recording.is_ours(path))

    def line(self) -> bytes:
        """Return the line that records the key.

        The name is hashed if ssh's configuration says so or the file has hashed names.
        """
        asked = self.target.hash_names
        hashes = ssh_config.hashes_names(self.target.hostname) if asked is None else asked
        hashed = hashes or known_hosts.has_hashed(self.files[0])
        return recording.key_line(self.name, self.keytype, self.key, hashed=hashed)


def targets(host: Host) -> tuple[Target, ...]:
    """Return the jump hosts of a host, the first hop first, then the host itself."""
    chain = [resolve(host)]
    while chain[0].jump is not None:
        chain.insert(0, chain[0].jump)
    return tuple(chain)


def scan(host: str, target: Target, connector: Connector) -> HostKey:
    """Return the host key that the target presents now. Raises HostUnreachable.

    The keys of its jump hosts must already be in known_hosts.
    """
    shown = connector.host_key(host, target)
    if shown.get_name() == "ssh-rsa" and shown.get_bits() < RSA_BITS:
        what = f"{target.known_name} shows a key that ssh accepts from nobody (ssh-rsa): "
        what += f"RSA keys have at least {RSA_BITS} bits"
        raise HostUnreachable(what, where=host, next="give the machine a new host key", retries=0)
    key = shown.asbytes()
    return HostKey(target, shown.get_name(), key, judge(target, key))
