"""Test that JSON text from another host is either parsed to a value of bounded size or refused with
ValueError, also in a thread with a small stack.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.health import peers
from tfdeploy.agent.mesh import bounded_json
from tfdeploy.agent.mesh.listener import MAX_MESSAGE_BYTES

DEEP = MAX_MESSAGE_BYTES // 2


@pytest.mark.fault("59 numbers, depth and sizes between the minders")
@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"[Infinity]",
        b'{"a":-Infinity}',
        b"1e999",
        b"-1e999",
        b"9" * 21,
        b"9" * 5000,
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b'{"\\"":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"\\\\":' + b"[" * 100 + b"]" * 100 + b"}",
        b"[" + b"[]," * 200_000 + b"[]]",
        b'"' + b'\\"' * (MAX_MESSAGE_BYTES // 2),
        b"\xff\xfe",
        b"",
        b"[1",
        b'"\\ud800',
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_bounded_value_is_refused_quickly(text: bytes) -> None:
    begun = time.thread_time()
    with pytest.raises(ValueError):
        bounded_json.parse(text)
    assert time.thread_time() - begun < 2.0


def test_the_deepest_that_is_read_fits_into_a_small_stack() -> None:
    text = b"[" * bounded_json.MAX_DEPTH + b"]" * bounded_json.MAX_DEPTH
    collected: list[Any] = []
    before = threading.stack_size(128 << 10)
    try:
        one = threading.Thread(
            daemon=True, target=lambda: collected.append(bounded_json.parse(text))
        )
        one.start()
        one.join()
    finally:
        threading.stack_size(before)
    assert collected == [json.loads(text)]


def test_brackets_and_quotes_inside_strings_do_not_count() -> None:
    for letters in ("[" * 100, '"' * 99, "\\" * 99, '\\"[' * 50, "{}],:" * 50):
        for value in ({"reason": letters}, {letters: [letters, 1]}, [letters] * 3):
            assert bounded_json.parse(json.dumps(value).encode("ascii")) == value


def test_what_python_writes_is_read() -> None:
    chance = random.Random(7)
    for _ in range(500):
        value = _some(chance, 4)
        assert bounded_json.parse(json.dumps(value).encode("ascii")) == value


def _some(chance: random.Random, depth: int) -> Any:
    if depth and chance.random() < 0.5:
        few = range(chance.randrange(4))
        if chance.random() < 0.5:
            return [_some(chance, depth - 1) for _ in few]
        return {
            "".join(chance.choices('ab"\\[{\u8bad', k=3)): _some(chance, depth - 1) for _ in few
        }
    return chance.choice(
        [None, True, False, 0, -1, 2**60, 1.5, -2.5e-7, "", '"', "\\", '\\"[', "\u8bad\n"]
    )


PART = wire.HostPart(
    run="r1",
    job="j",
    mode="sync",
    host="n1",
    plan_digest="d",
    release="c",
    peers=[
        wire.Peer(task="worker:0", role="worker", host="n1"),
        wire.Peer(task="worker:1", role="worker", host="n2"),
    ],
)
SIGN = {
    "still_s": 1,
    "waits": ["worker:0"],
    "waiting_s": 0,
    "stopped": 0,
    "disk": 0,
    "listens": None,
    "starting": False,
}


def test_the_signs_of_another_host_are_values_of_one_type() -> None:
    (sign,) = peers._parse_signs_of_host(
        {"signs": {"worker:1": SIGN}, "more": 1}, PART, "n2"
    ).values()
    assert sign == peers.LifeSigns(still_s=1.0, waits=("worker:0",)) and isinstance(
        sign.still_s, float
    )
    told = peers._parse_signs_of_host(
        {"signs": {"worker:1": dict(SIGN, waits=["worker:9", 3, "worker:0"])}}, PART, "n2"
    )
    assert told["worker:1"].waits == ("worker:0",)
    # worker:0 does not run on n2, so n2 may not report about it.
    assert peers._parse_signs_of_host({"signs": {"worker:0": SIGN}}, PART, "n2") == {}


@pytest.mark.parametrize(
    "nonsense",
    [
        [],
        {"signs": []},
        {"signs": {"worker:1": []}},
        *({"signs": {"worker:1": dict(SIGN, **{name: value})}} for name, value in [
            ("still_s", "1"), ("still_s", True), ("still_s", float("nan")), ("still_s", 10**400),
            ("waits", "abc"), ("stopped", 1.5), ("disk", -1), ("listens", "yes"), ("starting", 1),
            ("waiting_s", [[]]),
        ]),
    ],
)  # fmt: skip
def test_signs_that_are_none_are_refused(nonsense: Any) -> None:
    with pytest.raises(ValueError):
        peers._parse_signs_of_host(nonsense, PART, "n2")
