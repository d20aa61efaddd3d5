"""Opens SSH connections: link, handshake with our algorithms, known host key, keys only.

Jump hosts are opened once and shared by all hosts behind them. Every failure is raised as HostUnreachable.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

import fabric
import paramiko

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.transport.ssh import connect_timeout, descriptors, errors, host_keys, keepalive
from tfdeploy.transport.ssh.connect_timeout import Slots, Wait
from tfdeploy.transport.ssh.errors import copied
from tfdeploy.transport.ssh.identities import Offer
from tfdeploy.transport.ssh.patience import Patience
from tfdeploy.transport.ssh.target import Target
from tfdeploy.transport.ssh.tcp import Link, dial

CONNECT_S = 10.0
NEVER_S = 3600.0  # paramiko's own time-outs are off: connect_timeout closes the link
GREETING_S = 2.0  # the wait for the server's greeting, before a handshake slot is taken
HANDSHAKES = 32  # at once
REFUSAL_S = 30.0  # a refusal costs a penalty of 5 s there: one try in so long never adds up to a lock-out
STARTS_PER_JUMP = 16  # channels being opened through one jump host at once
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


V = TypeVar("V")
OnNotice = Callable[[str, str], None]  # host, text


def no_notice(host: str, text: str) -> None:
    """Nobody is there to be told."""


class _Packetizer(paramiko.packet.Packetizer):
    """Without a timer thread per handshake: the connect time-out covers it."""

    def start_handshake(self, timeout: float) -> None:
        pass


class _Transport(paramiko.Transport):
    login_key = ""  # fingerprint of the key that was accepted
    parting = ""  # why the server ended the connection, as it says itself
    _active_check_timeout = 2.0  # paramiko polls 10 times a second; our links wake up when they are closed
    _preferred_ciphers = CIPHERS

    def _log(self, level: int, msg: str, *args: Any) -> None:
        """Nobody reads paramiko's log."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """What sshd sends for a log (paramiko would spell it out byte by byte)."""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()  # the reason as a number
        self.parting = errors.clean(m.get_binary())


