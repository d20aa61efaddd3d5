"""Test that threads which connect to different hosts share no state."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from support.waiting import wait_for
from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.connect import Connector, _connection, _JumpHost, tuned_transport
from tfdeploy.transport.ssh.patience import RetrySchedule
from tfdeploy.transport.ssh.target import Target


def test_simultaneous_connections_share_no_state() -> None:
    with ThreadPoolExecutor(8) as pool:
        connections = list(
            pool.map(
                lambda n: _connection(
                    Target(hostname=f"10.0.0.{n}", port=n, user=f"u{n}"), f"n{n}"
                ),
                range(1, 33),
            )
        )
    assert {
        (connection.host, connection.original_host, connection.user, connection.port)
        for connection in connections
    } == {(f"10.0.0.{n}", f"10.0.0.{n}", f"u{n}", n) for n in range(1, 33)}
    assert (
        len({id(connection.client) for connection in connections})
        == len({id(connection.connect_kwargs) for connection in connections})
        == 32
    )
    assert all(
        connection.authentication.strategy_class is None and not connection.is_connected
        for connection in connections
    )
    assert len({id(connection.config) for connection in connections}) == 32


@pytest.mark.parametrize(
    "further_arguments",
    [
        {"gss_kex": False, "gss_deleg_creds": True, "disabled_algorithms": None},
        {"disabled_algorithms": None},
        {"disabled_algorithms": None, "new_in_a_later_release": True},
    ],
    ids=["paramiko 3.5 to 4.0", "paramiko 5", "a later one"],
)
def test_each_paramiko_release_uses_own_transport(further_arguments: dict[str, Any]) -> None:
    local_socket, remote_socket = socket.socketpair()
    with local_socket, remote_socket:
        transport = tuned_transport(
            Target(hostname="10.0.0.1", port=22, user="ml"), local_socket, **further_arguments
        )
        assert transport.get_security_options().key_types[0] == "ssh-ed25519"
        transport.close()


def connect_by(proxy_command: str, folder: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(folder / "key"))
    target = Target(
        hostname="10.0.0.1",
        port=22,
        user="ml",
        identity_files=(str(folder / "key"),),
        proxy_command=proxy_command,
    )
    Connector().connect("n1", target)


def test_missing_proxy_command_is_named_with_exit_code_and_file(
    tmp_path: Path,
) -> None:
    with pytest.raises(HostUnreachable) as caught:
        connect_by("no-such-program-0 --host x", tmp_path)
    assert caught.value.what.startswith(
        "the ProxyCommand for 10.0.0.1:22 ended with exit code 127: no-such-program-0: "
    )
    assert caught.value.next == (
        "install no-such-program-0 on this machine, or correct `ProxyCommand` in "
        f"{ssh_config.config_file_with('proxycommand')}"
    )


def test_failing_proxy_command_is_retried_and_its_output_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetrySchedule, "delay_s", lambda *_: None)
    with pytest.raises(HostUnreachable, match="ended with exit code 3: no route") as caught:
        connect_by("sh -c 'echo one >&2; echo no route >&2; exit 3'", tmp_path)
    assert caught.value.retries > 0 and "correct `ProxyCommand`" in (caught.value.next or "")


class Counted:
    """A lock that counts how often a thread has tried to acquire it."""

    def __init__(self) -> None:
        self.asked, self._lock, self._counting = 0, threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._counting:
            self.asked += 1
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_silent_jump_host_is_tried_once_for_all_waiting_threads() -> None:
    tried: list[str] = []
    go_on = threading.Event()

    def connect(host: str, target: Target) -> Any:
        tried.append(host)
        assert go_on.wait(120)
        raise HostUnreachable("no answer", where=host)

    connector: Any = SimpleNamespace(connect=connect)
    jump_host = _JumpHost(connector, Target(hostname="10.0.0.1", port=22, user="ml"))
    jump_host._lock = lock = Counted()  # type: ignore[assignment]

    def ask(host: str) -> HostUnreachable:
        with pytest.raises(HostUnreachable) as caught:
            jump_host.transport(host)
        return caught.value

    hosts = [f"n{n}" for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, host) for host in hosts]
        wait_for(lambda: lock.asked == 8, 10, "all threads wait for the one that connects")
        go_on.set()
        assert [answer.result().where for answer in answers] == hosts
    assert len(tried) == 1
    with pytest.raises(HostUnreachable):
        jump_host.transport("later")
    assert tried[1:] == ["later"]
