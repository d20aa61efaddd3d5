"""Test how records of event files are read: TensorFlow's records, invalid records, and the CRC."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.files.events import (
    event,
    length_delimited,
    record,
    record_header,
    simple_value,
    varint,
)
from support.stopwatch import DEADLINE_S
from tfdeploy.agent.sampling.event_files import EventFile
from tfdeploy.agent.sampling.event_record import (
    HEAD_BYTES,
    MOST_BYTES,
    data_length,
    is_whole,
    masked_crc,
    parse_scalars,
)

WRITTEN = Path(__file__).with_name("event_files")
# The files also contain tensors of other types, which are not read.
TYPES = dict.fromkeys(("float32", "float64"), 0.5)
SAYS = {
    "version1": {"loss": 0.25, "layer/accuracy": 0.75},
    "lists": {**TYPES, "zero": 0},
    "version2": {**TYPES, "epoch_loss": pytest.approx(1 / 3)},
}
# TensorFlow computed these CRCs.
CRCS = {"": 2726488792, "a": 686059128, "123456789": 3347755237}


def read(path: Path) -> dict[str, float]:
    about, one = path.stat(), EventFile()
    assert one.has_grown(str(path), (about.st_dev, about.st_ino))
    values = one.read()
    assert not one.damaged
    return {tag: value for tag, (value, _step, _time) in values.items()}


@pytest.mark.parametrize("name", SAYS)
def test_what_tensorflow_2_21_wrote(name: str) -> None:
    """The files also contain histograms, images, texts, graphs, vectors and values that are not
    finite, besides scalars.
    """
    assert read(WRITTEN / f"{name}.tfevents") == SAYS[name]


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_what_the_tensorflow_here_writes_and_its_crcs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(WRITTEN / "write.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ,
    )
    assert {name: read(tmp_path / f"{name}.tfevents") for name in SAYS} == SAYS, done.stderr
    crcs = [line.rpartition(" ") for line in done.stdout.splitlines()]
    assert len(crcs) == 4 and all(masked_crc(text.encode()) == int(crc) for text, _, crc in crcs)
    assert {text: int(crc) for text, _, crc in crcs}.items() >= CRCS.items()


def test_the_crc_is_tensorflows() -> None:
    assert {text: masked_crc(text.encode()) for text in CRCS} == CRCS


@pytest.mark.parametrize("length", [0, 1, 1 << 24, MOST_BYTES])
def test_the_length_of_a_record(length: int) -> None:
    assert data_length(record_header(length)) == length
    assert data_length(bytes([record_header(length)[0] ^ 1]) + record_header(length)[1:]) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x" * (HEAD_BYTES - 1),
        record_header(MOST_BYTES + 1),
        record_header(1 << 60),
        bytes(HEAD_BYTES),
    ],
)
def test_what_is_no_head(text: bytes) -> None:
    assert data_length(text) is None


def test_data_of_another_crc_or_without_one() -> None:
    whole = record(b"data")[HEAD_BYTES:]
    assert is_whole(whole[:4], whole[4:])
    assert not is_whole(b"dat4", whole[4:]) and not is_whole(whole[:4], whole[4:7])


TAG = length_delimited(1, b"t")
# {encoded tensor: the value that is read from it, or None if it is no scalar}
TENSOR = {
    b"\x08\x01" + length_delimited(4, struct.pack("<f", 2.5)): 2.5,
    b"\x08\x01" + length_delimited(4, struct.pack("<ff", 1, 2)): None,  # a tensor of two values
    b"\x08\x01" + length_delimited(5, struct.pack("<ff", 1, 2)): None,
    # This tensor has a dimension, so it is not a scalar.
    b"\x08\x01"
    + length_delimited(2, length_delimited(2, b"\x08\x01"))
    + length_delimited(4, struct.pack("<f", 1)): None,
    # A varint cannot hold a float, so this tensor has no values. A tensor without values is read as
    # 0.
    b"\x08\x01\x28\x05": 0.0,
    b"\x08\x0e" + length_delimited(4, bytes(2)): None,  # type bfloat16
    b"\x08\x63" + length_delimited(4, bytes(4)): None,  # an unknown type
    b"\x08\x07" + length_delimited(8, b"1.5"): None,  # type string
    b"\x08\x09\x50" + varint(7): None,  # type int64
    b"\x08\x02" + length_delimited(6, struct.pack("<d", 2.5)): 2.5,
}


@pytest.mark.parametrize("tensor", TENSOR)
def test_tensors(tensor: bytes) -> None:
    expected = TENSOR[tensor]
    assert parse_scalars(event(TAG + length_delimited(8, tensor))) == (
        {} if expected is None else {"t": expected}
    )


def test_the_last_value_of_a_tag_counts_and_what_is_not_finite_is_left_out() -> None:
    values = [
        simple_value("a", 1),
        simple_value("a", 2),
        simple_value("b", float("nan")),
        simple_value("c", float("-inf")),
        simple_value("", 1),
    ]
    assert parse_scalars(event(*values)) == {"a": 2}


def test_only_scalars_of_the_plugin_of_scalars_or_of_none() -> None:
    def of_plugin(name: bytes) -> bytes:
        return simple_value(name.decode() or "none", 1) + length_delimited(
            9, length_delimited(1, length_delimited(1, name))
        )

    assert set(
        parse_scalars(event(of_plugin(b"scalars"), of_plugin(b"hparams"), of_plugin(b"")))
    ) == {
        "scalars",
        "none",
    }


def test_a_tag_that_is_no_text_is_a_name_nevertheless() -> None:
    assert list(
        parse_scalars(event(length_delimited(1, b"\xff\x1b[2J") + simple_value("", 1)[2:]))
    ) == ["\ufffd\x1b[2J"]


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x2a\x05abc", b"\xff" * 20, b"\x0b", b"\x08\x01" * 5000]
)
def test_what_is_no_event(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|number"):
        parse_scalars(data)


def messages(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return a hypothesis strategy of random fields of all kinds, some of which contain `inner`
    messages.
    """
    number = st.integers(0, 20)
    fields = st.one_of(
        st.builds(lambda n, data: length_delimited(n, data), number, inner),
        st.builds(
            lambda n, value: varint(n << 3) + varint(value), number, st.integers(0, (1 << 64) - 1)
        ),
        st.builds(
            lambda n, data: varint(n << 3 | 5) + data, number, st.binary(min_size=4, max_size=4)
        ),
        st.builds(
            lambda n, data: varint(n << 3 | 1) + data, number, st.binary(min_size=8, max_size=8)
        ),
    )
    return st.lists(fields, max_size=6).map(b"".join)


@given(
    st.one_of(
        st.binary(max_size=200), messages(messages(messages(messages(st.binary(max_size=20)))))
    )
)
def test_any_bytes_are_scalars_or_a_value_error(data: bytes) -> None:
    for wrapped in (
        data,
        length_delimited(5, data),
        length_delimited(5, length_delimited(1, TAG + data)),
        length_delimited(5, length_delimited(1, TAG + length_delimited(8, data))),
    ):
        try:
            values = parse_scalars(wrapped)
        except ValueError:
            continue
        assert all(abs(value) <= 1e308 for value in values.values())
