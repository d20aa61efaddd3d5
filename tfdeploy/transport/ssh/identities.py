"""Choose the keys to offer to a host: first those of identity files, then those of the ssh-agent.

If the inventory names an identity file, tfdeploy offers only the key of this file. The ssh-agent
may hold the private key of the file. Without an identity file in the inventory, tfdeploy offers at
most six keys of the agent, because sshd counts each offer (MaxAuthTries). tfdeploy never offers a
password.
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

from tfdeploy.transport.ssh.host_keys.known_hosts import fingerprint
from tfdeploy.transport.ssh.ssh_agent import SshAgent
from tfdeploy.transport.ssh.target import Target

# paramiko's time-outs get this value, so that they never expire. `connect_timeout` closes the link
# long before.
NO_TIMEOUT_S = 3600.0
AGENT_KEYS_MAX = 6  # at most this many keys of the agent are offered


class KeyOffer(AuthStrategy):
    """The keys that tfdeploy offers to a server on one connection, and the server's answers."""

    def __init__(self, target: Target) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._target = target
        self.offered_count = 0  # number of keys offered so far
        self.answered = False  # True once the server has answered a login request
        self.accepted_fingerprint = ""  # fingerprint of the accepted key
        # Login methods that the server requires in addition to the accepted key.
        self.required_methods: tuple[str, ...] = ()
        self.notes: list[str] = []  # texts that say why some keys could not be offered
        # Returns a context manager that pauses the host's time-out while an ssh-agent signs.
        self.paused: Callable[[], AbstractContextManager[Any]] = nullcontext
        # {public key: path of its file}, for files whose private key only an ssh-agent can use.
        self._unusable_key_files: dict[bytes, str] = {}
        defaults = (f"{path}-cert.pub" for path in target.identity_files)
        paths = (*target.certificates, *filter(os.path.exists, defaults))
        self._certificates = dict(pair for path in paths for pair in self._load_certificate(path))
        self._keys = [key for path in target.identity_files for key in self._load_key(path)]
        for setting in target.unused:
            note = "of ssh's configuration has no effect: load the provider's keys with ssh-add"
            self.notes.append(f"{setting} {note}")
        self._transport: paramiko.Transport | None = None
        self._agent: SshAgent | None = None
        self._agent_keys: list[paramiko.AgentKey] = [] if self._keys else self._read_agent_keys()

    @property
    def user(self) -> str:
        return self._target.user

    @property
    def has_no_keys(self) -> bool:
        """True if there is no key to offer."""
        return not self._keys and not self._agent_keys

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        """Yield the keys to offer, until the server disconnects or requires another method."""
        for key in self._all_keys():
            if self._transport is not None and not self._transport.is_active():
                return
            if self.required_methods and "publickey" not in self.required_methods:
                return
            if not self._is_key_type_accepted(key):
                keytype = key.get_name()
                self.notes.append(
                    f"the host's sshd takes no {keytype} keys (PubkeyAcceptedAlgorithms)"
                )
                continue
            self.offered_count += 1
            methods = self.required_methods
            for form in self._with_and_without_certificate(key):
                # If the server has accepted the certificate and requires a further method, the key
                # without the certificate is not offered.
                if self.required_methods == methods:
                    yield _KeyLogin(self, form)

    def _is_key_type_accepted(self, key: paramiko.PKey) -> bool:
        """True if the server accepts keys of this type, or does not say which types it accepts.

        OpenSSH up to 7.5 names only RSA algorithms, but accepts others as well.
        """
        extensions = getattr(self._transport, "server_extensions", {})
        listed = extensions.get("server-sig-algs", b"").decode("ascii", "replace").split(",")
        rsa = [name for name in listed if "rsa" in name]
        if key.get_name() == "ssh-rsa":
            return not listed[0] or any(name.startswith("rsa-sha2-") for name in rsa)
        return len(rsa) == len(listed) or not listed[0] or key.get_name() in listed

    def _all_keys(self) -> Iterator[paramiko.PKey]:
        """Yield the keys of files, then the keys of the agent."""
        yield from self._keys
        yield from self._agent_keys or self._read_agent_keys()

    def authenticate(self, transport: paramiko.Transport) -> Any:
        transport.auth_timeout = NO_TIMEOUT_S
        self._transport = transport
        return super().authenticate(transport)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    def _load_key(self, path: str) -> list[paramiko.PKey]:
        """Return a list with the key of the file. If it is unusable, add a note and return []."""
        try:
            key, public, problem = load_key_file(path, Path(path).stat().st_mtime_ns)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError) and not os.path.isdir(
                os.path.dirname(path)
            )
            gone = "; its folder is gone too (a lab that was taken down?)" * is_gone
            self.notes.append(f"key file {path} cannot be read: {error.strerror}{gone}")
            return []
        if public is not None:
            self._unusable_key_files[public] = path
        if problem:
            self.notes.append(problem)
        return [key] if key is not None else []

    def _load_certificate(self, path: str) -> list[tuple[bytes, PublicBlob]]:
        """Return [(public key, certificate of this key)].

        If no server would accept the certificate, add a note and return [].
        """
        try:
            certificate = serialization.load_ssh_public_identity(Path(path).read_bytes())
            if problem := _find_certificate_flaw(certificate):  # type: ignore[arg-type]
                self.notes.append(f"certificate {path} {problem}")
                return []
            key = certificate.public_key()  # type: ignore[union-attr]
            form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            public = base64.b64decode(key.public_bytes(*form).split()[1])
            return [(public, PublicBlob.from_file(path))]
        except (OSError, ValueError, AttributeError, UnsupportedAlgorithm) as error:
            reason = getattr(error, "strerror", None) or error
            self.notes.append(f"certificate {path} cannot be read: {reason}")
            return []

    def _with_and_without_certificate(self, key: paramiko.PKey) -> Iterator[paramiko.PKey]:
        """Yield the key with its certificate, if there is one, and then without it, as ssh does."""
        blob = self._certificates.get(key.asbytes())
        if blob is not None and isinstance(key, paramiko.AgentKey):
            # An AgentKey cannot be copied, so the certificate is added to the key itself, and is
            # removed when the caller asks for the next key.
            key.public_blob = blob  # type: ignore[assignment]
            yield key
            key.public_blob = None
        elif blob is not None:
            # The certificate is added to a copy of the key, because the cached key itself is also
            # offered to hosts without a certificate.
            certified = copy.copy(key)
            certified.public_blob = blob
            yield certified
        yield key

    def _read_agent_keys(self) -> list[paramiko.AgentKey]:
        """Return the ssh-agent's keys to offer to the server. The agent is asked at most once."""
        if self._agent is not None or (
            self._target.identities_only and not self._unusable_key_files
        ):
            return []
        if not self._target.agent:
            return []
        self._agent = SshAgent(self._target.agent, self.notes)
        # The lambda reads `self.paused` when the agent signs, because `paused` is set after this
        # line.
        self._agent.paused = lambda: self.paused()
        keys = self._agent.keys()
        file_keys = [key for key in keys if key.asbytes() in self._unusable_key_files]
        other_keys = [key for key in keys if key.asbytes() not in self._unusable_key_files]
        return (file_keys + ([] if self._target.identities_only else other_keys))[:AGENT_KEYS_MAX]


