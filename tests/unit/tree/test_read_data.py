"""Test how a data set is listed, and that the agent on a host computes the same digest for the data
set as this machine.
"""

import os

import pytest

from tfdeploy.agent.serve.datasets import verbs as on_host
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree import list_data_set


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "digits"
    (root / "sub/deeper").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a.npz").write_bytes(b"x" * 1000)
    (root / "sub/deeper/b \n.npz").write_bytes(b"yy")
    (root / "sub.npz").write_bytes(b"")
    (root / "link").symlink_to("sub/deeper")
    with open(os.fsencode(root) + b"/latin-\xe9", "wb"):  # noqa: PTH123 - the name is bytes
        pass
    os.utime(root / "a.npz", ns=(1, 1_700_000_000_999_999_999))
    os.utime(root / "sub.npz", ns=(1, -1_500_000_000))
    return root


def test_both_sides_agree_on_folder(folder):
    listing = list_data_set(folder)
    assert listing.digest == on_host.folder_digest(str(folder))
    assert (listing.is_folder, listing.total_bytes, listing.rows.files) == (True, 1002, 4)


def test_both_sides_agree_on_file(folder, tmp_path):
    listing = list_data_set(folder / "a.npz")
    host = tmp_path / "host"
    host.mkdir()
    (host / "a.npz").write_bytes(b"x" * 1000)
    os.utime(host / "a.npz", (1, 1_700_000_000))
    assert listing.digest == on_host.folder_digest(str(host))
    assert (listing.is_folder, listing.total_bytes, listing.source) == (
        False,
        1000,
        str(folder / "a.npz"),
    )


def test_any_change_changes_digest(folder):
    seen = {list_data_set(folder).digest}
    for change in (
        lambda: os.utime(folder / "a.npz", (1, 1_700_000_001)),
        lambda: (folder / "a.npz").rename(folder / "c.npz"),
        lambda: (folder / "new").write_text(""),
        lambda: (folder / "other").symlink_to("new"),
    ):
        change()
        digest = list_data_set(folder).digest
        assert digest not in seen
        seen.add(digest)


def test_links_to_outside_are_reported(folder):
    (folder / "out").symlink_to("/etc/passwd")
    assert list_data_set(folder).warnings == ("out is a link out of the data set (to /etc/passwd)",)


def test_links_to_no_file_are_reported(folder):
    for name, target in (("latest", "latest"), ("old", "gone"), ("good", "a.npz")):
        (folder / name).symlink_to(target)
    assert [text.partition(",")[0] for text in list_data_set(folder).warnings] == [
        f"{folder}/latest is a link to latest",
        f"{folder}/old is a link to gone",
    ]


def test_missing_empty_and_special_files_are_refused(tmp_path, folder):
    with pytest.raises(ConfigError, match="does not exist") as caught:
        list_data_set(tmp_path / "nowhere")
    assert caught.value.next == "correct `data:` in the job file"
    (tmp_path / "data/digits").mkdir(parents=True)
    for missing in ("data/digit", "date/digits/train"):
        with pytest.raises(ConfigError, match=f"{missing} does not exist") as caught:
            list_data_set(tmp_path / missing, position="t.yaml:4:data.digits")
        near = {"data/digit": "data/digits", "date/digits/train": "data"}[missing]
        near = os.path.relpath(tmp_path / near)
        assert (caught.value.where, caught.value.next) == (
            "t.yaml:4:data.digits",
            f"did you mean {near}?",
        )
    (tmp_path / "empty/below").mkdir(parents=True)
    with pytest.raises(Refused, match="no file that tfdeploy may send"):
        list_data_set(tmp_path / "empty")
    (tmp_path / "link.npz").symlink_to(folder / "a.npz")
    with pytest.raises(Refused, match="is a link") as caught:
        list_data_set(tmp_path / "link.npz")
    assert str(folder / "a.npz") in caught.value.next
    os.mkfifo(folder / "pipe")
    with pytest.raises(Refused, match="neither"):
        list_data_set(folder)
