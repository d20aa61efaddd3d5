"""Relay connections between the operator and one host, and break them after a given number of
bytes.

The number includes the bytes of both directions. If this module runs as a program, it prints the
port on which it listens, and reads commands from standard input: `cut N` and `count`. A test uses
the class BrittleWire, which starts that program in the operator's network.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.lab.commandline import Tfdeploy
from support.lab.hosts import set_inventory

_PROGRAM = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from support.faults.brittle_wire import main
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class BrittleWire:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._answer())

    def cut_after(self, count: int) -> None:
        """Break the connection after `count` more bytes. The bytes of both directions are added up.

        Later connections do not break.
        """
        self._say(f"cut {count}")

    def count(self) -> int:
        """Return how many bytes both directions have carried since the last call of cut_after or
        count.
        """
        return int(self._say("count"))

    def _say(self, args: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(args + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def brittle_wire(operator: Tfdeploy, host: str) -> Iterator[BrittleWire]:
    """Route all connections from the operator to `host` through a relay, which a test can break."""
    lab = operator.lab
    row = next(row for row in lab.status() if row["host"] == host)
    command = lab.operator_command(
        [sys.executable, "-c", _PROGRAM, str(row["address"]), str(row["port"])]
    )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wire = BrittleWire(process)
            known = operator.home / "known_hosts"
            lines = lab.known_hosts.read_text().splitlines()
            key = next(line for line in lines if line.startswith(f"{row['address']} ")).partition(
                " "
            )[2]
            known.write_text("\n".join([*lines, f"[127.0.0.1]:{wire.port} {key}"]) + "\n")
            through = {"address": "127.0.0.1", "port": wire.port, "advertise": str(row["address"])}
            set_inventory(operator, defaults={"known_hosts": str(known)}, hosts={host: through})
            yield wire
        finally:
            process.kill()


class _Wire:
    def __init__(self) -> None:
        self.seen = 0
        self.left: int | None = None

    async def join(
        self, near: asyncio.StreamReader, nearer: asyncio.StreamWriter, address: str, port: int
    ) -> None:
        far, farther = await asyncio.open_connection(address, port)
        both = (nearer, farther)
        await asyncio.gather(self.carry(near, farther, both), self.carry(far, nearer, both))

    async def carry(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if self.left is not None:
                    data = data[: self.left]
                    self.left -= len(data)
                self.seen += len(data)
                target.write(data)
                await target.drain()
                if self.left == 0:
                    self.left = None
                    break
        except OSError:
            pass
        for each in both:
            each.close()

    def run_command(self, args: list[str]) -> int:
        seen, self.seen = self.seen, 0
        if args[0] == "cut":
            self.left = int(args[1])
        return seen


async def main(address: str, port: int) -> None:
    wire = _Wire()
    server = await asyncio.start_server(
        lambda near, nearer: wire.join(near, nearer, address, port), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(wire.run_command(line.split()), flush=True)
