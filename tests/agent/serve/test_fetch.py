"""Test what a host reports about the files that `fetch` copies.

The list of files never mixes an old checkpoint with a new checkpoint record. The host also reports
hashes of the first bytes of files, and hashes of logs whose oldest lines were removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.log.format import LogWriter
from tfdeploy.agent.run import keep_folders
from tfdeploy.agent.serve import fetch


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[list[Any], Any]]:
    """Return a function ask(verb, **args), which calls the verb on a host whose workdir is
    tmp_path. It returns (items, value).
    """

    def call(verb: str, **args: Any) -> tuple[list[Any], Any]:
        items: list[Any] = []
        value = fetch.VERBS[verb](
            Call(
                SessionContext(str(tmp_path), ""),
                {"job": "j", **args},
                item=lambda item, _: items.append(item),
            )
        )
        return items, value

    return call


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    folder = Path(layout.keep_dir(str(tmp_path), "j", "ckpt"))
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run with one task on host n1. The code of the run is the file
    `code.py`.
    """
    host = Path(layout.host_dir(str(tmp_path), "j", "r", "n1"))
    (host / "tasks" / "worker-0").mkdir(parents=True)
    specs = [wire.TaskSpec(task="worker:0", role="worker", index=0, argv=["true"], env={})]
    part = wire.HostPart(
        run="r",
        job="j",
        mode="async",
        host="n1",
        plan_digest="d",
        release="abc",
        tasks=specs,
        keep=["ckpt"],
        links={"data": "digits"},
    )
    (host / "part.json").write_text(json.dumps(wire.to_wire(part)))
    for folder in (
        Path(layout.release_dir(str(tmp_path), "j", "abc")),
        Path(layout.cwd_dir(str(tmp_path), "j", "r")),
    ):
        folder.mkdir(parents=True)
        (folder / "code.py").write_text("x")
        os.utime(folder / "code.py", (1, 1))
    return host


def rows(items: list[Any]) -> dict[str, list[Any]]:
    return {row[0]: row[1:] for item in items for row in item["rows"]}


def test_keep_is_listed_with_links_and_without_what_is_no_file(ask: Any, keep: Path) -> None:
    (keep / "checkpoint").write_text("one")
    (keep / "deep").mkdir()
    (keep / "deep" / "b\udcff").write_text("four")
    (keep / "link").symlink_to("deep")
    os.mkfifo(keep / "fifo")
    items, value = ask("fetch.list", what="keep", keep=["ckpt", "nothing"])
    listed_rows = rows(items)
    assert set(listed_rows) == {"ckpt/checkpoint", "ckpt/deep/b\udcff", "ckpt/link"}
    assert listed_rows["ckpt/link"][2] == "deep"
    assert list(listed_rows["ckpt/checkpoint"]) == [
        3,
        (keep / "checkpoint").stat().st_mtime_ns,
        None,
    ]
    assert value == {"root": str(keep.parent), "sharing": []}


def test_a_record_that_is_replaced_during_the_look_is_looked_at_again(
    ask: Any, keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keep / "checkpoint").write_text("names one")
    (keep / "model-1").write_text("1")
    real_row_of, seen = keep_folders.make_row, []

    def replacing(root: str, path: str) -> Any:
        row = real_row_of(root, path)
        # At this point of the test, the program saves a checkpoint. It writes the new checkpoint,
        # names it in the checkpoint record, and removes the old checkpoint.
        if path.endswith("model-1") and not seen:
            seen.append(path)
            (keep / "model-2").write_text("2")
            (keep / "new").write_text("now names two")
            (keep / "new").replace(keep / "checkpoint")
            (keep / "model-1").unlink()
        return row

    monkeypatch.setattr(keep_folders, "make_row", replacing)
    items, _ = ask("fetch.list", what="keep", keep=["ckpt"])
    listed_rows = rows(items)
    assert set(listed_rows) == {"ckpt/checkpoint", "ckpt/model-2"}
    assert listed_rows["ckpt/checkpoint"][0] == len("now names two")


def test_what_a_program_left_is_listed_without_the_code_keep_and_data(
    ask: Any, run: Path, tmp_path: Path
) -> None:
    cwd = Path(layout.cwd_dir(str(tmp_path), "j", "r"))
    for path in ("out/result", "ckpt/model", "data/x", "__pycache__/y"):
        (cwd / path).parent.mkdir(parents=True)
        (cwd / path).write_text("z")
    items, value = ask("fetch.list", what="files", run="r")
    assert set(rows(items)) == {"out/result"}
    assert value == {"root": str(cwd), "sharing": ["n1"]}


def test_sums_are_of_the_first_bytes_and_never_through_a_link(ask: Any, keep: Path) -> None:
    (keep / "grown").write_bytes(b"abcdef")
    (keep / "link").symlink_to("grown")
    asked = [
        ["ckpt/grown", 3],
        ["ckpt/grown", 6],
        ["ckpt/grown", 7],
        ["ckpt/link", 3],
        ["ckpt/gone", 0],
    ]
    items, _ = ask("fetch.sums", what="keep", keep=["ckpt"], files=asked)
    digests = [item["sum"][1] for item in items]
    assert digests == [
        hashlib.sha256(b"abc").hexdigest(),
        hashlib.sha256(b"abcdef").hexdigest(),
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("verb", ["fetch.sums"])
@pytest.mark.parametrize(
    "args",
    [
        {"what": "keep", "keep": ["../other"]},
        {"what": "all"},
        {"what": "files", "run": "unknown"},
        {"what": "keep", "keep": ["ckpt"], "files": [["../../x", 1]]},
        {"what": "keep", "keep": ["ckpt"], "files": [["/etc/passwd", 1]]},
        {"what": "keep", "job": "../x"},
    ],
)
def test_what_leads_out_is_refused(ask: Any, keep: Path, args: dict[str, Any], verb: str) -> None:
    with pytest.raises(VerbError):
        ask(verb, **args)


def test_a_log_is_summed_from_what_is_still_held_of_it(ask: Any, run: Path) -> None:
    writer, written = LogWriter(str(run / "tasks" / "worker-0"), 20_000), b""
    for number in range(400):
        chunk = b"line %06d of many that are rotated away\n" % number
        writer.append(chunk, 0, 1, 1000.0 + number)
        written += chunk
    writer.close()
    _, value = ask("fetch.log_sum", run="r", task="worker:0", first=0, end=len(written))
    assert 0 < value["first"] < len(written)
    assert value["sha256"] == hashlib.sha256(written[value["first"] :]).hexdigest()
    _, value = ask(
        "fetch.log_sum", run="r", task="worker:0", first=len(written) - 100, end=len(written) - 10
    )
    assert value["first"] == len(written) - 100
    assert value["sha256"] == hashlib.sha256(written[-100:-10]).hexdigest()
    with pytest.raises(VerbError):
        ask("fetch.log_sum", run="r", task="../worker:0", first=0, end=1)
