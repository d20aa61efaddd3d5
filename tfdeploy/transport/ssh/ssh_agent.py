"""The ssh-agent on one socket: its keys, and their signatures. paramiko's own only knows SSH_AUTH_SOCK, and waits for ever."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

ANSWER_S = 5.0  # for its keys
FAILURE = 5  # SSH_AGENT_FAILURE
SIGN_S = 60.0  # a person may have to touch a token, or to say yes


class SshAgent(AgentSSH):
    """Opened by `keys`. `paused`: what holds the host's time while the agent signs."""

    def __init__(self, path: str, notes: list[str]) -> None:
        super().__init__()
        self._path, self._notes = path, notes
        self._patience_s = ANSWER_S
        self.paused: Callable[[], AbstractContextManager[Any]] = nullcontext

    def keys(self) -> tuple[paramiko.AgentKey, ...]:
        """All of its keys; none, and a note, where it does not answer in time."""
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.settimeout(self._patience_s)
        try:
            conn.connect(self._path)
            self._connect(conn)  # type: ignore[attr-defined]
        except (paramiko.SSHException, OSError, ValueError, IndexError) as error:
            conn.close()
            if not isinstance(error, TimeoutError):
                why = getattr(error, "strerror", None) or error
                self._notes.append(f"the ssh-agent on {self._path} does not answer: {why}")
            return ()
        self._patience_s = SIGN_S
        conn.settimeout(self._patience_s)
        return tuple(self.get_keys())

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]

    def _send_message(self, message: Any) -> Any:
        """Its answer. Signing is not the host's time, and why it was in vain is noted."""
        with self.paused():
            try:
                kind, answer = super()._send_message(message)  # type: ignore[misc]
            except TimeoutError:
                self._notes.append(f"the ssh-agent on {self._path} did not answer within {self._patience_s:g} s")
                raise
        if kind == FAILURE:
            self._notes.append(f"the ssh-agent on {self._path} refused to sign")
        return kind, answer
