"""Small files of a host that may lie: what was not asked for, or has another length, ends the fetch of that host."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.errors import BadAnswer, HostFailed, Refused
from tfdeploy.model.answers.files import FileRead
from tfdeploy.model.listing import FoundFile
from tfdeploy.operations.copy import small_files
from tfdeploy.operations.copy.safe_folder import SafeFolder

LISTED = (FoundFile("a", 3, 5), FoundFile("sub/b", 2, 6))


class Host:
    """Answers each request with `said`, and keeps what was asked."""

    def __init__(self, *said: tuple[Any, bytes]) -> None:
        self.said, self.asked = [(FileRead(file=file), blob) for file, blob in said], list[Any]()
        self.host = SimpleNamespace(name="n1")

    def agent(self) -> Host:
        return self

    def stream(self, flow: Any, args: Any, silence_s: float) -> Any:
        self.asked.append(args["files"])
        return _Stream(self.said)


class _Stream(list[Any]):
    def close(self) -> None:
        pass


def read(host: Any, folder: Path, wanted: tuple[FoundFile, ...] = LISTED) -> int:
    came: list[int] = []
    with SafeFolder(folder) as staging:
        small_files.read_small(host, {}, staging, wanted, came.append)
    return sum(came)


def test_each_file_lies_where_it_was_listed_with_the_hosts_time_and_for_its_user_alone(tmp_path: Path) -> None:
    host = Host((("a", 7, 0o755), b"abc"), (("sub/b", 6, 0o644), b"de"))
    assert read(host, tmp_path / "to") == 5 and host.asked == [[["a", 3], ["sub/b", 2]]]
    a, b = tmp_path / "to" / "a", tmp_path / "to" / "sub" / "b"
    assert (a.read_bytes(), b.read_bytes()) == (b"abc", b"de")
    assert [(each.stat().st_mtime_ns, each.stat().st_mode & 0o777) for each in (a, b)] == [(7, 0o700), (6, 0o600)]


def test_a_file_that_has_gone_is_left_out(tmp_path: Path) -> None:
    assert read(Host((("a", None, 0), b""), (("sub/b", 6, 0o644), b"de")), tmp_path / "to") == 2
    assert not (tmp_path / "to" / "a").exists()


@pytest.mark.fault("59 a file that was not asked for, or has another length")
@pytest.mark.parametrize(
    "said",
    [
        (("c", 5, 0o644), b"abc"),
        (("../a", 5, 0o644), b"abc"),
        (("a", 5, 0o644), b"abcd"),
        (("a", 5, 0o644), b""),
        (("a", None, 0), b"abc"),
    ],
)
def test_another_answer_ends_the_fetch(tmp_path: Path, said: Any) -> None:
    with pytest.raises(BadAnswer, match="makes no sense"):
        read(Host(said), tmp_path / "to")
    assert {each.name for each in tmp_path.rglob("*") if each.is_file()} <= {"a"}


def test_a_file_is_taken_once_and_no_more_than_were_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadAnswer, match="was not asked for"):
        read(Host((("a", 5, 0o644), b"abc"), (("a", 5, 0o644), b"xyz")), tmp_path / "to")
    assert (tmp_path / "to" / "a").read_bytes() == b"abc"


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "sub").symlink_to(tmp_path)
    with pytest.raises(Refused, match="a link is in the way"):
        read(Host((("sub/b", 6, 0o644), b"de")), tmp_path / "to", LISTED[1:])
    (tmp_path / "to" / "a").symlink_to(tmp_path / "victim")
    read(Host((("a", 5, 0o644), b"abc")), tmp_path / "to", LISTED[:1])
    assert not (tmp_path / "victim").exists() and not os.path.islink(tmp_path / "to" / "a")


def test_a_host_that_sends_too_slowly_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 700.0)
    monkeypatch.setattr(small_files, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(HostFailed, match="too slowly"):
        read(Host((("a", 7, 0o644), b"abc")), tmp_path / "to")


def test_a_request_is_of_few_files_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "ROUND_FILES", 2)
    monkeypatch.setattr(small_files, "ROUND_BYTES", 10)
    sizes = (4, 6, 1, 1, 1, 11, 0)
    rounds = small_files._rounds([FoundFile(f"f{number}", size, 0) for number, size in enumerate(sizes)])
    assert [[one.size for one in each] for each in rounds] == [[4, 6], [1, 1], [1], [11], [0]]
