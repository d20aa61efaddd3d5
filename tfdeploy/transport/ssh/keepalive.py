"""Detect dead connections: in each silent session, send a request that the server must answer.

TCP_USER_TIMEOUT detects a dead network on this machine's own socket. This module also detects a
dead host behind a jump host, and a server that hangs. One thread checks all sessions of the
process.
"""

from __future__ import annotations

import contextlib
import threading
import time

import paramiko
from paramiko.common import cMSG_GLOBAL_REQUEST

from tfdeploy.machine.threads import start_thread
from tfdeploy.transport.ssh.channel_reader import BROKEN
from tfdeploy.transport.ssh.tcp import Link

EVERY_S = 5.0  # seconds between two checks
DEAD_AFTER_S = 15.0  # a session ends if a request stays unanswered for this many seconds

_lock = threading.Lock()
# {transport: (link, monotonic time at which the unanswered request was sent, or None)}
_watched: dict[paramiko.Transport, tuple[Link, float | None]] = {}
_thread: threading.Thread | None = None


def keep_alive(transport: paramiko.Transport, link: Link) -> None:
    """Check the transport again and again until it ends.

    A dead transport is closed, so that all threads that wait for it wake up.
    """
    global _thread
    with _lock:
        _watched[transport] = (link, None)
        if _thread is None or not _thread.is_alive():
            _thread = start_thread(_check_watched_transports, name="ssh-keepalive")


def _check_watched_transports() -> None:
    """Check all sessions every EVERY_S seconds."""
    global _thread
    while True:
        began = time.monotonic()
        time.sleep(EVERY_S)
        # If this process was suspended, an unanswered request does not mean that a session is lost.
        suspended = time.monotonic() - began > 2 * EVERY_S
        with _lock:
            for transport in [t for t in _watched if not t.is_active()]:
                del _watched[transport]
            if not _watched:
                _thread = None
                return
            watched = list(_watched.items())
        for transport, (link, sent_at) in watched:
            _check_transport(transport, link, None if suspended else sent_at)


def _check_transport(transport: paramiko.Transport, link: Link, sent_at: float | None) -> None:
    """Send a request if the session is silent. Close a session that did not answer."""
    now = time.monotonic()
    if sent_at is not None and link.received_at < sent_at:
        # A check may come slightly early. The tolerance of 1 s prevents that such a check leaves a
        # dead session open until the next check.
        if now - sent_at >= DEAD_AFTER_S - 1:
            link.close()
            start_thread(transport.close)
        return
    sent_at = None
    if now - link.received_at >= EVERY_S:
        sent_at = now
        with contextlib.suppress(*BROKEN):
            _send_request(transport)
    with _lock:
        if transport in _watched:
            _watched[transport] = (link, sent_at)


def _send_request(transport: paramiko.Transport) -> None:
    """Send a request that every server answers, if only with a failure.

    paramiko's own keepalive message does not ask for an answer.
    """
    if not transport.clear_to_send.is_set():
        return
    message = paramiko.Message()
    message.add_byte(cMSG_GLOBAL_REQUEST)
    message.add_string("keepalive@openssh.com")
    message.add_boolean(True)
    transport._send_user_message(message)  # type: ignore[attr-defined]
