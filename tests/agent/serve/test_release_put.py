"""release.put: small files through the channel, into a staging folder and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.serve.call import Call, Context
from tfdeploy.agent.serve.dispatch import find_verb

TREE = {"train.py": b"print(1)\n", "lib/net.py": b"net = 2\n", "empty": b""}
Put = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path) -> Put:
    """ask(verb, blob, **args): the value of a verb of release r1."""
    context = Context(str(tmp_path), "/nowhere")
    return lambda verb, blob=b"", **args: find_verb(verb)(Call(context, {"job": "job", "release": "r1", **args}, blob))


def begun(ask: Put) -> str:
    rows = [[path, "file", len(raw), hashlib.sha256(raw).hexdigest(), ""] for path, raw in TREE.items()]
    answer = ask("release.begin", zlib.compress(json.dumps(rows).encode()))
    assert sorted(answer["missing"]) == sorted(TREE)
    return str(answer["staging"])


def put(ask: Put, staging: str, tree: dict[str, bytes]) -> None:
    files = [[path, len(raw), 1_600_000_000_123_456_789] for path, raw in tree.items()]
    ask("release.put", zlib.compress(b"".join(tree.values())), staging=staging, files=files)


def test_files_arrive_with_content_and_time(ask: Put, tmp_path: Path) -> None:
    staging = begun(ask)
    put(ask, staging, TREE)
    assert ask("release.commit", staging=staging) == {"changed": []}
    release = tmp_path / "job/releases/r1"
    assert {path: (release / path).read_bytes() for path in TREE} == TREE
    assert (release / "train.py").stat().st_mtime_ns == 1_600_000_000_123_456_789


def test_what_has_the_name_already_is_replaced_and_never_written_into(ask: Put, tmp_path: Path) -> None:
    staging = begun(ask)
    older = tmp_path / "older.py"
    older.write_bytes(b"of an older release")
    os.link(older, Path(staging, "train.py"))
    put(ask, staging, TREE)
    assert older.read_bytes() == b"of an older release"
    assert ask("release.commit", staging=staging) == {"changed": []}


def test_wrong_content_is_asked_for_again(ask: Put) -> None:
    staging = begun(ask)
    put(ask, staging, {**TREE, "lib/net.py": b"net = 3\n"})
    assert ask("release.commit", staging=staging) == {"changed": ["lib/net.py"]}


@pytest.mark.parametrize("path", ["../r0/train.py", "/etc/motd", "lib/../../x", "a//b", ".", ""])
def test_no_path_leads_out(ask: Put, tmp_path: Path, path: str) -> None:
    staging = begun(ask)
    with pytest.raises(VerbError) as error:
        put(ask, staging, {path: b"x"})
    assert error.value.code == "bad_manifest"


def test_no_path_leads_through_a_link(ask: Put, tmp_path: Path) -> None:
    staging = begun(ask)
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", Path(staging, "link"))
    with pytest.raises(VerbError) as error:
        put(ask, staging, {"link/train.py": b"x"})
    assert error.value.code == "bad_manifest" and not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(
    "blob", [b"no zlib", zlib.compress(b"short"), zlib.compress(bytes(1 << 20)), zlib.compress(b"123456789")[:-6]]
)
def test_a_parcel_that_is_not_what_it_says_writes_nothing(ask: Put, blob: bytes) -> None:
    staging = begun(ask)
    with pytest.raises(VerbError) as error:
        ask("release.put", blob, staging=staging, files=[["train.py", 9, 1]])
    assert error.value.code == "bad_manifest" and not Path(staging, "train.py").exists()


def test_only_into_our_own_staging(ask: Put, tmp_path: Path) -> None:
    with pytest.raises(VerbError) as error:
        put(ask, str(tmp_path), TREE)
    assert error.value.code == "bad_name"
