"""Provide real sshds on loopback for the contract tests.

Each sshd has its own host key and its own home folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.faults.doings import Wires, small_job
from support.lab.sshd import SSHD
from support.ports import free_ports
from support.waiting import wait_for
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.transport.session import SshSession, open_session
from tfdeploy.transport.ssh.connect import Connector


@dataclass
class Sshd:
    host: Host
    home: Path
    port: int
    process: subprocess.Popen[bytes]
    config: Path
    log: Path

    def trace(self) -> str:
        return self.log.read_text(errors="replace")


def _keygen(path: Path, *words: str) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *words], check=True
    )


def _await_listening(pid_file: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until sshd has written its PidFile, because sshd listens from that moment on.

    The test does not try to connect, because sshd penalises an address that connects without a
    login.
    """

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        return pid_file.exists()

    wait_for(listens, 15, f"sshd listens: {log}", poll_s=0.01)


@dataclass
class SshHosts:
    """Starts sshds on loopback.

    Every sshd accepts the private key `key`, and the host key of each sshd is added to the
    known_hosts file `known`.
    """

    root: Path
    key: Path
    known: Path
    running: list[Sshd]

    def host(self, name: str, *options: str, known: bool = True) -> Sshd:
        folder = self.root / name
        home = folder / "home"
        home.mkdir(parents=True)
        _keygen(folder / "hostkey")
        port, log, config = free_ports(1)[0], folder / "log", folder / "config"
        lines = [
            # sshd uses the first value of a keyword, so the options of the test precede the others.
            *options,
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder / 'hostkey'}",
            f"AuthorizedKeysFile {self.key}.pub",
            f"PidFile {folder / 'pid'}",
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            f'SetEnv HOME="{home}"',
        ]
        config.write_bytes(os.fsencode("\n".join(lines) + "\n"))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with log.open("wb") as trace:
            process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=trace
            )
        user = os.environ.get("USER") or __import__("pwd").getpwuid(os.getuid()).pw_name
        host = Host(
            name=name,
            address="127.0.0.1",
            port=port,
            user=user,
            identity_file=str(self.key),
            known_hosts=str(self.known),
        )
        sshd = Sshd(host=host, home=home, port=port, process=process, config=config, log=log)
        self.running.append(sshd)
        _await_listening(folder / "pid", process, log)
        if known:
            self.learn(sshd)
        return sshd

    def learn(self, sshd: Sshd) -> None:
        words = (sshd.config.parent / "hostkey.pub").read_text().split()
        with self.known.open("a") as lines:
            lines.write(f"[127.0.0.1]:{sshd.port} {words[0]} {words[1]}\n")

    def end(self) -> None:
        for sshd in self.running:
            sshd.process.terminate()
        for sshd in self.running:
            sshd.process.wait(120)


def _serve_ssh_hosts(root: Path) -> Iterator[SshHosts]:
    if not Path(SSHD).exists():
        pytest.skip("needs sshd: apt install openssh-server")
    _keygen(root / "key")
    ssh_hosts = SshHosts(root, root / "key", root / "known_hosts", [])
    ssh_hosts.known.touch()
    try:
        yield ssh_hosts
    finally:
        ssh_hosts.end()


@pytest.fixture
def ssh_hosts(tmp_path: Path) -> Iterator[SshHosts]:
    yield from _serve_ssh_hosts(tmp_path)


@pytest.fixture(scope="module")
def shared_ssh_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Provide sshds that all tests of a module share. These tests must not change the files of the
    hosts.
    """
    yield from _serve_ssh_hosts(tmp_path_factory.mktemp("sshd"))


@pytest.fixture(params=["a new ssh", "the open session"])
def connect_to(request: pytest.FixtureRequest) -> Iterator[Callable[[Host], dict[str, Any]]]:
    """Return a function connect_to(host), which returns keyword arguments for `push` and `pull`.

    With these arguments, `push` and `pull` connect through a new ssh or through an open session.
    """
    opened: list[SshSession] = []
    connector = Connector()

    def choose(host: Host) -> dict[str, Any]:
        if request.param == "a new ssh":
            return {}
        opened.append(open_session(host, connector))
        return {"session": opened[-1]}

    yield choose
    for session in opened:
        session.close()
    connector.close()


@pytest.fixture
def listener() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Return a function that starts a TCP server on a free port and returns the port.

    The function takes a handler, which is called with each accepted connection.
    """
    import threading

    opened: list[socket.socket] = []

    def start(talk: Callable[[socket.socket], None]) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = server.accept()
                    opened.append(sock)
                    with contextlib.suppress(OSError):
                        talk(sock)

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for sock in opened:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def with_host(sshd: Sshd, **changes: object) -> Host:
    return replace(sshd.host, **changes)  # type: ignore[arg-type]


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Wires:
    """Replace rsync by an object that records the arguments of each call."""
    recorded = Wires()
    monkeypatch.setattr("tfdeploy.operations.copy.push_files.push", recorded.push)
    monkeypatch.setattr("tfdeploy.operations.copy.pull.pull", recorded.pull)
    return recorded


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return small_job(tmp_path)
