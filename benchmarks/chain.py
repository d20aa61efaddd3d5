"""Measure the shortest time in which a chain of hosts on this machine can pass bytes on.

Each host receives the bytes, writes them to a file and sends them to the next host by plain TCP. It
does so with `socat` and `tee` if socat is installed, otherwise with a small Python program.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from place import BenchLab
from turns import Spent

from tfdeploy.lab import network

PORT = 5000
READY_S = 30.0
COMMAND_S = 600.0
BLOCK = 1 << 18
KEPT = "chained"
RELAY = """
import socket, sys
port, kept, following = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
with socket.create_server(("", port)) as server:
    parent = server.accept()[0]
child = socket.create_connection((following[0], port)) if following else None
block = bytearray(1 << 18)
with open(kept, "wb", buffering=0) as file:
    while count := parent.recv_into(block):
        received = memoryview(block)[:count]
        file.write(received)
        if child:
            child.sendall(received)
if child:
    child.close()
"""
FEED = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as child:
    for name in sys.argv[3:]:
        with open(name, "rb") as file:
            child.sendfile(file)
"""


def name() -> str:
    """Return what relays the bytes on the hosts: socat if this machine has it, else a Python
    program.
    """
    return "socat" if shutil.which("socat") else "recv, write, send"


def send(bench: BenchLab, files: Sequence[Path]) -> Spent:
    """Send the files' bytes from the operator through all hosts of the chain. Return the cost.

    The measured time ends when the last host has received all bytes.
    """
    rows = bench.lab.status()
    relays = []
    with ExitStack() as stack:
        # The last host's relay starts first, because each relay connects to the next host's relay.
        for number in range(len(rows), 0, -1):
            row, following = (
                rows[number - 1],
                [behind["address"] for behind in rows[number : number + 1]],
            )
            words = network.command_in_network(
                row["pid"] or 0, _relay(_kept(bench, row["host"]), following)
            )
            relays.append(stack.enter_context(subprocess.Popen(words)))
            stack.callback(relays[-1].kill)
            _wait_until_it_listens(row["pid"] or 0)
        began = time.monotonic()
        fed = subprocess.run(
            bench.lab.operator_command(_feed(rows[0]["address"], files)),
            timeout=COMMAND_S,
            check=False,
        )
        codes = [fed.returncode, *(relay.wait(COMMAND_S) for relay in relays)]
        seconds = time.monotonic() - began
    wanted = sum(path.stat().st_size for path in files)
    if any(codes) or {_kept(bench, host).stat().st_size for host in bench.lab.hosts} != {wanted}:
        raise SystemExit(f"the chain did not bring {wanted} bytes everywhere: exits {codes}")
    for host in bench.lab.hosts:
        _kept(bench, host).unlink()
    return Spent(seconds=seconds, cpu_s=0.0, peak_bytes=0)


def _relay(kept: Path, following: Sequence[str]) -> list[str]:
    if shutil.which("socat") is None:
        return [sys.executable, "-S", "-E", "-c", RELAY, str(PORT), str(kept), *following]
    receive = f"socat -u -b {BLOCK} TCP-LISTEN:{PORT},reuseaddr STDOUT"
    on = (
        f"tee {kept} | socat -u -b {BLOCK} STDIN TCP:{following[0]}:{PORT}"
        if following
        else f"cat > {kept}"
    )
    return ["sh", "-c", f"{receive} | {on}"]


def _feed(address: str, files: Sequence[Path]) -> list[str]:
    names = [str(path) for path in files]
    if shutil.which("socat") is None:
        return [sys.executable, "-S", "-E", "-c", FEED, address, str(PORT), *names]
    return ["sh", "-c", f'cat "$@" | socat -u -b {BLOCK} STDIN TCP:{address}:{PORT}', "sh", *names]


def _kept(bench: BenchLab, host: str) -> Path:
    """Return the path at which this machine finds the file that a host has written."""
    return bench.lab.root / "hosts" / host / "home" / KEPT


def _wait_until_it_listens(pid: int) -> None:
    deadline = time.monotonic() + READY_S
    while f":{PORT:04X} 00000000:0000 0A" not in Path(f"/proc/{pid}/net/tcp").read_text():
        if time.monotonic() > deadline:
            raise SystemExit("a relay of the chain does not listen")
        time.sleep(0.01)
