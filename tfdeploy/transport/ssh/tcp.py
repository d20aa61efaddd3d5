"""Open links to an SSH server: over TCP, through a jump host, or with a proxy command.

paramiko uses a Link as its socket. A Link acknowledges TCP segments at once, limits the bytes
before the login, stores when the last bytes came, and can be closed from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tfdeploy.transport.ssh import early
from tfdeploy.transport.ssh.connect_timeout import HostTimeout
from tfdeploy.transport.ssh.target import Target

# A connection ends if the peer does not acknowledge sent bytes for this many milliseconds.
USER_TIMEOUT_MS = 15_000
HURRIED_TIMEOUT_MS = 4_000  # the value of USER_TIMEOUT_MS after `shorten_timeouts`
# {option: value}. Options that the operating system lacks are skipped.
_TCP_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": USER_TIMEOUT_MS,
}
TRY_AGAIN_S = 1.0  # after this many seconds without success, another socket tries to connect too
TRIES_AT_ONCE = 3  # at most this many sockets try to connect to one address
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EALREADY, errno.EISCONN)
# Matches what sh prints before the text of an error, such as "sh: 1: exec: ".
_SHELL_PREFIX = re.compile(r"\A\S*sh: (?:line )?\d+: (?:exec: )?")
READ_AHEAD = 32 << 10  # bytes that one system call reads
# At most this many bytes may be received before the login is complete. A handshake has a few KiB.
HANDSHAKE_BYTES = 256 << 10


class Link:
    """A byte connection to an SSH server, which paramiko uses as its socket."""

    def __init__(self, under: Any, process: subprocess.Popen[bytes] | None = None) -> None:
        """Store the connection, without sending anything.

        `under`: a connected socket or a paramiko channel. `process`: the proxy command, if there is
        one.
        """
        self._under = under
        self.proxy_failure = ""  # how the proxy command failed, set when the link is closed
        self._process: Any = process  # the proxy command, which is ended when the link is closed
        self._tcp = isinstance(under, socket.socket) and under.family in (
            socket.AF_INET,
            socket.AF_INET6,
        )
        # IP address of this machine, or "" if the link is not a TCP connection of this process.
        self.own_address = str(under.getsockname()[0]) if self._tcp else ""
        if self._tcp:
            under.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP_OPTIONS.items():
            self._set_tcp_option(option, value)
        self._closed = False
        # Number of bytes that may come before the login, or None after the login is complete.
        self.budget: int | None = HANDSHAKE_BYTES
        self.greeting = b""  # the first bytes received
        self.received_at = time.monotonic()
        self.received = 0
        self.ended = False  # True once the server has ended the connection
        # Bytes read in advance, and how many of them `recv` has returned.
        self._buffered, self._taken = b"", 0
        self.settimeout = under.settimeout
        self.send = under.send

    def wait_for_greeting(self, wait_s: float) -> None:
        """Wait at most `wait_s` seconds for the server's first bytes.

        Silence is no error. Raises OSError.
        """
        self._under.settimeout(wait_s)
        with contextlib.suppress(TimeoutError):
            self._buffered = self._receive(READ_AHEAD)
        self._under.settimeout(None)

    def recv(self, count: int) -> bytes:
        """Return at most `count` bytes.

        paramiko calls this function twice for each packet. More bytes than needed are read at once,
        so that several small packets need only one system call.
        """
        if self._taken == len(self._buffered):
            if count >= READ_AHEAD:
                return self._receive(count)
            self._buffered, self._taken = self._receive(READ_AHEAD), 0
        block = self._buffered[self._taken : self._taken + count]
        self._taken += len(block)
        return block

    def _receive(self, count: int) -> bytes:
        """Receive at most `count` bytes. Record how many bytes came, and when.

        Returns b"" at the end of the stream, or if too many bytes came before the login.
        """
        try:
            block: bytes = self._under.recv(count)
        except ConnectionError:
            self.ended = not self._closed
            raise
        self.ended = not block and not self._closed
        self.received_at = time.monotonic()
        self.received += len(block)
        if self.budget is not None:
            self.greeting = (self.greeting + block)[:512]
            if self.received > self.budget:
                return b""  # paramiko takes this for the end of the stream
        self._set_tcp_option("TCP_QUICKACK", 1)
        return block

    def shorten_timeouts(self) -> None:
        """From now on, end the link after 4 s of a silent network, instead of 15 s."""
        self._set_tcp_option("TCP_USER_TIMEOUT", HURRIED_TIMEOUT_MS)

    def _set_tcp_option(self, name: str, value: int) -> None:
        if self._tcp and hasattr(socket, name):
            with contextlib.suppress(OSError):
                self._under.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def getpeername(self) -> Any:
        return self._under.getpeername()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if isinstance(self._under, socket.socket):
            with contextlib.suppress(OSError):
                self._under.shutdown(socket.SHUT_RDWR)  # wakes up the thread that waits in recv
        with contextlib.suppress(OSError, EOFError):
            self._under.close()
        if self._process is not None:
            _end_process(self._process)
            if self.ended and self._process.returncode > 0:
                self.proxy_failure = _describe_failure(self._process)
            self._process.stderr.close()


def _describe_failure(process: Any) -> str:
    """Return the exit code of a proxy command, and the last line of its standard error."""
    process.stderr.seek(0)
    last = process.stderr.read(4096).decode(errors="replace").strip().rpartition("\n")[2]
    text = _SHELL_PREFIX.sub("", last)[:300] or "it printed nothing"
    return f"ended with exit code {process.returncode}: {text}"


def dial(target: Target, wait: HostTimeout) -> Link:
    """Connect to the target by TCP or with its proxy command, and return the link.

    All addresses of the host's name are tried, one after the other, within the host's time-out.
    Raises OSError (gaierror, TimeoutError, ...).
    """
    if target.proxy_command is not None:
        return _run_proxy_command(target.proxy_command)
    failed: OSError | None = None
    candidates = socket.getaddrinfo(target.hostname, target.port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(candidates):
        if wait.left_s <= 0:
            break
        try:
            early_socket = early.take_early_connection(target.hostname, target.port)
            new_socket = partial(socket.socket, family, kind, protocol)
            sock = _connect(
                new_socket,
                address,
                wait.left_s / (len(candidates) - number),
                wait.now,
                early_socket,
            )
        except OSError as error:
            failed = failed or error
            continue
        return Link(sock)
    raise failed or TimeoutError("timed out")


def _connect(
    new_socket: Callable[[], socket.socket],
    address: Any,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    early_socket: socket.socket | None = None,
) -> socket.socket:
    """Connect to one address, with several sockets if needed, and return the first connected one.

    The kernel repeats a lost SYN at ever longer intervals. Therefore another socket tries to
    connect each second, so that a network that works again is used within a second. `early_socket`:
    a socket that is already connecting, which is used as the first one. Raises OSError.
    """
    deadline = clock() + timeout_s
    tried: list[socket.socket] = []
    try:
        # PollSelector needs no file descriptor of its own, unlike the default, which uses epoll.
        with selectors.PollSelector() as selector:
            while (now := clock()) < deadline:
                if len(tried) == TRIES_AT_ONCE:
                    # Close the second socket. The first one can still get a slow answer, and the
                    # newest one connects as soon as the network works again.
                    selector.unregister(tried[1])
                    tried.pop(1).close()
                tried.append(
                    early_socket if early_socket is not None and not tried else new_socket()
                )
                tried[-1].setblocking(False)
                code = tried[-1].connect_ex(address)
                if code not in _IN_PROGRESS:
                    raise OSError(code, os.strerror(code))
                selector.register(tried[-1], selectors.EVENT_WRITE)
                for key, _ in selector.select(min(TRY_AGAIN_S, deadline - now)):
                    sock: socket.socket = key.fileobj  # type: ignore[assignment]
                    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        raise OSError(code, os.strerror(code))
                    tried.remove(sock)
                    sock.setblocking(True)
                    return sock
        raise TimeoutError("timed out")
    finally:
        for sock in tried:
            sock.close()


def _run_proxy_command(command: str) -> Link:
    """Run a ProxyCommand with /bin/sh, as ssh does, and return a link to the command."""
    ours, theirs = socket.socketpair()
    complaints = tempfile.TemporaryFile()  # noqa: SIM115 - Link.close closes it
    try:
        with theirs:
            process = subprocess.Popen(
                ["/bin/sh", "-c", "exec " + command],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=complaints,
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    process.stderr = complaints
    return Link(ours, process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process. Kill it if it still runs after 2 s."""
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
