"""The ssh-agent on one socket: its keys and signatures. paramiko's own class knows only
SSH_AUTH_SOCK, and has no time-out."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

ANSWER_S = 5.0  # for the list of its keys
FAILURE = 5  # SSH_AGENT_FAILURE
SIGN_S = 60.0  # a person may have to touch a token, or to say yes


class SshAgent(AgentSSH):
    """Opened by `keys`. `paused`: stops the host's time-out while the agent signs."""

    def __init__(self, path: str, notes: list[str]) -> None:
        super().__init__()
        self._path, self._notes = path, notes
        self._timeout_s = ANSWER_S
        self.paused: Callable[[], AbstractContextManager[Any]] = nullcontext

    def keys(self) -> tuple[paramiko.AgentKey, ...]:
        """All of its keys; none, and a note, where it does not answer in time."""
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.settimeout(self._timeout_s)
        try:
            conn.connect(self._path)
            self._connect(conn)  # type: ignore[attr-defined]
        except (paramiko.SSHException, OSError, ValueError, IndexError) as error:
            conn.close()
            if not isinstance(error, TimeoutError):
                why = getattr(error, "strerror", None) or error
                self._notes.append(f"the ssh-agent on {self._path} does not answer: {why}")
            return ()
        self._timeout_s = SIGN_S
        conn.settimeout(self._timeout_s)
        return tuple(self.get_keys())

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]

    def _send_message(self, message: Any) -> Any:
        """Its answer. The time it takes does not count against the host; a failure is noted."""
        with self.paused():
            try:
                kind, answer = super()._send_message(message)  # type: ignore[misc]
            except TimeoutError:
                self._notes.append(
                    f"the ssh-agent on {self._path} did not answer within {self._timeout_s:g} s"
                )
                raise
        if kind == FAILURE:
            self._notes.append(f"the ssh-agent on {self._path} refused to sign")
        return kind, answer