class Connector:
    """Opens the connections of one fleet: shares jump hosts, bounds handshakes at once. Thread-safe.

    `on_notice` is called, in any thread, while a host is waited for that holds this address off.
    """

    def __init__(self, handshakes: int = HANDSHAKES, on_notice: OnNotice = no_notice) -> None:
        self._handshakes = Slots(handshakes)
        self._on_notice = on_notice
        self._lock = threading.Lock()
        self._jumps: dict[Target, _JumpHost] = {}
        self._refusals: dict[Target, tuple[float, HostUnreachable]] = {}  # when, and why
        self._closed = threading.Event()

    def connect(self, host: str, target: Target) -> fabric.Connection:
        """An open connection. `host` names it in errors. A refusal is not provoked again for `REFUSAL_S`."""
        refusal = self._refusals.get(target)
        if refusal is not None and time.monotonic() - refusal[0] < REFUSAL_S:
            error = copied(refusal[1])
            error.where = host
            raise error
        return self._ask_patiently(host, target, self._try_once)

    def host_key(self, host: str, target: Target) -> paramiko.PKey:
        """The host key that the target shows now, without a login: sshd counts that as a connection
        that did not authenticate. Raises HostUnreachable."""
        return self._ask_patiently(host, target, self._read_host_key)

    def _ask_patiently(self, host: str, target: Target, ask: Callable[[errors.Attempt], V]) -> V:
        """`ask`, again where sshd turns the connection away and waiting may help."""
        patience = Patience(lambda text: self._on_notice(host, _notice(host, target, text)))
        while True:
            attempt = errors.Attempt(host, target, CONNECT_S)
            try:
                return ask(attempt)
            except (paramiko.SSHException, OSError, EOFError, UnicodeError) as error:
                if (refused := descriptors.limit_reached(error)) is not None:
                    raise refused from error
                delay_s = patience.delay_s(attempt.closing) if attempt.closing is not None else None
                attempt.waited_s = patience.waited_s
                cause = errors.explain(error, attempt)
                if attempt.refused:
                    self._refusals[target] = (time.monotonic(), cause)
                if delay_s is None or self._closed.wait(delay_s):
                    raise cause from error

    def close(self) -> None:
        self._closed.set()
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
        self._open_jump_host(attempt)
        link: Link | None = None
        connection = _connection(target, attempt.host)
        with connect_timeout.waiting(CONNECT_S) as wait:
            offer.paused = wait.paused
            try:
                link = self._open_link(attempt, wait)
                with self._handshakes.take(wait):
                    connection.connect_kwargs = _connect_kwargs(target, link, offer)
                    connection.open()
            except BaseException as error:
                attempt.timed_out = wait.over or isinstance(error, TimeoutError)
                _note_failure(attempt, connection.client.get_transport(), link, offer)
                connection.client.close()
                raise
            finally:
                offer.close()
        link.budget = None
        connection.transport.login_key = offer.accepted
        keepalive.watch(connection.transport, link)
        return connection

    def _read_host_key(self, attempt: errors.Attempt) -> paramiko.PKey:
        self._open_jump_host(attempt)
        link: Link | None = None
        transport: paramiko.Transport | None = None
        with connect_timeout.waiting(CONNECT_S) as wait:
            try:
                link = self._open_link(attempt, wait)
                transport = tuned_transport(attempt.target, link)
                transport.banner_timeout = NEVER_S
                transport.start_client(timeout=NEVER_S)
                return transport.get_remote_server_key()
            except BaseException as error:
                attempt.timed_out = wait.over or isinstance(error, TimeoutError)
                _note_failure(attempt, transport, link)
                raise
            finally:
                if transport is not None:
                    transport.close()
                if link is not None:
                    link.close()

    def _open_jump_host(self, attempt: errors.Attempt) -> None:
        """Connects the jump host, with a time-out of its own."""
        if attempt.target.jump is not None:
            self._jump_host(attempt.target.jump).transport(attempt.host)

    def _open_link(self, attempt: errors.Attempt, wait: Wait) -> Link:
        """A link on which the server has greeted, or was silent for GREETING_S.

        Nothing is sent before: sshd closes without reading, and what it wrote last would be lost.
        """
        target = attempt.target
        through = self._jump_host(target.jump) if target.jump is not None else None
        link = dial(target, wait) if through is None else through.link(attempt.host, target, wait)
        wait.link = link
        attempt.connected = True
        attempt.address = "" if through is not None else link.own_address
        try:
            link.wait_for_greeting(GREETING_S)
        except BaseException:
            link.close()
            raise
        finally:
            attempt.greeting = link.greeting
        return link

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
                    raise errors.unusable_jump(self._failed[1], self._target, host)
                try:
                    self._connection = self._connector.connect(host, self._target)
                except TfdeployError as error:
                    self._failed = (time.monotonic(), error)
                    raise errors.unusable_jump(error, self._target, host) from error
            transport: paramiko.Transport = self._connection.transport
            return transport

    def link(self, host: str, target: Target, wait: Wait) -> Link:
        transport = self.transport(host)
        with self._starts.take(wait):
            try:
                channel = transport.open_channel("direct-tcpip", (target.hostname, target.port), ("", 0), timeout=wait.limit_s)
            except paramiko.ChannelException as error:
                raise HostUnreachable(
                    f"{errors.JUMP} {self._target.where} cannot reach {target.hostname}:{target.port}: {error.text}",
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
        return HostUnreachable(f"{errors.JUMP} {self._target.where} is lost: the connection to it ended", where=host)

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


def _notice(host: str, target: Target, text: str) -> str:
    """The notice about a host: it must tell a jump host from the host behind it."""
    return text if target.name == host else f"{errors.JUMP} {target.where}: {text}"


def _note_failure(
    attempt: errors.Attempt,
    transport: paramiko.Transport | None,
    link: Link | None,
    offer: Offer | None = None,
) -> None:
    """Notes in `attempt` how far it came, and closes the link."""
    attempt.agreed = bool(transport is not None and transport.initial_kex_done)
    attempt.parting = getattr(transport, "parting", "")
    if offer is not None:
        attempt.offered, attempt.answered = offer.tried, offer.answered
        attempt.wanted = offer.wanted
        attempt.notes = tuple(offer.notes)
    if link is not None:
        attempt.greeting, attempt.ended = link.greeting, link.ended
        link.close()
