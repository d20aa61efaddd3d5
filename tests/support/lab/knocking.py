"""Connect to ports of a run from any host of a lab, repeatedly, and return the results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from support.lab.host_commands import host_command
from tfdeploy.lab import Lab

PROGRAM = Path(__file__).with_name("knocker.py").read_text()


class End(NamedTuple):
    """The address and the port to which a test connects.

    `hello`: the name of the first message that the client sends (http2, tls, http); see knocker.py.
    """

    address: str
    port: int
    hello: str = "http2"


@dataclass(frozen=True)
class Knocks:
    """The results of many attempts to connect: for each "host port", how often each result
    occurred.

    A client was let in if the server sent something first or answered the first message.
    """

    counts: dict[str, dict[str, int]]

    def at(self, end: End) -> dict[str, int]:
        return self.counts[f"{end.address} {end.port}"]

    def count(self, word: str) -> int:
        return sum(each.get(word, 0) for each in self.counts.values())

    @property
    def let_in(self) -> int:
        """Return how many attempts to connect were let in. This includes connections that stayed
        open without an answer.
        """
        return self.count("let in") + self.count("stays open")

    @property
    def total(self) -> int:
        return sum(sum(each.values()) for each in self.counts.values())


class Knocking:
    """Connections from `host`. They begin at once and continue until the method `ended` is called.

    At least `count` connections are made to each address and port in `ends`. The connecting program
    runs as the host's user or, on isolated hosts, as `user` (0: root).
    """

    def __init__(
        self,
        lab: Lab,
        host: str,
        ends: Iterable[tuple[str, int] | End],
        count: int,
        *,
        rate: float = 2000.0,
        source: str = "",
        user: int | None = None,
    ) -> None:
        listed = [list(End(*end)) for end in ends]
        asked = {"ends": listed, "count": count, "rate": rate, "source": source, "user": user}
        command = host_command(
            lab, host, [sys.executable, "-c", PROGRAM, json.dumps(asked)], root=user is not None
        )
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ended(self, within_s: float = 300.0) -> Knocks:
        output, _ = self._process.communicate(timeout=within_s)
        return Knocks(json.loads(output))
