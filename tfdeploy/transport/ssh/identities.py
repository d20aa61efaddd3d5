"""Which keys are offered to a host, in order: identity files, then the agent's. Never a password.

With an explicit identity file only that key is offered (an agent may hold it). Else at most six of the agent's
follow, because sshd counts each offer (MaxAuthTries).
"""

from __future__ import annotations

import base64
import binascii
import copy
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import SSHCertificate, SSHCertificateType
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob

from tfdeploy.transport.ssh.known_hosts import fingerprint
from tfdeploy.transport.ssh.ssh_agent import SshAgent
from tfdeploy.transport.ssh.target import Target

NEVER_S = 3600.0  # paramiko's own time-out is off: connect_timeout closes the link

AGENT_KEYS_MAX = 6


class Offer(AuthStrategy):
    """The keys for one connection. `tried`: keys offered so far; `notes`: why files could not be used."""

    def __init__(self, target: Target) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._target = target
        self.tried = 0
        self.answered = False  # a login request was answered
        self.accepted = ""  # fingerprint of the key that was accepted
        self.wanted: tuple[str, ...] = ()  # login methods that it asks for after it has accepted a key
        self.notes: list[str] = []
        self.paused: Callable[[], AbstractContextManager[Any]] = nullcontext  # stops the host's time-out while an agent signs
        self._locked: dict[bytes, str] = {}  # public half -> path
        beside = (f"{path}-cert.pub" for path in target.identity_files)
        paths = (*target.certificates, *filter(os.path.exists, beside))
        self._certified = dict(pair for path in paths for pair in self._certificate(path))
        self._keys = [key for path in target.identity_files for key in self._load(path)]
        self.notes += [
            f"{setting} of ssh's configuration has no effect here: ssh-add can load its keys" for setting in target.unused
        ]
        self._transport: paramiko.Transport | None = None
        self._agent: SshAgent | None = None
        self._agent_keys: list[paramiko.AgentKey] = [] if self._keys else self._ask_agent()

    @property
    def user(self) -> str:
        return self._target.user

    @property
    def empty(self) -> bool:
        return not self._keys and not self._agent_keys

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        for key in self._every_key():
            if self._transport is not None and not self._transport.is_active():
                return  # it has ended the connection
            if self.wanted and "publickey" not in self.wanted:
                return  # it asks for something else than a key
            if not self._is_accepted(key):
                self.notes.append(f"its sshd takes no {key.get_name()} keys (PubkeyAcceptedAlgorithms)")
                continue
            self.tried += 1
            methods = self.wanted
            for shown in self._forms(key):
                if self.wanted == methods:  # else the certificate was accepted, and more is asked for
                    yield _Source(self, shown)

    def _is_accepted(self, key: paramiko.PKey) -> bool:
        """Whether the server takes keys of that kind, as far as it says so.

        OpenSSH up to 7.5 names only RSA, and takes others as well.
        """
        extensions = getattr(self._transport, "server_extensions", {})
        listed = extensions.get("server-sig-algs", b"").decode("ascii", "replace").split(",")
        rsa = [name for name in listed if "rsa" in name]
        if key.get_name() == "ssh-rsa":
            return not listed[0] or any(name.startswith("rsa-sha2-") for name in rsa)
        return len(rsa) == len(listed) or not listed[0] or key.get_name() in listed

    def _every_key(self) -> Iterator[paramiko.PKey]:
        yield from self._keys
        yield from self._agent_keys or self._ask_agent()

    def authenticate(self, transport: paramiko.Transport) -> Any:
        transport.auth_timeout = NEVER_S
        self._transport = transport
        return super().authenticate(transport)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    def _load(self, path: str) -> list[paramiko.PKey]:
        try:
            key, public, problem = load(path, Path(path).stat().st_mtime_ns)
        except OSError as error:
            self.notes.append(f"key file {path} cannot be read: {error.strerror}")
            return []
        if public is not None:
            self._locked[public] = path
        if problem:
            self.notes.append(problem)
        return [key] if key is not None else []

    def _certificate(self, path: str) -> list[tuple[bytes, PublicBlob]]:
        """(the key that it certifies, the certificate)."""
        try:
            certificate = serialization.load_ssh_public_identity(Path(path).read_bytes())
            if problem := _flaw(certificate):  # type: ignore[arg-type]
                self.notes.append(f"certificate {path} {problem}")
                return []
            key = certificate.public_key()  # type: ignore[union-attr]
            form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            return [(base64.b64decode(key.public_bytes(*form).split()[1]), PublicBlob.from_file(path))]
        except (OSError, ValueError, AttributeError, UnsupportedAlgorithm) as error:
            self.notes.append(f"certificate {path} cannot be read: {getattr(error, 'strerror', None) or error}")
            return []

    def _forms(self, key: paramiko.PKey) -> Iterator[paramiko.PKey]:
        """The key with its certificate, where there is one, then by itself, as ssh shows them."""
        blob = self._certified.get(key.asbytes())
        if blob is not None and isinstance(key, paramiko.AgentKey):  # which cannot be copied
            key.public_blob = blob  # type: ignore[assignment]
            yield key
            key.public_blob = None
        elif blob is not None:
            certified = copy.copy(key)  # the cached key is also used for hosts without a certificate
            certified.public_blob = blob
            yield certified
        yield key

    def _ask_agent(self) -> list[paramiko.AgentKey]:
        if self._agent is not None or (self._target.identities_only and not self._locked):
            return []
        if not self._target.agent:
            return []
        self._agent = SshAgent(self._target.agent, self.notes)
        self._agent.paused = lambda: self.paused()  # looked up when it signs: `paused` is set later
        held = self._agent.keys()
        wanted = [key for key in held if key.asbytes() in self._locked]
        others = [key for key in held if key.asbytes() not in self._locked]
        return (wanted + ([] if self._target.identities_only else others))[:AGENT_KEYS_MAX]


