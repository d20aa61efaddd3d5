"""What is sent in one call: the differences from what was sent earlier, packed once, and nothing that does not fit."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import AgentError
from tfdeploy.model.answers.files import Changed, Present
from tfdeploy.operations.copy import send_change
from tfdeploy.operations.copy.pack import Packer
from tfdeploy.operations.copy.send_change import Changes
from tfdeploy.tree import read_tree
from tfdeploy.tree.earlier import MOST, Earlier


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    for name in ("train.py", "lib/a.py", "lib/b.py"):
        (folder / name).write_text(f"# {name}\n")
    return folder


def changes(code: Path) -> Changes:
    manifest = read_tree(code, exclude=[], cache=None)
    return Changes(manifest, Packer(manifest), Earlier(code.parent / "cache", manifest.root))


def said(change: Any) -> tuple[dict[str, Any], bytes]:
    raw = zlib.decompress(change.blob)
    assert len(raw) == change.size
    text, _, contents = raw.partition(b"\n")
    assert len(contents) == change.files_bytes
    return json.loads(text), contents


def test_what_differs_from_what_was_sent_earlier(code: Path) -> None:
    first = changes(code)
    first.keep()
    assert first.bases() == []
    (code / "train.py").write_text("print()\n")
    (code / "lib/a.py").unlink()
    (code / "link").symlink_to("train.py")
    second = changes(code)
    (base,) = second.bases()
    text, contents = said(second.from_base(base))
    assert text["removed"] == ["lib/a.py"] and contents == b"print()\n"
    assert [row[:3] for row in text["entries"]] == [["link", "link", 0], ["train.py", "file", 8]]
    assert text["entries"][1][5] == (code / "train.py").stat().st_mtime_ns
    assert second.from_base(base) is second.from_base(base)  # packed once for all hosts
    assert len(said(second.from_base(""))[0]["entries"]) == 3


def test_what_does_not_fit_into_one_call_goes_another_way(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes(code).keep()
    (code / "train.py").write_bytes(os.urandom(1000))
    monkeypatch.setattr(send_change, "MOST_BYTES", 999)
    (base,) = (found := changes(code)).bases()
    assert found.from_base(base) is None
    assert found.from_base("") is not None
    monkeypatch.setattr(send_change, "CALL_BYTES", 999)
    assert changes(code).from_base("") is None


def test_what_was_sent_earlier_may_be_gone_or_spoilt(code: Path) -> None:
    changes(code).keep()
    (kept,) = [path for path in (code.parent / "cache").rglob("*") if path.is_file()]
    (code / "train.py").write_text("print()\n")
    kept.write_text("[[1]]")
    assert changes(code).from_base(kept.name) is None
    assert changes(code).from_base("0" * 32) is None
    assert changes(code).from_base("../../code/train.py") is None


def test_the_newest_stay(code: Path) -> None:
    for number in range(MOST + 2):
        (code / "train.py").write_text(str(number))
        changes(code).keep()
    (code / "train.py").write_text("now")
    assert len(changes(code).bases()) == MOST


class Host:
    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def call(self, verb: Any, args: Any, *, blob: bytes, timeout_s: float) -> Any:
        self.asked.append((args["base"], blob))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def send(host: Host, found: Changes, base: str | None) -> tuple[bool, int]:
    there = Present(present=False, base=base)
    return send_change.send_change(host, found, there, {"job": "j"}, "n1", lambda event: None)  # type: ignore[arg-type]


def test_a_file_that_changes_while_it_is_packed_is_packed_again(code: Path) -> None:
    found, host = changes(code), Host(Changed(changed=["train.py"]), Changed(changed=[]))
    found.from_base("")
    (code / "train.py").write_text("# train.xy\n")
    whole, sent = send(host, found, "")
    assert whole and sent == sum(len(blob) for _, blob in host.asked)
    assert host.asked[0][1] != host.asked[1][1]


def test_a_host_that_cannot_build_on_what_it_has_is_sent_the_rest_another_way(code: Path) -> None:
    refused = AgentError("no", code="no_base")
    assert send(Host(refused), changes(code), "")[0] is False
    with pytest.raises(AgentError):
        send(Host(AgentError("full", code="disk")), changes(code), "")


@pytest.mark.parametrize("base", [None, "0" * 32, "../x"])
def test_only_a_base_that_was_offered_is_built_on(code: Path, base: str | None) -> None:
    host = Host()
    assert send(host, changes(code), base) == (False, 0) and not host.asked
