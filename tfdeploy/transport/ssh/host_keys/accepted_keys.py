"""Decide from known_hosts, as OpenSSH does, which host key is accepted and which types to request.

A host with several keys presents a key of the first type that the client requests. Therefore
paramiko and ssh get the same order of types. Certificates are not requested, because paramiko
cannot check them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfdeploy.transport.ssh.host_keys import known_hosts, revoked_keys
from tfdeploy.transport.ssh.host_keys.known_hosts import KnownKey
from tfdeploy.transport.ssh.host_keys.known_lines import REVOKED, keytype_of
from tfdeploy.transport.ssh.target import Target

# The types of host keys, in OpenSSH's order of preference, without certificates and without keys on
# hardware tokens.
ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


@dataclass(frozen=True)
class Judgement:
    """The state of one host key according to known_hosts.

    `state`: "known", "new", "changed" (known_hosts has other keys of the host) or "revoked".
    `entries`: the lines of known_hosts that name this target.
    """

    state: str
    entries: tuple[KnownKey, ...] = ()

    @property
    def recorded(self) -> tuple[KnownKey, ...]:
        """Return the host's own keys in known_hosts, without keys of certificate authorities."""
        return tuple(entry for entry in self.entries if not entry.marker)

    @property
    def authorities(self) -> tuple[KnownKey, ...]:
        """Return the keys of the certificate authorities that known_hosts has for this target."""
        return tuple(entry for entry in self.entries if entry.is_authority)


def judge(target: Target, key: bytes, *, with_authorities: bool = True) -> Judgement:
    """Return the state of `key` according to known_hosts.

    The name `[host]:port` is looked up first. If known_hosts has no key for it, `host` is looked
    up.
    `with_authorities`: if True, the result also has the lines of certificate authorities, for
    messages. The state does not depend on these lines.

    Raises HostUnreachable if known_hosts or the file of RevokedHostKeys cannot be read.
    """

    def look_up(name: str) -> Judgement:
        entries = known_hosts.find(target.known_hosts, name, with_authorities=with_authorities)
        return Judgement(_key_state(entries, key), tuple(entries))

    judgement = look_up(target.known_hosts_name)
    if target.revoked_keys is not None and revoked_keys.is_revoked(target.revoked_keys, key):
        revoked = KnownKey(keytype_of(key), key, target.revoked_keys, 0, REVOKED)
        return Judgement("revoked", (revoked, *judgement.entries))
    if judgement.state == "new" and target.fallback_known_name is not None:
        bare = look_up(target.fallback_known_name)
        if bare.state in ("known", "revoked"):
            return bare
    return judgement


def algorithms(target: Target) -> tuple[str, ...]:
    """Return the host key algorithms to request from the target, in order of preference.

    As in OpenSSH, the order is that of ALGORITHMS if known_hosts has a key for the first of them.
    Otherwise, algorithms for which known_hosts has a key come before the others.
    """
    kinds = _keytypes(
        known_hosts.find(target.known_hosts, target.known_hosts_name, with_authorities=False)
    )
    if ALGORITHMS[0] in kinds:
        return ALGORITHMS
    return tuple(sorted(ALGORITHMS, key=lambda name: _keytype(name) not in kinds))


def _key_state(entries: list[KnownKey], key: bytes) -> str:
    """Return the state of `key` according to these entries of known_hosts."""
    host_keys = [entry.key for entry in entries if not entry.marker]
    if any(entry.is_revoked and entry.key == key for entry in entries):
        return "revoked"
    if key in host_keys:
        return "known"
    return "changed" if host_keys else "new"


def _keytypes(keys: Iterable[KnownKey]) -> set[str]:
    """Return the types of these keys.

    As in OpenSSH, a type is left out if the first key of this type is revoked.
    """
    first: dict[str, bytes] = {}
    revoked = set()
    for entry in keys:
        if entry.is_revoked:
            revoked.add(entry.key)
        elif not entry.marker:
            first.setdefault(entry.keytype, entry.key)
    return {keytype for keytype, key in first.items() if key not in revoked}


def _keytype(algorithm: str) -> str:
    """Return the type of the keys that a host key algorithm uses."""
    return "ssh-rsa" if algorithm.startswith("rsa-") else algorithm
