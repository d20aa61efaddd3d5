"""Open SSH connections: TCP connection, handshake, check of the host key, login with a key.

All hosts behind the same jump host share one connection to the jump host. Every failure is raised
as HostUnreachable.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import fabric
import paramiko

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.transport.ssh import connect_timeout, descriptors, errors, keepalive
from tfdeploy.transport.ssh.channel_reader import BROKEN
from tfdeploy.transport.ssh.connect_timeout import ConnectionSlots, HostTimeout
from tfdeploy.transport.ssh.errors import copy_error
from tfdeploy.transport.ssh.host_keys import accepted_keys
from tfdeploy.transport.ssh.identities import NO_TIMEOUT_S, KeyOffer
from tfdeploy.transport.ssh.patience import RetrySchedule
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.tcp import Link, dial

CONNECT_S = 10.0  # time-out of one host in seconds, see connect_timeout.py
GREETING_S = 2.0  # seconds to wait for the greeting before a handshake slot is acquired
HANDSHAKES = 32  # at most this many handshakes at once
# A host that refused a login or has a wrong host key is not dialled again for this many seconds.
# sshd adds a penalty of 5 s for each refused connection. At one try every REFUSAL_S seconds,
# penalties expire before they add up to the 15 s at which sshd refuses this machine's address.
REFUSAL_S = 30.0
STARTS_PER_JUMP = 16  # through one jump host, at most this many channels are opened at once
CIPHERS = (
    *("aes128-gcm@openssh.com", "aes256-gcm@openssh.com"),
    *("aes128-ctr", "aes192-ctr", "aes256-ctr"),
)

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

V = TypeVar("V")
OnNotice = Callable[[str, str], None]  # parameters: host, text


def drop_notice(host: str, text: str) -> None:
    """Drop the notice. This is the default of `on_notice`."""


class _Packetizer(paramiko.packet.Packetizer):
    """paramiko's Packetizer without its timer thread, because connect_timeout.py limits the
    time."""

    def start_handshake(self, timeout: float) -> None:
        pass


class _Transport(paramiko.Transport):
    """paramiko's transport with the settings of tfdeploy."""

    login_key = ""  # fingerprint of the user's key that the server accepted
    disconnect_text = ""  # text of the message with which the server disconnected
    # Seconds after which a waiting thread checks again whether the connection is still open.
    # paramiko checks 10 times a second. Here rare checks suffice, because closing a Link wakes up
    # the thread that reads from it.
    _active_check_timeout = 2.0
    _preferred_ciphers = CIPHERS

    def _log(self, level: int, msg: str, *args: Any) -> None:
        """Drop paramiko's log message."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Drop a debug message of sshd, which paramiko would format byte by byte."""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()  # skips the reason code
        self.disconnect_text = errors.printable_line(m.get_binary())


