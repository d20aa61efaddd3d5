"""Data sets on a host: whole only after their commit, and never in a folder that is not ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import complaints, layout, wire
from tfdeploy.agent.call import Call, Context, VerbError
from tfdeploy.agent.verbs import find_verb


class Data:
    def __init__(self, workdir: Path) -> None:
        self.context = Context(str(workdir), "")
        self.folder = workdir / "job" / "data" / "digits"

    def call(self, verb: str, **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, {"job": "job", "name": "digits", **args}))

    def fill(self) -> str:
        (self.folder / "deep").mkdir(exist_ok=True)
        (self.folder / "deep" / "shard").write_bytes(b"123")
        os.utime(self.folder / "deep" / "shard", (5.9, 5.9))
        if not (self.folder / "link").is_symlink():
            (self.folder / "link").symlink_to("deep/shard")
        return wire.data_digest([("link", 0, 0, "link", "deep/shard"), ("deep/shard", 3, 5, "file", "")])


def test_a_data_set_is_whole_only_after_its_commit(tmp_path: Path) -> None:
    data = Data(tmp_path)
    assert data.call("data.state") is None
    assert data.call("data.begin", bytes=3) == {"folder": str(data.folder)}
    digest = data.fill()
    half = data.folder / "deep" / layout.PARTIAL / "shard9"
    half.parent.mkdir()
    half.write_bytes(b"half of a file that is gone")
    assert data.call("data.state") is None
    assert data.call("data.commit", digest="other") == {"digest": digest, "ok": False}
    assert data.call("data.state") is None
    assert data.call("data.commit", digest=digest) == {"digest": digest, "ok": True}
    assert data.call("data.state") == {"digest": digest} and not half.parent.exists()
    (data.folder / "extra").write_bytes(b"")
    assert data.call("data.state")["digest"] != digest
    data.call("data.begin", bytes=3)
    assert data.call("data.state") is None


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, what: str) -> None:
    data = Data(tmp_path)
    data.folder.parent.mkdir(parents=True)
    if what == "folder":
        data.folder.mkdir()
    elif what == "file":
        data.folder.write_bytes(b"mine")
    else:
        data.folder.symlink_to(tmp_path)
    with pytest.raises(VerbError) as caught:
        data.call("data.begin", bytes=1)
    assert caught.value.code == "not_ours" and str(data.folder) in str(caught.value)


def test_data_without_room(tmp_path: Path) -> None:
    data = Data(tmp_path)
    with pytest.raises(VerbError) as caught:
        data.call("data.begin", bytes=1 << 60)
    assert caught.value.code == "disk" and caught.value.details["needed_bytes"] == 1 << 60
    assert caught.value.details["free_bytes"] <= complaints.free_of("/")["free_bytes"] + (1 << 50)
    assert not data.folder.exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300, None, "a\nb"])
def test_names_are_checked_again_on_the_host(tmp_path: Path, name: Any) -> None:
    for args in ({"name": name}, {"job": name}):
        with pytest.raises(VerbError) as caught:
            Data(tmp_path).call("data.begin", **args)
        assert caught.value.code == "bad_name"
