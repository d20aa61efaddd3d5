"""Opens SSH connections: link, handshake with our algorithms, known host key, keys only.

Jump hosts are opened once and shared by all hosts behind them. Every failure is raised as HostUnreachable.
"""

from __future__ import annotations

import copy
import logging
import random
import threading
import time
from functools import lru_cache, partial
from typing import Any

import fabric
import paramiko

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.transport.ssh import connect_timeout, descriptors, errors, host_keys, keepalive
from tfdeploy.transport.ssh.connect_timeout import Slots, Wait
from tfdeploy.transport.ssh.errors import copied
from tfdeploy.transport.ssh.identities import Offer
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.tcp import Link, dial

CONNECT_S = 10.0
NEVER_S = 3600.0  # paramiko's own time-outs are off: connect_timeout closes the link
GREETING_S = 2.0  # the wait for the server's greeting, before a handshake slot is taken
TURNED_AWAY_TRIES = 8  # MaxStartups drops some of a burst; with jitter all get in
HANDSHAKES = 32  # at once
_JUMP = "the jump host"
STARTS_PER_JUMP = 16  # channels being opened through one jump host at once
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class _Packetizer(paramiko.packet.Packetizer):
    """Without a timer thread per handshake: the connect time-out covers it."""

    def start_handshake(self, timeout: float) -> None:
        pass


class _Transport(paramiko.Transport):
    login_key = ""  # fingerprint of the key that was accepted
    _active_check_timeout = 2.0  # paramiko polls 10 times a second; our links wake up when they are closed
    _preferred_ciphers = CIPHERS

    def _log(self, level: int, msg: str, *args: Any) -> None:
        """Nobody reads paramiko's log."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """What sshd sends for a log (paramiko would spell it out byte by byte)."""


class Connector:
    """Opens the connections of one fleet: shares jump hosts, bounds handshakes at once. Thread-safe."""

    def __init__(self, handshakes: int = HANDSHAKES) -> None:
        self._handshakes = Slots(handshakes)
        self._lock = threading.Lock()
        self._jumps: dict[Target, _JumpHost] = {}
        self._closed = False

    def connect(self, host: str, target: Target) -> fabric.Connection:
        """An open connection. `host` names it in errors."""
        for left in reversed(range(TURNED_AWAY_TRIES)):
            attempt = errors.Attempt(host, target, CONNECT_S)
            try:
                return self._try_once(attempt)
            except (paramiko.SSHException, OSError, EOFError, UnicodeError) as error:
                if (refused := descriptors.limit_reached(error)) is not None:
                    raise refused from error
                cause = errors.explain(error, attempt)
                if not attempt.turned_away or not left or self._closed:
                    raise cause from error
                tried = TURNED_AWAY_TRIES - left
            time.sleep(random.uniform(0.05, 0.15) * 2 ** min(tried, 4))
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        self._closed = True
        with self._lock:
            jumps = list(self._jumps.values())
            self._jumps.clear()
        for jump in jumps:
            jump.close()

    def _try_once(self, attempt: errors.Attempt) -> fabric.Connection:
        target = attempt.target
        offer = Offer(target)
        if offer.empty:
            offer.close()
            raise errors.no_keys(attempt.host, target, offer.notes)
        jump = self._jump_host(target.jump) if target.jump is not None else None
        if jump is not None:
            jump.transport(attempt.host)  # connects with a time-out of its own
        link: Link | None = None
        connection = _connection(target, attempt.host)
        with connect_timeout.waiting(CONNECT_S) as wait:
            offer.paused = wait.paused
            try:
                link = wait.link = jump.link(attempt.host, target, wait) if jump is not None else dial(target, wait)
                attempt.connected = True
                link.wait_for_greeting(GREETING_S)
                with self._handshakes.take(wait):
                    connection.connect_kwargs = _connect_kwargs(target, link, offer)
                    connection.open()
            except BaseException as error:
                attempt.timed_out = wait.over or isinstance(error, TimeoutError)
                _note_failure(attempt, connection, link, offer)
                raise
            finally:
                offer.close()
        link.budget = None
        connection.transport.login_key = offer.accepted
        keepalive.watch(connection.transport, link)
        return connection

    def link(self, host: str, target: Target, wait: Wait) -> Link:
        """A link through the target's jump host, opened where needed. Raises HostUnreachable."""
        assert target.jump is not None
        return self._jump_host(target.jump).link(host, target, wait)

    def _jump_host(self, target: Target) -> _JumpHost:
        with self._lock:
            return self._jumps.setdefault(target, _JumpHost(self, target))


