"""Get keys and signatures from the ssh-agent that listens on a given socket.

paramiko's own class supports only the socket in SSH_AUTH_SOCK and has no time-out.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

ANSWER_S = 5.0  # seconds to wait for the list of keys
FAILURE = 5  # SSH_AGENT_FAILURE, the agent's answer if it cannot or may not do something
# Seconds to wait for a signature. A person may have to confirm the signature, or to touch a
# hardware token.
SIGN_S = 60.0


class SshAgent(AgentSSH):
    """The connection to one ssh-agent. The method `keys` opens it.

    `notes`: a list to which a text is added for each failure. `paused`: returns a context manager
    that pauses the host's time-out while the agent signs.
    """

    def __init__(self, path: str, notes: list[str]) -> None:
        super().__init__()
        self._path, self._notes = path, notes
        self._timeout_s = ANSWER_S
        self.paused: Callable[[], AbstractContextManager[Any]] = nullcontext

    def keys(self) -> tuple[paramiko.AgentKey, ...]:
        """Return all keys of the agent. If the agent does not answer, add a note and return ()."""
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
        """Send a message to the agent and return the answer. If that fails, add a note.

        The time until the agent answers does not count for the host's time-out.
        """
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
