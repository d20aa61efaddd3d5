"""Test long headers and streams on the channel to an agent.

A long header is compressed. Its size is checked during decompression, and then the header is
converted to a typed value at once.
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
from tfdeploy.model.answers.files import MissingFiles
from tfdeploy.text.typed import StreamingVerb
from tfdeploy.transport.agent import stream
from tfdeploy.transport.agent.frames import Frame, Frames
from tfdeploy.transport.agent.stream import MOST_PACKED_BYTES, Reply, VerbStream, read_field

LONG = [f"folder/{number:06}" for number in range(100_000)]


def frame_from_wire(header: dict[str, Any], blob: bytes = b"") -> Frame:
    (frame,) = Frames(frames.encode_frame(header, blob)).complete_frames()
    return frame


def test_long_value_is_read() -> None:
    frame = frame_from_wire({"id": 7, "value": {"missing": LONG}})
    assert (
        frame.header == {"id": 7, "packed": "value"}
        and frame.has_field("value")
        and not frame.has_field("item")
    )
    assert len(frame.blob) < 1 << 20 and frame.unpacked_blob == b""
    assert read_field(frame, "value", MissingFiles, "release.begin", "n1").missing == LONG


@pytest.mark.fault("18 a name that is not UTF-8 among very many")
def test_long_value_with_names_that_are_not_utf8_is_read() -> None:
    names = [*LONG, os.fsdecode(b"odd\xff\xfe"), "\U0001f600"]
    assert (
        read_field(
            frame_from_wire({"id": 7, "value": {"missing": names}}),
            "value",
            MissingFiles,
            "release.begin",
            "n1",
        ).missing
        == names
    )


def test_short_value_and_separate_blob_are_not_compressed() -> None:
    frame = frame_from_wire({"id": 7, "item": {"missing": ["a"]}}, b"bytes")
    assert (frame.header, frame.unpacked_blob) == ({"id": 7, "item": {"missing": ["a"]}}, b"bytes")
    assert read_field(frame, "item", MissingFiles, "release.begin", "n1").missing == ["a"]


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
def test_invalid_packed_value_is_bad_answer(blob: bytes) -> None:
    with pytest.raises(BadAnswer, match="is invalid"):
        read_field(
            Frame({"id": 7, "packed": "value"}, blob, 0),
            "value",
            MissingFiles,
            "release.begin",
            "n1",
        )


@pytest.mark.fault("59 an answer of millions of empty texts")
def test_value_that_needs_too_much_memory_is_refused() -> None:
    blob = frames.compress(b'{"missing": [' + b'"",' * 5_000_000 + b'""]}')
    with pytest.raises(BadAnswer, match="MiB of memory"):
        read_field(
            Frame({"packed": "value"}, blob, 0), "value", MissingFiles, "release.begin", "n1"
        )


@pytest.mark.fault("59 a gigabyte in a packed answer")
def test_compression_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="more than"):
            read_field(
                Frame({"packed": "value"}, bomb, 0), "value", MissingFiles, "release.begin", "n1"
            )
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_PACKED_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_unpacking_limit_is_exact(size: int) -> None:
    content = bytes(range(250)) * 4
    assert frames.decompress(frames.compress(content[:size]), 1000) == content[:size]
    with pytest.raises(frames.WireError, match="more than 1000"):
        frames.decompress(frames.compress(content + b"x"), 1000)


def test_header_above_one_mebibyte_is_refused() -> None:
    with pytest.raises(frames.WireError, match="too large"):
        list(Frames(struct.pack("!II", (1 << 20) + 1, 0)).complete_frames())
    with pytest.raises(frames.WireError, match="too large"):
        frames.encode_frame({"id": 1, "item": "x" * (1 << 20)}, b"a blob of its own")
    assert json.loads(
        frames.decompress(
            frame_from_wire({"id": 1, "verb": "v", "args": {"a": "x" * (1 << 20)}}).blob
        )
    ) == {"a": "x" * (1 << 20)}


@pytest.mark.parametrize(
    ("blob", "kind"),
    [
        (frames.compress(b'{"code": "locked", "what": "no"}'), AgentError),
        (b"x", BadAnswer),
        (b"", BadAnswer),
    ],
)
def test_error_may_be_packed(blob: bytes, kind: type[Exception]) -> None:
    answer = Reply("n1", lambda full: None)
    answer.put(Frame({"id": 7, "packed": "error"}, blob, 0))
    with pytest.raises(kind):
        answer.wait_for_last_frame("lock", 1.0)


def test_unread_frames_are_bounded_while_call_waits() -> None:
    # While a call waits for its answer, the test adds frames to the call's Reply without a pause,
    # as the real channel may do.
    answer = Reply("n1", lambda full: None)
    for _ in range(100):
        answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
    with pytest.raises(BadAnswer, match="the host sends too fast: 64 MiB are still unread"):
        while answer.next("logs", 1.0):
            pass
        answer.last_answer("logs")
    answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
    assert answer.next("logs", 1.0) is None


def test_prompt_reader_gets_all_frames() -> None:
    answer = Reply("n1", lambda full: None)
    for _ in range(1000):
        answer.put(Frame({"id": 7, "item": {}}, b"", 1 << 20))
        assert answer.next("logs", 1.0)


def test_endless_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test the time limit of a stream. The limit counts only the time during which a caller waits
    for the stream.
    """
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stream.time, "monotonic", lambda: clock.now)
    answer = Reply("n1", lambda full: None)
    asked: Any = VerbStream(
        answer=answer,
        flow=StreamingVerb(name="logs", item=dict, value=dict),
        cancel=lambda: None,
        silence_s=10.0,
    )
    wait_for_next = answer.next

    def late(verb: str, silence_s: float | None) -> Frame | None:
        clock.now += 9.0
        answer.put(Frame({"id": 7, "item": {}}, b"", 1))
        return wait_for_next(verb, silence_s)

    monkeypatch.setattr(answer, "next", late)
    with pytest.raises(BadAnswer, match="the host's answer to logs takes too long"):
        for _ in asked:
            clock.now += 1000.0
    assert clock.now // 1009 == stream.MAX_SILENCES * 10 // 9
