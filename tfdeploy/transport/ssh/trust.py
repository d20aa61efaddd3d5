"""Asks a host for its host key, without logging in. Once: sshd 9.8 and later penalises clients that repeat it."""

from __future__ import annotations

from dataclasses import dataclass

import paramiko

from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import connect_timeout, errors, known_hosts
from tfdeploy.transport.ssh.connect import CONNECT_S, NEVER_S, Connector, tuned_transport
from tfdeploy.transport.ssh.target import Target, resolve
from tfdeploy.transport.ssh.tcp import Link, dial


@dataclass(frozen=True)
class HostKey:
    """The host key that one machine showed. `state`: known, new, or changed (another key is on record, at `sources`)."""

    name: str  # as it stands in known_hosts: host, or [host]:port
    keytype: str
    key: bytes
    state: str
    file: str  # where it would be recorded
    sources: tuple[str, ...] = ()  # file:line

    @property
    def fingerprint(self) -> str:
        return known_hosts.fingerprint(self.key)


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
    attempt = errors.Attempt(host, target, CONNECT_S)
    link: Link | None = None
    transport: paramiko.Transport | None = None
    with connect_timeout.waiting(CONNECT_S) as wait:
        try:
            link = wait.link = connector.link(host, target, wait) if target.jump is not None else dial(target, wait)
            attempt.connected = True
            transport = tuned_transport(target, link)
            transport.banner_timeout = NEVER_S
            transport.start_client(timeout=NEVER_S)
            shown = transport.get_remote_server_key()
        except (paramiko.SSHException, OSError, EOFError, UnicodeError) as error:
            attempt.timed_out = wait.over
            attempt.greeting = link.greeting if link is not None else b""
            raise errors.explain(error, attempt) from error
        finally:
            if transport is not None:
                transport.close()
            if link is not None:
                link.close()
    return _compare(target, shown.get_name(), shown.asbytes())


def _compare(target: Target, keytype: str, key: bytes) -> HostKey:
    known = errors.known_keys(target)
    same = any(entry.key == key and not entry.revoked for entry in known)
    state = "known" if same else "changed" if known else "new"
    file = (target.user_known_hosts or ("",))[0]
    return HostKey(target.known_name, keytype, key, state, file, tuple(entry.source for entry in known))
