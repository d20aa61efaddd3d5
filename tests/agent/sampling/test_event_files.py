"""Test event files that grow, are damaged, are large, are followed by a newer file, or have another
format.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from support.files.events import (
    event,
    length_delimited,
    record,
    record_header,
    scalar,
    simple_value,
)
from tfdeploy.agent import wire
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.sampling import event_files
from tfdeploy.agent.sampling.event_files import (
    FILE_RECORDS,
    RECORD_BYTES,
    SEARCH_BYTES,
    EventFile,
    EventMetrics,
)
from tfdeploy.agent.sampling.printed import MOST_METRICS, MOST_NAME_CHARS

IMAGE = record(
    event(length_delimited(1, b"image") + length_delimited(4, b"\x89PNG" * RECORD_BYTES))
)
HISTOGRAM = record(event(length_delimited(1, b"weights") + length_delimited(5, b"\x07" * 800)))


class Reader:
    """An event file and its reader. `append_and_read` appends records to the file, and returns the
    values that the reader finds in them.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.one = path, EventFile()
        path.touch()

    def append_and_read(self, *added: bytes) -> dict[str, float]:
        with self.path.open("ab") as file:
            file.write(b"".join(added))
        about = self.path.stat()
        grown = self.one.has_grown(str(self.path), (about.st_dev, about.st_ino))
        return {tag: written[0] for tag, written in self.one.read().items()} if grown else {}


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "events")


def test_only_what_is_new(reader: Reader) -> None:
    assert reader.append_and_read() == {}
    assert reader.append_and_read(scalar("a", 1), scalar("a", 2), scalar("b", 3)) == {
        "a": 2,
        "b": 3,
    }
    assert reader.append_and_read() == {}
    assert reader.append_and_read(scalar("b", 4)) == {"b": 4}


def test_a_record_is_read_once_it_is_whole(reader: Reader) -> None:
    whole = scalar("a", 1)
    for at in range(len(whole) - 1):
        assert reader.append_and_read(whole[at : at + 1]) == {} and reader.append_and_read() == {}
    assert reader.append_and_read(whole[-1:]) == {"a": 1}
    assert not reader.one.damaged


def test_a_file_that_was_written_anew_or_replaced_is_read_from_its_beginning(
    reader: Reader, tmp_path: Path
) -> None:
    assert reader.append_and_read(scalar("a", 1), scalar("b", 1)) == {"a": 1, "b": 1}
    reader.path.write_bytes(b"")
    assert reader.append_and_read(scalar("a", 2)) == {"a": 2}
    (tmp_path / "other").write_bytes(scalar("a", 3) + scalar("b", 3))
    (tmp_path / "other").replace(reader.path)
    assert reader.append_and_read() == {"a": 3, "b": 3}


def test_a_record_of_a_wrong_crc_is_left_out(reader: Reader) -> None:
    wrong = bytearray(scalar("a", 1))
    wrong[-6] ^= 1
    assert reader.append_and_read(scalar("b", 1), bytes(wrong), scalar("c", 1)) == {"b": 1, "c": 1}
    assert reader.one.damaged


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 30, bytes(4096), os.urandom(300), record_header(1 << 60), scalar("x", 1)[5:]],
)
def test_after_garbage_the_next_record_is_found(reader: Reader, garbage: bytes) -> None:
    by_name = {
        **reader.append_and_read(scalar("a", 1), garbage),
        **reader.append_and_read(scalar("b", 1)),
    }
    assert {**by_name, **reader.append_and_read(scalar("c", 1)), **reader.append_and_read()} == {
        "a": 1,
        "b": 1,
        "c": 1,
    }
    assert reader.one.damaged


def test_after_very_much_garbage_too(reader: Reader) -> None:
    reader.append_and_read(b"\xff" * 20)
    assert reader.append_and_read(bytes(2 * SEARCH_BYTES), b"\xff" * SEARCH_BYTES) == {}
    assert {**reader.append_and_read(scalar("a", 1)), **reader.append_and_read()} == {"a": 1}


