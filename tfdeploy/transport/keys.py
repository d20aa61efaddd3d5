"""Which keys are offered to a host, in order: identity files, then the agent's. Never a password.

With an explicit identity file only that key is offered (an agent may hold it); else at most six of the agent's
follow, because sshd counts.
"""

from __future__ import annotations

import base64
import binascii
import struct
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import paramiko
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey

from tfdeploy.transport.target import Target

AGENT_S = 5.0  # for the ssh-agent to name its keys
NEVER_S = 3600.0  # the patience with the host ends its link, whatever it is asked

AGENT_KEYS_MAX = 6


class Offer(AuthStrategy):
    """The keys for one connection. `tried` counts, `notes` says why files were of no use."""

    def __init__(self, target: Target) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._target = target
        self.tried = 0
        self.notes: list[str] = []
        self._locked: dict[bytes, str] = {}  # public half -> path
        self._keys = [key for path in target.identity_files for key in self._load(path)]
        self._agent: paramiko.Agent | None = None
        self._agent_keys: list[paramiko.AgentKey] = [] if self._keys else self._ask_agent()

    @property
    def empty(self) -> bool:
        return not self._keys and not self._agent_keys

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        for key in self._keys:
            self.tried += 1
            yield InMemoryPrivateKey(self._target.user, key)
        for agent_key in self._agent_keys or self._ask_agent():
            self.tried += 1
            yield InMemoryPrivateKey(self._target.user, agent_key)

    def authenticate(self, transport: paramiko.Transport) -> Any:
        transport.auth_timeout = NEVER_S
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

    def _ask_agent(self) -> list[paramiko.AgentKey]:
        if self._agent is not None or (self._target.identities_only and not self._locked):
            return []
        held = self._held()
        wanted = [key for key in held if key.asbytes() in self._locked]
        others = [key for key in held if key.asbytes() not in self._locked]
        return (wanted + ([] if self._target.identities_only else others))[:AGENT_KEYS_MAX]

    def _held(self) -> list[paramiko.AgentKey]:
        """All keys of the ssh-agent. paramiko would wait for one that is stuck for ever."""
        found: list[paramiko.AgentKey] = []
        said = [f"no word within {AGENT_S:g} s"]

        def ask() -> None:
            try:
                self._agent = paramiko.Agent()
                found.extend(self._agent.get_keys())
                said.clear()
            except (paramiko.SSHException, OSError) as error:
                said[0] = str(error)

        asking = threading.Thread(target=ask, daemon=True, name="ssh-agent")
        asking.start()
        asking.join(AGENT_S)
        self.notes += [f"the ssh-agent does not answer: {why}" for why in said]
        return [] if said else found


@lru_cache(maxsize=256)
def load(path: str, mtime_ns: int) -> tuple[paramiko.PKey | None, bytes | None, str | None]:
    """(key, public half of a locked key, what is wrong). Raises OSError. `mtime_ns` only keys the cache."""
    data = Path(path).read_bytes()
    if data.startswith((b"ssh-", b"ecdsa-")):
        return None, _public_line(data), f"{path} is a public key and no ssh-agent holds the other half"
    try:
        return paramiko.PKey.from_path(path), None, None
    except (TypeError, paramiko.PasswordRequiredException):
        return None, _public_half(path, data), f"key {path} is encrypted and no ssh-agent holds it: ssh-add {path}"
    except Exception as error:  # noqa: BLE001  # a foreign file makes the libraries below raise nearly anything
        if b"ENCRYPTED" in data:
            return None, _public_half(path, data), f"key {path} is encrypted and no ssh-agent holds it: ssh-add {path}"
        return None, None, f"{path} is not a private key that can be used: {str(error)[:120]}"


def _public_half(path: str, data: bytes) -> bytes | None:
    try:
        return _public_line(Path(path + ".pub").read_bytes())
    except OSError:
        pass
    try:
        body = base64.b64decode(b"".join(line for line in data.splitlines() if not line.startswith(b"--")))
        at = body.index(b"openssh-key-v1\0") + 15
        for _ in range(3):  # cipher, kdf, its options
            at += 4 + int(struct.unpack_from(">I", body, at)[0])
        size = struct.unpack_from(">I", body, at + 4)[0]
        return body[at + 8 : at + 8 + size]
    except (ValueError, binascii.Error, struct.error):
        return None


def _public_line(data: bytes) -> bytes | None:
    words = data.split()
    try:
        return base64.b64decode(words[1])
    except (IndexError, ValueError, binascii.Error):
        return None