class _Source(InMemoryPrivateKey):
    def __init__(self, offer: Offer, key: paramiko.PKey) -> None:
        super().__init__(offer.user, key)
        self._offer = offer

    def authenticate(self, transport: paramiko.Transport) -> Any:
        try:
            wanted = super().authenticate(transport)
        finally:
            self._offer.answered |= transport.is_active()
        if wanted:
            self._offer.wanted = tuple(wanted)
            raise paramiko.ssh_exception.PartialAuthentication(wanted)
        self._offer.accepted = fingerprint(self.pkey.asbytes())
        return wanted


def _flaw(certificate: SSHCertificate) -> str | None:
    """Why no server takes the certificate for a login."""
    if certificate.type is not SSHCertificateType.USER:
        return "is one of a host, not of a user"
    if certificate.valid_before <= time.time():
        return "has expired"
    return None


@lru_cache(maxsize=256)
def load(path: str, mtime_ns: int) -> tuple[paramiko.PKey | None, bytes | None, str | None]:
    """(key, public half of a locked key, what is wrong). Raises OSError. `mtime_ns` only keys the cache."""
    data = Path(path).read_bytes()
    if data.startswith((b"ssh-", b"ecdsa-")):
        return None, _public_line(data), f"{path} is a public key and no ssh-agent holds the other half"
    try:
        key = paramiko.PKey.from_path(path)
        key.public_blob = None  # of a certificate beside it, which has not been checked
        return key, None, None
    except Exception as error:  # noqa: BLE001  # on a foreign file the libraries raise nearly any error
        public = _public_half(path, data)
        if _is_encrypted(data):
            return None, public, f"key {path} is encrypted and no ssh-agent holds it: ssh-add {path}"
        if public is not None and public[4:7] == b"sk-":
            return None, public, f"key {path} is on a hardware token and no ssh-agent holds it: ssh-add {path}"
        return None, None, f"{path} is not a private key that can be used: {str(error)[:120]}"


def _is_encrypted(data: bytes) -> bool:
    """Return whether a private key file needs a passphrase.

    The libraries' releases raise different errors for one that does, so the file decides.
    """
    fields = _openssh_fields(data)
    return b"ENCRYPTED" in data or (fields is not None and fields[0] != b"none")


def _public_half(path: str, data: bytes) -> bytes | None:
    try:
        return _public_line(Path(path + ".pub").read_bytes())
    except OSError:
        fields = _openssh_fields(data)
        return None if fields is None else fields[1]


def _openssh_fields(data: bytes) -> tuple[bytes, bytes] | None:
    """Return (cipher, public half) of a private key in OpenSSH's own format, else None."""
    try:
        body = base64.b64decode(b"".join(line for line in data.splitlines() if not line.startswith(b"--")))
        at = body.index(b"openssh-key-v1\0") + 15
        fields = []
        for _ in range(3):  # cipher, kdf, its options
            size = int(struct.unpack_from(">I", body, at)[0])
            fields.append(body[at + 4 : at + 4 + size])
            at += 4 + size
        size = struct.unpack_from(">I", body, at + 4)[0]
        return fields[0], body[at + 8 : at + 8 + size]
    except (ValueError, binascii.Error, struct.error):
        return None


def _public_line(data: bytes) -> bytes | None:
    words = data.split()
    try:
        return base64.b64decode(words[1])
    except (IndexError, ValueError, binascii.Error):
        return None
