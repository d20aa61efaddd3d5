"""Test how tfdeploy confines a program with features of the kernel. The program runs, but it cannot
access the user's files.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tfdeploy.transport.rsync import confined, confinement

pytestmark = pytest.mark.skipif(
    confined.landlock_version() < 6,
    reason="needs a kernel whose Landlock knows networks and signals",
)

TRIES = {
    "writes its folder": "os.mkdir(here + '/a'); open(here + '/a/b', "
    "'w').write('x'); os.rename(here + '/a/b', "
    "here + '/b')",
    "reads programs": "open('/usr/bin/env', 'rb').read(1)",
    "starts a program": "import subprocess; subprocess.run(['true'], check=True)",
    "writes beside": "open(outside + '/new', 'w')",
    "writes over": "open(outside + '/key', 'r+')",
    "truncates": "os.truncate(outside + '/key', 0)",
    "removes": "os.unlink(outside + '/key')",
    "moves in": "os.rename(outside + '/key', here + '/key')",
    "links in": "os.link(outside + '/key', here + '/key')",
    "reads a key": "open(outside + '/key')",
    "lists keys": "os.listdir(outside)",
    "follows its own link": "os.symlink(outside + '/key', here + '/link')",
    "climbs out": "open(here + '/../outside/key')",
    "reads users": "open('/etc/passwd')",
    "reads our memory": "open(f'/proc/{os.getppid()}/environ')",
    "connects": "socket.create_connection(('127.0.0.1', port), 5)",
    "sends UDP": "socket.socket(socket.AF_INET, "
    "socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port))",
    "asks an ssh agent": "socket.socket(socket.AF_UNIX).connect(outside + '/agent')",
    "sends to a unix socket": "socket.socketpair(socket.AF_UNIX, "
    "socket.SOCK_DGRAM)[0].sendto(b'x', outside + '/agent')",
    "ends us": "os.kill(os.getppid(), 0)",
    "slows us down": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "moves us to other cores": "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))",
}
ALLOWED = {"writes its folder", "reads programs", "starts a program"}


def run(words: list[str], code: str, tmp_path: Path, port: int) -> int:
    folder, outside = tmp_path / "here", tmp_path / "outside"
    head = f"import os, socket; here, outside, port = {str(folder)!r}, {str(outside)!r}, {port}; "
    done = subprocess.run(
        [*words, sys.executable, "-S", "-E", "-c", head + code],
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert done.returncode in (0, 1), done.stderr
    # If the kernel refuses a hard link between two folders, it reports the second of these errors.
    refused = (b"PermissionError", b"Invalid cross-device link")
    assert done.returncode == 0 or any(words in done.stderr for words in refused), done.stderr
    return done.returncode


@pytest.mark.parametrize("attempt", TRIES)
def test_confined_program_reaches_only_its_folder_and_system_programs(
    attempt: str, tmp_path: Path
) -> None:
    for name in ("here", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/key").write_text("secret")
    words = confinement.confining_command(str(tmp_path / "here"))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "outside/agent"))
        agent.listen()
        code = run(words, TRIES[attempt], tmp_path, server.getsockname()[1])
    assert (code == 0) == (attempt in ALLOWED)
    assert (tmp_path / "outside/key").read_text() == "secret"


def test_rsync_can_be_confined_on_this_machine() -> None:
    assert confinement.can_confine()
    assert confinement.describe_confinement_gap() is None