class _JumpHost:
    """One jump host: its connection, opened by the first host that needs it, and again after its end."""

    def __init__(self, connector: Connector, target: Target) -> None:
        self._connector, self._target = connector, target
        self._lock = threading.Lock()
        self._starts = Slots(STARTS_PER_JUMP)
        self._connection: fabric.Connection | None = None
        self._failed: tuple[float, TfdeployError] | None = None  # the last try: when it ended, and why

    def transport(self, host: str) -> paramiko.Transport:
        """Hosts that waited during a failed try share its error: a silent jump host costs one time-out, not one per host."""
        asked = time.monotonic()
        with self._lock:
            if self._connection is None or not self._connection.is_connected:
                if self._failed is not None and self._failed[0] > asked:
                    error = copied(self._failed[1])
                    error.where = host
                    raise error
                try:
                    self._connection = self._connector.connect(host, self._target)
                except TfdeployError as error:
                    if not error.what.startswith(_JUMP):  # it may be an earlier jump host's
                        error.what = f"{_JUMP} {self._target.where} cannot be used: {error.what}"
                    self._failed = (time.monotonic(), error)
                    raise
            transport: paramiko.Transport = self._connection.transport
            return transport

    def link(self, host: str, target: Target, wait: Wait) -> Link:
        transport = self.transport(host)
        with self._starts.take(wait):
            try:
                channel = transport.open_channel("direct-tcpip", (target.hostname, target.port), ("", 0), timeout=wait.limit_s)
            except paramiko.ChannelException as error:
                raise HostUnreachable(
                    f"{_JUMP} {self._target.where} cannot reach {target.hostname}:{target.port}: {error.text}",
                    where=host,
                    retries=0,
                ) from error
            except paramiko.SSHException as error:
                if "Timeout" in str(error):
                    raise TimeoutError("timed out") from error
                raise self._lost(host) from error
            except (OSError, EOFError) as error:
                raise self._lost(host) from error
        return Link(channel)

    def _lost(self, host: str) -> HostUnreachable:
        return HostUnreachable(f"{_JUMP} {self._target.where} is lost: the connection to it ended", where=host)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _NoConfig(paramiko.SSHConfig):
    """Without paramiko's look-up, which fails where our user has no name."""

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        return paramiko.SSHConfigDict({"hostname": hostname})


class _Connection(fabric.Connection):  # type: ignore[misc]  # fabric has no types
    """Its attributes are plain ones: fabric's own looks each of them up among its settings first."""

    __setattr__ = object.__setattr__


_TEMPLATE_LOCK = threading.Lock()


def _template() -> fabric.Connection:
    """What the connections of all hosts have in common. fabric's settings are without its files and without paramiko's reader of
    ssh_config, which ignores Include."""
    with _TEMPLATE_LOCK:
        return _made_template()


@lru_cache(maxsize=1)
def _made_template() -> fabric.Connection:
    config = fabric.Config(ssh_config=_NoConfig(), lazy=True)
    return _Connection("template", user="nobody", port=22, config=config, gateway=False)


def _connection(target: Target, host: str) -> fabric.Connection:
    """A copy of the template: fabric would merge its settings anew for each host, which takes as long as a login."""
    connection = copy.copy(_template())
    connection.host = connection.original_host = target.hostname
    connection.user, connection.port, connection.connect_kwargs = target.user, target.port, {}
    connection.client = paramiko.SSHClient()
    connection.client.set_missing_host_key_policy(errors.KnownOnly(host, target))
    return connection


def _connect_kwargs(target: Target, link: Link, offer: Offer) -> dict[str, Any]:
    return {
        "sock": link,
        "auth_strategy": offer,
        "transport_factory": partial(tuned_transport, target),
        "timeout": NEVER_S,
        "banner_timeout": NEVER_S,
        "channel_timeout": CONNECT_S,
    }


def tuned_transport(target: Target, sock: Any, **_: Any) -> paramiko.Transport:
    """Return a transport with our algorithms. It asks for host keys in the order of rsync's ssh.

    SSHClient.connect passes more settings, which differ between paramiko's releases (`gss_kex` up to
    4.0, `disabled_algorithms`). They are its own defaults: none of them changes a transport of ours.
    """
    transport = _Transport(sock, packetizer_class=_Packetizer)
    transport.get_security_options().key_types = host_keys.algorithms(target)
    return transport


def _note_failure(attempt: errors.Attempt, connection: fabric.Connection, link: Link | None, offer: Offer) -> None:
    """Notes in `attempt` how far it came, and closes the link and the client."""
    transport = connection.client.get_transport()
    attempt.agreed = bool(transport is not None and transport.initial_kex_done)
    attempt.offered = offer.tried
    attempt.wanted = offer.wanted
    attempt.notes = tuple(offer.notes)
    if link is not None:
        attempt.greeting = link.greeting
        link.close()
    connection.client.close()
