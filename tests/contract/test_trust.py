"""Test the verb `trust`, which records host keys: sessions accept the recorded keys, and `trust`
replaces a changed key only if the user has agreed to the new one.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.lab.sessions import refused
from tfdeploy.errors import HostFailed
from tfdeploy.operations import trust
from tfdeploy.transport.fleet import SshFleet


def test_new_keys_are_recorded_once_and_then_known(ssh_hosts: Any) -> None:
    new, known = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2")
    down = replace(known.host, name="down", port=1)
    scanned = trust.scan_host_keys((new.host, known.host, down))
    assert [(scanned_host.host, scanned_host.state) for scanned_host in scanned] == [
        ("n1", "new"),
        ("n2", "known"),
        ("down", "unreachable"),
    ]
    public = str(new.config.parent / "hostkey.pub")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert scanned[0].outcome.fingerprint == shown
    assert [recorded.host for recorded in trust.record_new_keys([*scanned, *scanned])] == ["n1"]
    assert [scanned_host.state for scanned_host in trust.scan_host_keys((new.host,))] == ["known"]
    with SshFleet() as fleet:
        assert fleet.session(new.host).run(("true",)).exit_code == 0
    assert subprocess.run(
        ["ssh-keygen", "-F", f"[127.0.0.1]:{new.port}", "-f", str(ssh_hosts.known)],
        capture_output=True,
        check=True,
    )


def test_changed_key_is_shown_and_not_recorded(ssh_hosts: Any) -> None:
    sshd, other = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2")
    old = (other.config.parent / "hostkey.pub").read_text().split()[1]
    ssh_hosts.known.write_text(f"[127.0.0.1]:{sshd.port} ssh-ed25519 {old}\n")
    scanned = trust.scan_host_keys((sshd.host,))
    assert scanned[0].state == "changed"
    assert trust.record_new_keys(scanned) == []


def test_unknown_jump_host_is_recorded_before_hosts_behind_it(ssh_hosts: Any) -> None:
    jump, inner = ssh_hosts.host("jump", known=False), ssh_hosts.host("inner", known=False)
    host = replace(inner.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    first = trust.scan_host_keys((host,))
    assert [scanned_host.state for scanned_host in first] == ["new", "unreachable"]
    trust.record_new_keys(first)
    second = trust.scan_host_keys((host,))
    assert [scanned_host.state for scanned_host in second] == ["known", "new"]
    trust.record_new_keys(second)
    assert [scanned_host.state for scanned_host in trust.scan_host_keys((host,))] == [
        "known",
        "known",
    ]


@pytest.fixture
def start_proxy(
    listener: Callable[[Callable[[socket.socket], None]], int],
) -> Iterator[Callable[..., int]]:
    """Return a function start_proxy(*ports), which starts a TCP proxy and returns its port.

    It forwards the first connection to the first of `ports`, the second connection to the second,
    and so on. When no port is left, connections go to the last one.
    """

    upstreams: list[socket.socket] = []

    def start(*ports: int) -> int:
        remaining_ports = list(ports)

        def pass_on(sock: socket.socket) -> None:
            upstream = socket.create_connection(
                (
                    "127.0.0.1",
                    remaining_ports.pop(0) if len(remaining_ports) > 1 else remaining_ports[0],
                )
            )
            upstreams.append(upstream)
            for source, sink in ((sock, upstream), (upstream, sock)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

        return listener(pass_on)

    yield start
    for upstream in upstreams:
        with contextlib.suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)
        upstream.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(1 << 16):
            sink.sendall(block)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def test_scanned_key_is_recorded_and_later_key_is_refused(
    ssh_hosts: Any, start_proxy: Callable[..., int]
) -> None:
    real, stranger = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2", known=False)
    host = replace(real.host, port=start_proxy(real.port, stranger.port, real.port))
    seen = trust.scan_host_keys((host,))
    trust.record_new_keys(seen)
    with SshFleet() as fleet:
        error = refused(fleet, host)
        assert "has changed" in error.what and seen[0].outcome.fingerprint in error.what
        assert error.next and "tfdeploy trust --renew n1" in error.next
    with SshFleet() as fleet:
        assert fleet.session(host).run(("true",)).exit_code == 0


def test_key_that_user_saw_is_recorded_if_host_changes_keys(
    ssh_hosts: Any, start_proxy: Callable[..., int]
) -> None:
    sshds = [ssh_hosts.host(f"n{i}", known=False) for i in range(3)]
    host = replace(sshds[0].host, port=start_proxy(*(sshd.port for sshd in sshds)))
    trust.record_new_keys(trust.scan_host_keys((host,)))
    changed = trust.scan_by_name((host,), "n0")
    assert changed is not None and changed.state == "changed"
    trust.replace_key(changed)
    assert (sshds[1].config.parent / "hostkey.pub").read_text().split()[
        1
    ] in ssh_hosts.known.read_text()
    assert len(ssh_hosts.known.read_text().splitlines()) == 1
    with SshFleet() as fleet:
        assert changed.outcome.fingerprint in refused(fleet, host).what
    with pytest.raises(HostFailed, match="in the meantime"):
        # Now the host shows a key that the user has not agreed to.
        trust.replace_key(changed)


def test_jump_host_key_is_renewed_by_name(ssh_hosts: Any) -> None:
    jump, inner = ssh_hosts.host("jump", known=False), ssh_hosts.host("inner")
    wrong = (inner.config.parent / "hostkey.pub").read_text().split()[1]
    with ssh_hosts.known.open("a") as lines:
        lines.write(f"[127.0.0.1]:{jump.port} ssh-ed25519 {wrong}\n")
    host = replace(inner.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    with SshFleet() as fleet:
        error = refused(fleet, host)
        assert error.next and error.next.endswith("`tfdeploy trust --renew 127.0.0.1`")
    assert trust.scan_by_name((host,), "n9") is None
    machine = trust.scan_by_name((host,), "127.0.0.1")
    assert machine is not None and machine.state == "changed"
    trust.replace_key(machine)
    with SshFleet() as fleet:
        assert fleet.session(host).run(("true",)).exit_code == 0


def test_names_are_hashed_like_other_names_in_file_or_by_ssh(
    ssh_hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2", known=False)
    # Some systems set HashKnownHosts in their ssh configuration. This test ignores that setting.
    monkeypatch.setattr("tfdeploy.transport.ssh.ssh_config.read_settings", lambda *_: {})
    monkeypatch.setattr("tfdeploy.transport.ssh.ssh_config.hashes_names", lambda _: False)
    trust.record_new_keys(trust.scan_host_keys((first.host,)))
    assert f"[127.0.0.1]:{first.port} " in ssh_hosts.known.read_text()
    subprocess.run(
        ["ssh-keygen", "-q", "-H", "-f", str(ssh_hosts.known)], check=True, capture_output=True
    )
    trust.record_new_keys(trust.scan_host_keys((second.host,)))
    assert str(second.port) not in ssh_hosts.known.read_text()
    ssh_hosts.known.write_text("")
    monkeypatch.setattr("tfdeploy.transport.ssh.ssh_config.hashes_names", lambda _: True)
    trust.record_new_keys(trust.scan_host_keys((first.host, second.host)))
    assert "127.0.0.1" not in ssh_hosts.known.read_text()
    assert [scanned.state for scanned in trust.scan_host_keys((first.host, second.host))] == [
        "known",
        "known",
    ]


def test_old_key_in_system_file_is_named(
    ssh_hosts: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd, other = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2")
    wrong = (other.config.parent / "hostkey.pub").read_text().split()[1]
    system = tmp_path / "system"
    system.write_text(f"[127.0.0.1]:{sshd.port} ssh-ed25519 {wrong}\n")
    monkeypatch.setattr("tfdeploy.transport.ssh.target.GLOBAL_KNOWN_HOSTS", (str(system),))
    monkeypatch.setattr("tfdeploy.transport.ssh.ssh_config.read_settings", lambda *_: {})
    machine = trust.scan_by_name((sshd.host,), "n1")
    assert machine is not None and machine.state == "changed"
    before = system.read_text()
    trust.replace_key(machine)
    assert system.read_text() == before
    assert trust.scan_host_keys((sshd.host,))[0].state == "known"
    monkeypatch.setattr(
        "tfdeploy.transport.ssh.host_keys.recording.is_outside_system_folder", lambda _: False
    )
    with pytest.raises(HostFailed, match="you have no known_hosts file"):
        trust.replace_key(machine)


def test_lists_of_fingerprints_are_read() -> None:
    text = "# mine\nn1 SHA256:abc=\nn2 ssh-ed25519 SHA256:def comment\n256 nothing\n"
    assert trust.read_fingerprints(text) == {"n1": "SHA256:abc", "n2": "SHA256:def"}
