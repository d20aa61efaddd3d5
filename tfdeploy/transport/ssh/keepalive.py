"""Finds dead peers: every few seconds a session that was silent is asked for a sign of life.

TCP_USER_TIMEOUT finds a dead network on our own socket; this also finds a dead host behind a jump host, and
a server that hangs. One thread for all sessions of the process.
"""

from __future__ import annotations

import contextlib
import threading
import time

import paramiko
from paramiko.common import cMSG_GLOBAL_REQUEST

from tfdeploy.transport.ssh.tcp import Link

EVERY_S = 5.0
DEAD_AFTER_S = 15.0  # of silence after having been asked

_lock = threading.Lock()
_watched: dict[paramiko.Transport, tuple[Link, float | None]] = {}  # -> link, asked since (monotonic)
_thread: threading.Thread | None = None


def watch(transport: paramiko.Transport, link: Link) -> None:
    """From now on until the transport ends. A dead one is closed, so that whoever waits on it wakes up."""
    global _thread
    with _lock:
        _watched[transport] = (link, None)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_beat, name="ssh-pulse", daemon=True)
            _thread.start()


def _beat() -> None:
    global _thread
    while True:
        slept_from = time.monotonic()
        time.sleep(EVERY_S)
        overslept = time.monotonic() - slept_from > 2 * EVERY_S  # we were stopped ourselves: ask anew
        with _lock:
            for transport in [t for t in _watched if not t.is_active()]:
                del _watched[transport]
            if not _watched:
                _thread = None
                return
            watched = list(_watched.items())
        for transport, (link, asked) in watched:
            _check(transport, link, None if overslept else asked)


def _check(transport: paramiko.Transport, link: Link, asked: float | None) -> None:
    now = time.monotonic()
    if asked is not None and link.heard < asked:
        if now - asked >= DEAD_AFTER_S - 1:  # looked at every few seconds, never exactly on time
            link.close()
            threading.Thread(target=transport.close, daemon=True).start()
        return
    asked = None
    if now - link.heard >= EVERY_S:
        asked = now
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            _ask(transport)
    with _lock:
        if transport in _watched:
            _watched[transport] = (link, asked)


def _ask(transport: paramiko.Transport) -> None:
    """A request that every server answers, if only with no. paramiko's own keepalive asks for no answer."""
    if not transport.clear_to_send.is_set():
        return
    message = paramiko.Message()
    message.add_byte(cMSG_GLOBAL_REQUEST)
    message.add_string("keepalive@openssh.com")
    message.add_boolean(True)
    transport._send_user_message(message)  # type: ignore[attr-defined]
