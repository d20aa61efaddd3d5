"""Which host key of a target is accepted, and which kinds of key are asked for, as OpenSSH decides
it from known_hosts.

Both SSH stacks get the same order of kinds, because a host that has several keys shows the first
kind asked for. No certificates are asked for: paramiko cannot check them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfdeploy.transport.ssh.host_keys import known_hosts, revoked_keys
from tfdeploy.transport.ssh.host_keys.known_hosts import KnownKey
from tfdeploy.transport.ssh.host_keys.known_lines import REVOKED, keytype_of
from tfdeploy.transport.ssh.target import Target

# OpenSSH's own order, without certificates and keys on tokens
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
    """`state`: known, new, changed (other keys are on record) or revoked. `entries`: the lines that
    name this target."""

    state: str
    entries: tuple[KnownKey, ...] = ()

    @property
    def recorded(self) -> tuple[KnownKey, ...]:
        """The host's own keys on record."""
        return tuple(entry for entry in self.entries if not entry.marker)

    @property
    def authorities(self) -> tuple[KnownKey, ...]:
        return tuple(entry for entry in self.entries if entry.authority)


def judge(target: Target, key: bytes, *, authorities: bool = True) -> Judgement:
    """Return what known_hosts says of `key`.

    The name is `[host]:port`, and the bare name if no key of the host stands there. The lines of
    certificate `authorities` have no effect on the state. Raises HostUnreachable if known_hosts or
    RevokedHostKeys cannot be read.
    """

    def look_up(name: str) -> Judgement:
        keys = known_hosts.find(target.known_hosts, name, authorities=authorities)
        return Judgement(*_state(keys, key))

    judgement = look_up(target.known_name)
    if target.revoked_keys is not None and revoked_keys.is_revoked(target.revoked_keys, key):
        revoked = KnownKey(keytype_of(key), key, target.revoked_keys, 0, REVOKED)
        return Judgement("revoked", (revoked, *judgement.entries))
    if judgement.state == "new" and target.bare_name is not None:
        bare = look_up(target.bare_name)
        if bare.state in ("known", "revoked"):
            return bare
    return judgement


def algorithms(target: Target) -> tuple[str, ...]:
    """The kinds of host key to ask for, the first preferred: those on record, unless OpenSSH's
    favourite is among them."""
    kinds = _kinds(known_hosts.find(target.known_hosts, target.known_name, authorities=False))
    if ALGORITHMS[0] in kinds:
        return ALGORITHMS
    return tuple(sorted(ALGORITHMS, key=lambda name: _keytype(name) not in kinds))


def _state(keys: list[KnownKey], key: bytes) -> tuple[str, tuple[KnownKey, ...]]:
    own = [entry for entry in keys if not entry.marker]
    if any(entry.revoked and entry.key == key for entry in keys):
        return "revoked", tuple(keys)
    if any(entry.key == key for entry in own):
        return "known", tuple(keys)
    return "changed" if own else "new", tuple(keys)


def _kinds(keys: Iterable[KnownKey]) -> set[str]:
    """The kinds on record. OpenSSH looks at the first key of each, and leaves the kind out where
    that one is revoked."""
    first: dict[str, bytes] = {}
    revoked = set()
    for entry in keys:
        if entry.revoked:
            revoked.add(entry.key)
        elif not entry.marker:
            first.setdefault(entry.keytype, entry.key)
    return {keytype for keytype, key in first.items() if key not in revoked}


def _keytype(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-") else algorithm
