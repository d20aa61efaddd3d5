"""Connections to ports of a run from any host of a lab, again and again, and what became of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tfdeploy.lab import Lab

HTTP2 = "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a000000040000000000"
PROGRAM = """
import json, socket, sys, threading, time
ports, count, threads, source, hello = json.loads(sys.argv[1])
found, lock, left, stopped = {}, threading.Lock(), [count], threading.Event()
def knock(host, port):
    try:
        with socket.create_connection((host, port), timeout=2.0, source_address=(source, 0) if source else None) as one:
            one.sendall(hello.encode("latin-1"))
            return "let in" if one.recv(1) else "hung up"
    except ConnectionRefusedError:
        return "refused"
    except ConnectionError:
        return "reset"
    except OSError as error:
        return "no answer"
def loop(number):
    at = number
    while True:
        with lock:
            if left[0] <= 0 and stopped.is_set():
                return
            left[0] -= 1
        host, port = ports[at % len(ports)]
        at += 1
        word = knock(host, port)
        with lock:
            of = found.setdefault("%s %d" % (host, port), {})
            of[word] = of.get(word, 0) + 1
all_ = [threading.Thread(target=loop, args=(number,)) for number in range(threads)]
[one.start() for one in all_]
sys.stdin.read()
stopped.set()
[one.join() for one in all_]
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Knocks:
    """By "host port": how often each came of it. A server that is let in to speaks first, or answers HTTP/2's greeting."""

    found: dict[str, dict[str, int]]

    def count(self, word: str) -> int:
        return sum(each.get(word, 0) for each in self.found.values())

    @property
    def total(self) -> int:
        return sum(sum(each.values()) for each in self.found.values())


class Knocking:
    """Begins at once on `host`, as that host's user, and goes on until `ended` is asked for, with at least `count`."""

    def __init__(
        self, lab: Lab, host: str, ports: Iterable[tuple[str, int]], count: int, threads: int = 4, source: str = ""
    ) -> None:
        asked = json.dumps([list(ports), count, threads, source, bytes.fromhex(HTTP2).decode("latin-1")])
        words = lab.on(host, [sys.executable, "-c", PROGRAM, asked])
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ended(self, within_s: float = 300.0) -> Knocks:
        said, _ = self._process.communicate(timeout=within_s)
        return Knocks(json.loads(said))
