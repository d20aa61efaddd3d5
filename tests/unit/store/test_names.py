"""Test which names tfdeploy remembers for shell completion, and in which files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tfdeploy.cli import state
from tfdeploy.cli.main import main
from tfdeploy.store.names import MAX_FILES, MAX_NAMES, store_completion_names


def read_stored_names(root: Path) -> dict[str, list[str]]:
    """Return {name of a file: the names that it contains}."""
    return {
        path.name: path.read_text(encoding="utf-8").splitlines()
        for path in (root / "completion").iterdir()
    }


def test_file_is_private_and_named_after_folder(tmp_path: Path) -> None:
    store_completion_names(tmp_path, Path("/srv/my job"), "hosts", ["n1", "n2", "n1"])
    assert read_stored_names(tmp_path) == {"hosts%srv%my job": ["n1", "n2"]}
    folder = tmp_path / "completion"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "hosts%srv%my job").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\x9b2J", "-y", "", "n" * 200, "\u202eabc"])
def test_unusual_name_is_left_out(name: str, tmp_path: Path) -> None:
    store_completion_names(tmp_path, Path("/srv"), "runs", ["é 1", name, "z"])
    assert read_stored_names(tmp_path) == {"runs%srv": ["é 1", "z"]}


def test_added_names_come_first_and_replaced_names_are_dropped(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        store_completion_names(tmp_path, Path("/srv"), "runs", [name], keep_stored_names=True)
    assert read_stored_names(tmp_path) == {"runs%srv": ["a", "b"]}
    store_completion_names(tmp_path, Path("/srv"), "runs", ["c"])
    assert read_stored_names(tmp_path) == {"runs%srv": ["c"]}


def test_files_stay_small_and_few(tmp_path: Path) -> None:
    store_completion_names(tmp_path, Path("/srv"), "hosts", map(str, range(MAX_NAMES + 5)))
    assert read_stored_names(tmp_path) == {"hosts%srv": list(map(str, range(MAX_NAMES)))}
    os.utime(tmp_path / "completion" / "hosts%srv", (1, 1))
    for number in range(MAX_FILES):
        store_completion_names(tmp_path, Path(f"/srv/{number}"), "hosts", ["n1"])
    assert len(read_stored_names(tmp_path)) == MAX_FILES and "hosts%srv" not in read_stored_names(
        tmp_path
    )


def test_unchanged_names_are_not_written_again(tmp_path: Path) -> None:
    store_completion_names(tmp_path, Path("/srv"), "hosts", ["n1"])
    before = (tmp_path / "completion" / "hosts%srv").stat().st_ino
    store_completion_names(tmp_path, Path("/srv"), "hosts", ["n1"])
    assert (tmp_path / "completion" / "hosts%srv").stat().st_ino == before


@pytest.mark.parametrize("content", [b"\xff\0", b"\x1b[2J\n"])
def test_damaged_file_is_replaced(content: bytes, tmp_path: Path) -> None:
    store_completion_names(tmp_path, Path("/srv"), "runs", ["a"])
    (tmp_path / "completion" / "runs%srv").write_bytes(content)
    store_completion_names(tmp_path, Path("/srv"), "runs", ["b"], keep_stored_names=True)
    assert read_stored_names(tmp_path) == {"runs%srv": ["b"]}


def test_failed_write_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "completion").touch()
    store_completion_names(tmp_path, Path("/srv"), "hosts", ["n1"])
    store_completion_names(tmp_path, Path("/" + "long" * 100), "hosts", ["n1"])


def test_verbs_remember_names_of_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventories").mkdir()
    text = "hosts: {n1: {address: 192.0.2.1}, n2: {address: 192.0.2.2}}\nroles: {ps: [n1]}\n"
    (tmp_path / "inventories" / "hosts.yaml").write_text(text)
    assert main(["inventory", "--limit", "n1"]) == 0
    name = str(tmp_path).replace("/", "%")
    assert read_stored_names(tmp_path / "tfdeploy") == {
        f"hosts{name}": ["n1", "n2"],
        f"roles{name}": ["ps"],
    }


def test_state_folder_of_other_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tfdeploy").mkdir()
    (tmp_path / "tfdeploy").chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state.store_completion_names({"hosts": ["n1"]})
    assert not (tmp_path / "tfdeploy" / "completion").exists()
