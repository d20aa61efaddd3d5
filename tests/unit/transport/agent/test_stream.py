"""Test long headers and streams on the channel to an agent.

A long header is compressed. Its size is checked during decompression, and it becomes a typed value
at once.
"""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.agent import frames
from tfdeploy.errors import AgentError, BadAnswer
from tfdeploy.model.answers.files import Missing
from tfdeploy.model.answers.verb import Flow
from tfdeploy.transport.agent import stream
from tfdeploy.transport.agent.frames import Frame, Frames
from tfdeploy.transport.agent.stream import MOST_PACKED_BYTES, Reply, VerbStream, read_field

LONG = [f"folder/{number:06}" for number in range(100_000)]


def taken(header: dict[str, Any], blob: bytes = b"") -> Frame:
    (frame,) = Frames(frames.encode_frame(header, blob)).complete_frames()
    return frame


def test_a_long_value_comes_through() -> None:
    frame = taken({"id": 7, "value": {"missing": LONG}})
    assert (
        frame.header == {"id": 7, "packed": "value"}
        and frame.has_field("value")
        and not frame.has_field("item")
    )
    assert len(frame.blob) < 1 << 20 and frame.own_blob == b""
    assert read_field(frame, "value", Missing, "release.begin", "n1").missing == LONG


@pytest.mark.fault("18 a name that is not UTF-8 among very many")
def test_a_long_value_comes_through_with_names_that_are_not_utf8() -> None:
    names = [*LONG, os.fsdecode(b"odd\xff\xfe"), "\U0001f600"]
    assert (
        read_field(
            taken({"id": 7, "value": {"missing": names}}), "value", Missing, "release.begin", "n1"
        ).missing
        == names
    )


def test_a_short_one_and_a_blob_of_its_own_stay_as_they_are() -> None:
    frame = taken({"id": 7, "item": {"missing": ["a"]}}, b"bytes")
    assert (frame.header, frame.own_blob) == ({"id": 7, "item": {"missing": ["a"]}}, b"bytes")
    assert read_field(frame, "item", Missing, "release.begin", "n1").missing == ["a"]


@pytest.mark.fault("59 a packed answer that is endless, half, or of another shape")
@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"garbage",
        frames.compress(b'{"missing": []}')[:-1],
        frames.compress(b"[1"),
        frames.compress(b'{"missing": 3}'),
        frames.compress(b"[" * 10**6),
        frames.compress(b'{"missing": ["\\udcff", NaN]}'),
        frames.compress(b'{"missing": ["\\udcff", 3]}'),
    ],
)
def test_what_is_packed_and_makes_no_sense_is_a_bad_answer(blob: bytes) -> None:
    with pytest.raises(BadAnswer, match="makes no sense"):
        read_field(
            Frame({"id": 7, "packed": "value"}, blob, 0), "value", Missing, "release.begin", "n1"
        )


@pytest.mark.fault("59 an answer of millions of empty texts")
def test_what_would_take_much_more_memory_than_its_text_is_not_read() -> None:
    blob = frames.compress(b'{"missing": [' + b'"",' * 5_000_000 + b'""]}')
    with pytest.raises(BadAnswer, match="MiB of memory"):
        read_field(Frame({"packed": "value"}, blob, 0), "value", Missing, "release.begin", "n1")


@pytest.mark.fault("59 a gigabyte in a packed answer")
def test_a_gigabyte_is_not_unpacked() -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="more than"):
            read_field(Frame({"packed": "value"}, bomb, 0), "value", Missing, "release.begin", "n1")
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_PACKED_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_unpacking_is_exact_to_the_byte(size: int) -> None:
    content = bytes(range(250)) * 4
    assert frames.decompress(frames.compress(content[:size]), 1000) == content[:size]
    with pytest.raises(frames.WireError, match="more than 1000"):
        frames.decompress(frames.compress(content + b"x"), 1000)


def test_a_header_of_more_than_a_mebibyte_is_not_ours() -> None:
    with pytest.raises(frames.WireError, match="not ours"):
        list(Frames(struct.pack("!II", (1 << 20) + 1, 0)).complete_frames())
    with pytest.raises(frames.WireError, match="too large"):
        frames.encode_frame({"id": 1, "item": "x" * (1 << 20)}, b"a blob of its own")
    assert json.loads(
        frames.decompress(taken({"id": 1, "verb": "v", "args": {"a": "x" * (1 << 20)}}).blob)
    ) == {"a": "x" * (1 << 20)}


@pytest.mark.parametrize(
    ("blob", "kind"),
    [
        (frames.compress(b'{"code": "locked", "what": "no"}'), AgentError),
        (b"x", BadAnswer),
        (b"", BadAnswer),
    ],
)
def test_a_no_may_be_packed_too(blob: bytes, kind: type[Exception]) -> None:
    answer = Reply("n1", lambda full: None)
    answer.put(Frame({"id": 7, "packed": "error"}, blob, 0))
    with pytest.raises(kind):
        answer.value("lock", 1.0)


def test_what_nobody_reads_is_bounded_also_while_a_call_waits() -> None:
    # The test puts frames into the Reply without a pause, as the channel does while a call waits
    # for its answer.
    answer = Reply("n1", lambda full: None)
    for _ in range(100):
        answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
    with pytest.raises(BadAnswer, match="that were not read yet"):
        while answer.next("logs", 1.0):
            pass
        answer.last_answer("logs")
    answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
    assert answer.next("logs", 1.0) is None


def test_who_reads_in_time_gets_all_of_it() -> None:
    answer = Reply("n1", lambda full: None)
    for _ in range(1000):
        answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
        assert answer.next("logs", 1.0)


def test_a_stream_that_goes_on_and_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that a stream has a time limit, which only counts the time for which a caller waits for
    the stream.
    """
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stream.time, "monotonic", lambda: clock.now)
    answer = Reply("n1", lambda full: None)
    asked: Any = VerbStream(
        answer=answer,
        flow=Flow(name="logs", item=dict, value=dict),
        cancel=lambda: None,
        silence_s=10.0,
    )
    wait_for_next = answer.next

    def late(verb: str, silence_s: float | None) -> Frame | None:
        clock.now += 9.0
        answer.put(Frame({"id": 7, "item": {}}, b"", 1))
        return wait_for_next(verb, silence_s)

    monkeypatch.setattr(answer, "next", late)
    with pytest.raises(BadAnswer, match="its answer to logs has no end"):
        for _ in asked:
            clock.now += 1000.0
    assert clock.now // 1009 == stream.MAX_SILENCES * 10 // 9