class _KeyLogin(InMemoryPrivateKey):
    """A login with one key, as paramiko expects it. It stores the server's answer in `offer`."""

    def __init__(self, offer: KeyOffer, key: paramiko.PKey) -> None:
        super().__init__(offer.user, key)
        self._offer = offer

    def authenticate(self, transport: paramiko.Transport) -> Any:
        try:
            required_methods = super().authenticate(transport)
        finally:
            self._offer.answered |= transport.is_active()
        if required_methods:
            self._offer.required_methods = tuple(required_methods)
            raise paramiko.ssh_exception.PartialAuthentication(required_methods)
        self._offer.accepted_fingerprint = fingerprint(self.pkey.asbytes())
        return required_methods


def _find_certificate_flaw(certificate: SSHCertificate) -> str | None:
    """Return why no server accepts the certificate for a login, or None if it can be used."""
    if certificate.type is not SSHCertificateType.USER:
        return "is a host certificate, not a user certificate"
    if certificate.valid_before <= time.time():
        return "has expired"
    return None


@lru_cache(maxsize=256)
def load_key_file(
    path: str, mtime_ns: int
) -> tuple[paramiko.PKey | None, bytes | None, str | None]:
    """Load a key file. Return (private key, public key, what is wrong). Raises OSError.

    The private key is None if it cannot be used. In this case, the public key is returned if an
    ssh-agent may hold the private key; otherwise the public key is None. `mtime_ns` is only used as
    a part of the cache's key.
    """
    data = Path(path).read_bytes()
    if data.startswith((b"ssh-", b"ecdsa-")):
        problem = f"{path} is a public key and no ssh-agent holds the private key"
        return None, _decode_public_line(data), problem
    try:
        key = paramiko.PKey.from_path(path)
        # paramiko also loads a certificate next to the key file. This certificate is dropped,
        # because nothing checks it.
        key.public_blob = None
        return key, None, None
    # The libraries may raise any error for a file that is not a key.
    except Exception as error:  # noqa: BLE001
        public = _read_public_key(path, data)
        if _is_encrypted(data):
            problem = f"key {path} is encrypted and no ssh-agent holds it: ssh-add {path}"
            return None, public, problem
        if public is not None and public[4:7] == b"sk-":
            problem = f"key {path} is on a hardware token and no ssh-agent holds it: ssh-add {path}"
            return None, public, problem
        return None, None, f"{path} is not a private key that can be used: {str(error)[:120]}"


def _is_encrypted(data: bytes) -> bool:
    """True if the private key file needs a passphrase.

    This is read from the content of the file, because the errors that the libraries raise for such
    a file differ between their releases.
    """
    fields = _openssh_fields(data)
    return b"ENCRYPTED" in data or (fields is not None and fields[0] != b"none")


def _read_public_key(path: str, data: bytes) -> bytes | None:
    """Return the public key of a private key file, from its .pub file or from the file itself."""
    try:
        return _decode_public_line(Path(path + ".pub").read_bytes())
    except OSError:
        fields = _openssh_fields(data)
        return None if fields is None else fields[1]


def _openssh_fields(data: bytes) -> tuple[bytes, bytes] | None:
    """Return (cipher, public key) of a key file in OpenSSH's format, None for other formats."""
    lines = [line for line in data.splitlines() if not line.startswith(b"--")]
    try:
        body = base64.b64decode(b"".join(lines))
        offset = body.index(b"openssh-key-v1\0") + 15
        fields = []
        for _ in range(3):  # cipher, kdf, options of the kdf
            size = int(struct.unpack_from(">I", body, offset)[0])
            fields.append(body[offset + 4 : offset + 4 + size])
            offset += 4 + size
        size = struct.unpack_from(">I", body, offset + 4)[0]
        return fields[0], body[offset + 8 : offset + 8 + size]
    except (ValueError, binascii.Error, struct.error):
        return None


def _decode_public_line(data: bytes) -> bytes | None:
    """Return the public key in a line `TYPE BASE64 [COMMENT]`, or None for other lines."""
    try:
        return base64.b64decode(data.split()[1])
    except (IndexError, ValueError, binascii.Error):
        return None