def test_a_length_that_is_not_written_yet_is_waited_for(reader: Reader) -> None:
    assert reader.append_and_read(scalar("a", 1), record_header(1 << 30), b"x" * (1 << 20)) == {
        "a": 1
    }
    assert reader.append_and_read(b"x" * (1 << 20)) == {} and not reader.one.damaged


def test_images_are_passed_over_unread(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader skips the content of images, so 1 GB of images costs almost nothing."""
    read: list[int] = []
    real = os.pread

    def pread(file: int, size: int, at: int) -> bytes:
        content = real(file, size, at)
        read.append(len(content))
        return content

    monkeypatch.setattr(event_files.os, "pread", pread)
    with reader.path.open("wb") as file:
        for number in range(100):
            file.write(scalar(f"a{number % 2}", number))
            file.write(record_header(10 << 20))
            file.seek((10 << 20) + 4, os.SEEK_CUR)  # this makes a hole in the file
        file.write(scalar("b", 1))
    assert reader.path.stat().st_size > 1e9
    assert reader.append_and_read() == {"a0": 98, "a1": 99, "b": 1}
    assert sum(read) < 20_000 and not reader.one.damaged


def test_what_is_written_once_among_many_histograms_is_read(reader: Reader) -> None:
    assert reader.append_and_read(scalar("a", 1), HISTOGRAM * 200) == {"a": 1}


def test_of_many_scalars_the_newest_are_read(reader: Reader) -> None:
    old = b"".join(scalar("old", number) for number in range(3000))
    assert reader.append_and_read(
        old, *(scalar(f"a{number % 5}", number) for number in range(FILE_RECORDS))
    ) == {f"a{number % 5}": number for number in range(FILE_RECORDS)}
    assert reader.append_and_read(scalar("old", 1)) == {"old": 1}
    assert not reader.one.damaged


def test_an_image_is_no_end_of_what_is_read_where_the_newest_part_was_gone_to(
    reader: Reader,
) -> None:
    assert reader.append_and_read(scalar("a", 1) * 3000, IMAGE) == {"a": 1}
    assert {**reader.append_and_read(scalar("a", 2)), **reader.append_and_read()} == {
        "a": 2
    } and not reader.one.damaged


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "missing"])
def test_no_file_is_none_to_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    (tmp_path / "real").write_bytes(scalar("a", 1))
    if kind == "link":
        path.symlink_to("real")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    one = EventFile()
    one.has_grown(str(path), (1, 1))
    assert one.read() == {}


def test_a_file_that_took_the_place_of_the_one_that_was_found_is_not_read(reader: Reader) -> None:
    reader.path.write_bytes(scalar("a", 1))
    assert reader.one.has_grown(str(reader.path), (0, 0))
    assert reader.one.read() == {}


# --- all event files of a host


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    run_folder = RunPaths(str(tmp_path / "work" / "j" / "runs" / "r1" / "hosts" / "n1"))
    Path(run_folder.host_dir).mkdir(parents=True)
    Path(run_folder.cwd).mkdir()
    run_folder.write_part(PART)
    os.utime(run_folder.file("part.json"), (1e9, 1e9))
    return run_folder


PART = wire.HostPart(run="r1", job="j", mode="async", host="n1", plan_digest="", release="")


def write(paths: RunPaths, folder: str, born: int, *records: bytes) -> Path:
    path = Path(paths.cwd, folder, f"events.out.tfevents.{born}.{os.uname().nodename}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(records))
    return path


def test_the_file_of_a_later_attempt_has_the_last_word(paths: RunPaths) -> None:
    """If two attempts wrote the same scalar, the value in the file of the later attempt counts, in
    whatever order the files are read. In this test, the older file is read at a time when the later
    file does not exist yet.
    """
    metrics = EventMetrics(paths, PART)
    write(paths, "logs", 100, scalar("loss", 1))
    assert metrics.read_new_values() == {"logs/loss": 1}
    write(paths, "logs", 100, scalar("loss", 2), scalar("only old", 5))
    write(paths, "logs", 200, scalar("loss", 7))
    assert metrics.read_new_values() == {"logs/loss": 7, "logs/only old": 5}
    write(paths, "logs", 200, scalar("loss", 6))
    assert metrics.read_new_values() == {"logs/loss": 6} and metrics.read_new_values() == {}
    assert metrics.known_values == {"logs/loss": 6, "logs/only old": 5}


def test_folders_have_names_of_their_own(paths: RunPaths) -> None:
    metrics = EventMetrics(paths, PART)
    write(paths, "logs/20261121-101500/train", 100, scalar("epoch_loss", 1))
    write(paths, "logs/20261121-101500/validation", 100, scalar("epoch_loss", 2))
    write(paths, ".", 100, scalar("loss", 3))
    assert metrics.read_new_values() == {
        "train/epoch_loss": 1,
        "validation/epoch_loss": 2,
        "events/loss": 3,
    }


def test_a_hundred_thousand_tags_and_long_ones(paths: RunPaths) -> None:
    metrics = EventMetrics(paths, PART)
    write(paths, "l", 100, scalar("x" * MOST_NAME_CHARS, 1), scalar("first", 1))
    assert metrics.read_new_values() == {"l/first": 1}
    for begin in range(0, 100_000, 10_000):
        write(
            paths,
            "l",
            100,
            record(event(*(simple_value(f"t{begin + each}", 1) for each in range(1000)))) * 10,
        )
        metrics.read_new_values()
    assert len(metrics.known_values) == MOST_METRICS and "l/first" in metrics.known_values
    write(paths, "l", 100, scalar("first", 2))
    assert metrics.read_new_values() == {"l/first": 2}


def test_a_loss_takes_the_place_of_one_of_twenty_a_layer(paths: RunPaths) -> None:
    metrics = EventMetrics(paths, PART)
    many = [
        f"layer{layer}/weights/summaries/{what}_1"
        for layer in range(8)
        for what in ("mean", "stddev", "max", "min", "x")
    ]
    write(paths, "l", 100, *(scalar(tag, 1) for tag in many))
    metrics.read_new_values()
    assert len(metrics.known_values) == MOST_METRICS
    write(paths, "l", 100, scalar("loss", 0.5), scalar("learning_rate", 0.25), scalar(many[-1], 2))
    assert metrics.read_new_values() == {"l/loss": 0.5, "l/learning_rate": 0.25}
    assert len(metrics.known_values) == MOST_METRICS and metrics.scalars["l/loss"].step == 1


def test_a_look_that_has_cost_much_leaves_files_to_the_next_ones(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "CALL_CPU_S", 0)
    metrics = EventMetrics(paths, PART)
    for number in range(3):
        write(paths, f"l{number}", 100, scalar("a", 1))
    looks = [metrics.read_new_values() for _ in range(4)]
    assert [len(values) for values in looks] == [1, 1, 1, 0] and len(metrics.known_values) == 3


def test_damage_is_told_once_for_each_file(
    paths: RunPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    metrics = EventMetrics(paths, PART)
    for number in range(20):
        write(paths, f"\x1b[2J{number}", 100, b"\xff" * 20)
    for _ in range(3):
        metrics.read_new_values()
        for number in range(20):
            write(paths, f"\x1b[2J{number}", 100, b"\xff" * 20)
    told = capfd.readouterr().err.splitlines()
    assert len(told) == len(set(told)) == event_files.MOST_REPORTED and "\x1b" not in "".join(told)
    assert told[0].startswith("event file '/") and told[0].endswith(
        ": damaged records are left out"
    )


def test_whole_records_of_anything_are_no_harm(paths: RunPaths) -> None:
    metrics = EventMetrics(paths, PART)
    odd = [
        b"",
        b"\xff" * 100,
        b"\x2a\xff\xff\xff\xff\x0f",
        struct.pack("<Q", 1 << 63),
        length_delimited(5, length_delimited(1, b"\x15abc")),
    ]
    write(paths, "l", 100, *map(record, odd), scalar("a", 1))
    assert metrics.read_new_values() == {"l/a": 1}