class Connector:
    """Opens the connections of one fleet. Limits how many handshakes run at the same time.

    The connections share the connections to jump hosts. Thread-safe. `on_notice`: called with
    (host, text), in any thread, while tfdeploy retries a host whose sshd temporarily refuses
    connections from this machine.
    """

    def __init__(self, handshakes: int = HANDSHAKES, on_notice: OnNotice = drop_notice) -> None:
        self._handshakes = ConnectionSlots(handshakes)
        self._on_notice = on_notice
        self._lock = threading.Lock()
        self._jumps: dict[Target, _JumpHost] = {}
        self._refusals: dict[Target, tuple[float, HostUnreachable]] = {}  # {target: (time, reason)}
        self._closed = threading.Event()

    def connect(self, host: str, target: Target) -> fabric.Connection:
        """Return an open connection to `target`. `host`: the name of the host in errors.

        Raises HostUnreachable. If the login or the host key was refused, the target is not dialled
        again for REFUSAL_S seconds. Meanwhile, every call raises the same error.
        """
        refusal = self._refusals.get(target)
        if refusal is not None and time.monotonic() - refusal[0] < REFUSAL_S:
            error = copy_error(refusal[1])
            error.where = host
            raise error
        return self._retry(host, target, self._log_in)

    def host_key(self, host: str, target: Target) -> paramiko.PKey:
        """Return the host key that the target presents now. Raises HostUnreachable.

        A connection without a login, such as this one, makes sshd raise its penalty for this
        machine's address.
        """
        return self._retry(host, target, self._read_host_key)

    def _retry(self, host: str, target: Target, connect: Callable[[errors.Attempt], V]) -> V:
        """Call `connect`, and retry while sshd closes connections before login.

        The retries end after the time that `closings.py` defines for the case.
        """
        patience = RetrySchedule(
            lambda text: self._on_notice(host, _prefix_jump_host(host, target, text))
        )
        while True:
            attempt = errors.Attempt(host, target, CONNECT_S)
            try:
                return connect(attempt)
            except HostUnreachable as error:
                error.where = error.where or host
                raise
            except (*BROKEN, UnicodeError) as error:
                if (limit_error := descriptors.descriptor_limit_error(error)) is not None:
                    raise limit_error from error
                closing = attempt.closing
                delay_s = None if closing is None else patience.delay_s(closing)
                attempt.waited_s = patience.waited_s
                cause = errors.explain(error, attempt)
                if attempt.is_refused:
                    self._refusals[target] = (time.monotonic(), cause)
                if delay_s is None or self._closed.wait(delay_s):
                    raise cause from error

    def close(self) -> None:
        """End all retries, and close the connections to jump hosts."""
        self._closed.set()
        with self._lock:
            jumps = list(self._jumps.values())
            self._jumps.clear()
        for jump in jumps:
            jump.close()

    def _log_in(self, attempt: errors.Attempt) -> fabric.Connection:
        """Open one connection and log in with a key."""
        target = attempt.target
        with contextlib.closing(KeyOffer(target)) as offer:
            if offer.has_no_keys:
                raise errors.no_keys_error(attempt.host, target, offer.notes)
            attempt.offer = offer
            connection = _connection(target, attempt.host)
            with self._open_link(attempt) as (link, wait), self._handshakes.hold_slot(wait):
                offer.paused = wait.paused
                connection.connect_kwargs = _connect_kwargs(attempt, link, offer)
                connection.open()
        link.budget = None
        connection.transport.login_key = offer.accepted_fingerprint
        keepalive.keep_alive(connection.transport, link)
        return connection

    def _read_host_key(self, attempt: errors.Attempt) -> paramiko.PKey:
        """Open one connection and return the server's host key, without a login."""
        with contextlib.closing(attempt), self._open_link(attempt) as (link, _):
            transport = attempt.transport = tuned_transport(attempt.target, link)
            transport.banner_timeout = NO_TIMEOUT_S
            transport.start_client(timeout=NO_TIMEOUT_S)
            return transport.get_remote_server_key()

    @contextlib.contextmanager
    def _open_link(self, attempt: errors.Attempt) -> Iterator[tuple[Link, HostTimeout]]:
        """Open a link to the target. Yield it after the server's greeting or GREETING_S seconds.

        This machine sends nothing before the yield. sshd may write why it closes the connection,
        and then close the connection at once. If this machine had sent bytes that sshd did not
        read, the host's kernel would reset the connection, and sshd's text would be lost.

        The time-out applies to the whole `with` block. If the block fails, `attempt` is closed.
        """
        target = attempt.target
        jump = None if target.jump is None else self._jump_host(target.jump)
        if jump is not None:
            # The connection to the jump host has its own time-out. So it is opened before the
            # time-out of this host begins.
            jump.transport(attempt.host)
        with connect_timeout.time_limit(CONNECT_S) as wait:
            try:
                link = jump.open_link(attempt.host, target, wait) if jump else dial(target, wait)
                wait.link = attempt.link = link
                link.wait_for_greeting(GREETING_S)
                yield link, wait
            except BaseException as error:
                attempt.timed_out = wait.over or isinstance(error, TimeoutError)
                attempt.close()
                raise

    def _jump_host(self, target: Target) -> _JumpHost:
        with self._lock:
            return self._jumps.setdefault(target, _JumpHost(self, target))


