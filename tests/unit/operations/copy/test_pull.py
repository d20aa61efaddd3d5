"""Test that a checkpoint record is fetched only together with the files that it names."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.model.answers.files import FoundFile
from tfdeploy.operations.copy import pull
from tfdeploy.operations.copy.fetch_budget import FetchBudget


class WritingHost:
    """A host whose program saves checkpoint 2, with a record of equal size, while rsync runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.save(1)

    def save(self, number: int) -> None:
        (self.root / f"model-{number}").write_text(str(number))
        (self.root / "new").write_text(f"names {number}")
        os.utime(self.root / "new", (number, number))
        (self.root / "new").replace(self.root / "checkpoint")

    def list_files(self, *_: object) -> pull.HostFileList:
        paths = sorted(self.root.iterdir())
        rows = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        return pull.HostFileList(str(self.root), tuple(FoundFile(*row) for row in rows))

    def pull(self, _: object, source: str, destination: str, names: list[bytes], **__: Any) -> int:
        """Copy the files as rsync does: it reads all times first, and then each content."""
        times = {name: os.stat(os.fsencode(source) + b"/" + name).st_mtime_ns for name in names}
        if not (self.root / "model-2").exists():
            self.save(2)
        for name, mtime_ns in times.items():
            copy = os.fsencode(destination) + b"/" + name
            shutil.copyfile(os.fsencode(source) + b"/" + name, copy)
            os.utime(copy, ns=(mtime_ns, mtime_ns))
        return 0

    def hash_files(self, _: object, __: object, length_by_path: dict[str, int]) -> dict[str, str]:
        return {
            path: hashlib.sha256((self.root / path).read_bytes()[:length]).hexdigest()
            for path, length in length_by_path.items()
        }


def fetch_into(folder: Path) -> pull.HostFetch:
    session: Any = type("Session", (), {"agent": lambda self: None, "target": None})()
    session.host = type("Host", (), {"name": "n1"})()
    source = pull.FetchSource("keep", "job")
    return pull.fetch_folder(
        session, source, folder, lambda event: None, FetchBudget("n1"), overwrite=False
    )


def test_record_that_was_replaced_while_rsync_read_it_comes_with_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host").mkdir()
    host = WritingHost(tmp_path / "host")
    monkeypatch.setattr(pull, "list_files", host.list_files)
    monkeypatch.setattr(pull, "pull", host.pull)
    monkeypatch.setattr(pull, "_host_checksums", host.hash_files)
    fetch_into(tmp_path / "fetched" / "keep")
    fetched = tmp_path / "fetched" / "keep"
    assert (fetched / "checkpoint").read_text() == "names 2"
    assert (fetched / "model-2").read_text() == "2"


def test_file_that_is_replaced_meanwhile_is_not_reported_as_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host").mkdir()
    host = WritingHost(tmp_path / "host")
    host.save(2)
    rounds = []

    def pull_later(*args: Any, names: list[bytes], **options: Any) -> int:
        rounds.append(names)
        present = [name for name in names if len(rounds) > 1 or name != b"model-1"]
        return host.pull(*args, names=present, **options)

    def hash_later(*args: Any) -> dict[str, str]:
        sums = host.hash_files(*args)
        return {path: each for path, each in sums.items() if len(rounds) > 1 or path != "model-1"}

    monkeypatch.setattr(pull, "list_files", host.list_files)
    monkeypatch.setattr(pull, "pull", pull_later)
    monkeypatch.setattr(pull, "_host_checksums", hash_later)
    fetched = fetch_into(tmp_path / "fetched" / "files")
    assert fetched.unreadable == [] and (tmp_path / "fetched" / "files" / "model-1").exists()


@pytest.mark.parametrize("unreadable", ["model-1", "other"])
def test_unreadable_file_is_reported_and_others_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    """A checkpoint record is left out, and reported, if a file beside it is unreadable."""
    (tmp_path / "host").mkdir()
    host = WritingHost(tmp_path / "host")
    host.save(2)
    (tmp_path / "host" / "other").write_text("x")

    def pull_readable(*args: Any, names: list[bytes], **options: Any) -> int:
        readable = [name for name in names if name != unreadable.encode()]
        return host.pull(*args, names=readable, **options)

    def hash_readable(*args: Any) -> dict[str, str]:
        return {path: sum_ for path, sum_ in host.hash_files(*args).items() if path != unreadable}

    monkeypatch.setattr(pull, "list_files", host.list_files)
    monkeypatch.setattr(pull, "pull", pull_readable)
    monkeypatch.setattr(pull, "_host_checksums", hash_readable)
    fetched = fetch_into(tmp_path / "fetched" / "files")
    assert fetched.unreadable == sorted(["checkpoint", unreadable])
    assert {path.name for path in (tmp_path / "fetched" / "files").iterdir()} == (
        {"model-1", "model-2", "other"} - {unreadable}
    )