class _JumpHost:
    """A jump host and the connection to it.

    The first host that needs the connection opens it. After a loss, the next host opens it again.
    """

    def __init__(self, connector: Connector, target: Target) -> None:
        self._connector, self._target = connector, target
        self._lock = threading.Lock()
        self._starts = ConnectionSlots(STARTS_PER_JUMP)
        self._connection: fabric.Connection | None = None
        # (monotonic time, error) of the last attempt that failed, or None if none has failed.
        self._failure: tuple[float, TfdeployError] | None = None

    def transport(self, host: str) -> paramiko.Transport:
        """Return the open transport to the jump host. Raises HostUnreachable.

        If an attempt to connect fails, all hosts that wait for this attempt get its error. A jump
        host that does not answer therefore costs one time-out, and not one for each host behind it.
        """
        began = time.monotonic()
        with self._lock:
            if self._connection is None or not self._connection.is_connected:
                if self._failure is not None and self._failure[0] > began:
                    raise errors.jump_host_error(self._failure[1], self._target, host)
                try:
                    self._connection = self._connector.connect(host, self._target)
                except TfdeployError as error:
                    self._failure = (time.monotonic(), error)
                    raise errors.jump_host_error(error, self._target, host) from error
            transport: paramiko.Transport = self._connection.transport
            return transport

    def open_link(self, host: str, target: Target, wait: HostTimeout) -> Link:
        """Open a link to `target` through this jump host."""
        transport = self.transport(host)
        address = (target.hostname, target.port)
        with self._starts.hold_slot(wait):
            try:
                channel = transport.open_channel(
                    "direct-tcpip", address, ("", 0), timeout=wait.limit_s
                )
            except paramiko.ChannelException as error:
                raise HostUnreachable(
                    f"{errors.JUMP} {self._target.where} cannot reach "
                    f"{target.hostname}:{target.port}: {error.text}",
                    where=host,
                    retries=0,
                ) from error
            except BROKEN as error:
                if isinstance(error, paramiko.SSHException) and "Timeout" in str(error):
                    raise TimeoutError("timed out") from error
                raise HostUnreachable(
                    f"{errors.JUMP} {self._target.where} is lost: the connection to it ended",
                    where=host,
                ) from error
        return Link(channel)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


# fabric would look up the name of the local user, which tfdeploy does not need. Since Python 3.13,
# that look-up raises OSError if the user has no name, and fabric does not handle the error.
fabric.config.get_local_user = lambda: None


class _EmptySshConfig(paramiko.SSHConfig):
    """An empty ssh configuration for fabric, because `target.py` has read the real one.

    paramiko's own `lookup` fails if the local user has no name on this machine.
    """

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        return paramiko.SSHConfigDict(hostname=hostname)


def _connection(target: Target, host: str) -> fabric.Connection:
    """Return a connection that is not open yet. fabric reads none of its settings files."""
    connection = fabric.Connection(
        target.hostname,
        user=target.user,
        port=target.port,
        # fabric changes the configuration of a connection, so each connection needs its own.
        config=fabric.Config(ssh_config=_EmptySshConfig(), lazy=True),
        gateway=False,
    )
    connection.client.set_missing_host_key_policy(errors.KnownHostsPolicy(host, target))
    return connection


def _connect_kwargs(attempt: errors.Attempt, link: Link, offer: KeyOffer) -> dict[str, Any]:
    """Return the arguments with which fabric calls paramiko's SSHClient.connect."""

    def make_transport(sock: Link, **_: Any) -> paramiko.Transport:
        attempt.transport = tuned_transport(attempt.target, sock)
        return attempt.transport

    return {
        "sock": link,
        "auth_strategy": offer,
        "transport_factory": make_transport,
        "timeout": NO_TIMEOUT_S,
        "banner_timeout": NO_TIMEOUT_S,
        "channel_timeout": CONNECT_S,
    }


def tuned_transport(target: Target, sock: Any, **_: Any) -> paramiko.Transport:
    """Return a transport that requests types of host keys in the same order as rsync's ssh.

    SSHClient.connect also passes other arguments, for example `disabled_algorithms` and, up to
    paramiko 4.0, `gss_kex`. They are ignored, because they have paramiko's default values.
    """
    transport = _Transport(sock, packetizer_class=_Packetizer)
    transport.get_security_options().key_types = accepted_keys.algorithms(target)
    return transport


def _prefix_jump_host(host: str, target: Target, text: str) -> str:
    """Return the notice `text`, as it is shown for `host`.

    If `target` is a jump host of `host`, the notice names the jump host.
    """
    return text if target.name == host else f"{errors.JUMP} {target.where}: {text}"
