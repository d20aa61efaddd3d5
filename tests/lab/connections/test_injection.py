"""Test that texts which are hard to quote travel to a real host and back unchanged, as arguments,
variables, log lines and file names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fuzz.injection import CANARY, FILE_NAMES, WORDS, braced, quoted
from support.lab.commandline import Tfdeploy
from tfdeploy.lab import Lab
from tfdeploy.operations.copy.code_files import MOST_BYTES

PROGRAM = Path(__file__).parents[1] / "programs" / "echoing.py"
# File names that tfdeploy or git treats specially. The tests leave them out.
SPECIAL = (b".gitignore", b".tfdeployignore", b"__pycache__", b".tfdeploy-partial", b".git_config")
NAMES = sorted(name for name in FILE_NAMES if name not in SPECIAL)
UNPRINTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]")


def write_names(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in NAMES:
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(
            b"content of " + name
        )


def write_job(operator: Tfdeploy) -> None:
    shutil.copy(PROGRAM, operator.cwd / PROGRAM.name)
    write_names(operator.cwd / "odd")
    with (operator.cwd / "large").open("wb") as file:
        # tfdeploy sends code through rsync only if the code has more than MOST_BYTES.
        file.truncate(MOST_BYTES + 1)
    write_names(operator.home / "data")
    words = ", ".join(quoted(braced(word)) for word in WORDS)
    env = ", ".join(f"V{number}: {quoted(braced(word))}" for number, word in enumerate(WORDS))
    (operator.cwd / "tfdeploy.yaml").write_text(
        f"name: injected\nmode: local\nkeep: [out]\ndata: {{odd: ../data}}\nready: {{after: "
        f"300ms}}\nrestart: {{max: 0}}\n"
        f"command: [python, {PROGRAM.name}, '{{keep.out}}', {words}]\nenv: {{DATA: "
        f"'{{data.odd}}', {env}}}\n"
    )


@pytest.mark.fault(
    "18 271 texts made to break out: words, variables, lines and names of files, there and back"
)
def test_all_of_it_arrives_byte_for_byte_and_runs_nothing(
    loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(loopback_lab)
    write_job(operator)
    planned = operator.run("launch", "--dry-run", exit_code=0)
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    logs = operator.run("logs", run, exit_code=0)
    status = operator.run("status", run, exit_code=0)
    operator.run("fetch", run, "--keep", "--logs", "--to", "back", exit_code=0)
    for shown in (planned, logs, status):
        assert not UNPRINTED.search(shown.stdout + shown.stderr)
    got = json.loads((operator.cwd / "back/keep/out/got.json").read_text())
    assert [bytes.fromhex(word) for word in got["words"]] == [word.encode() for word in WORDS]
    assert {key: bytes.fromhex(value) for key, value in got["variables"].items()} == {
        f"V{number}": word.encode() for number, word in enumerate(WORDS)
    }
    assert (
        [bytes.fromhex(name) for name in got["code"]]
        == NAMES
        == [bytes.fromhex(name) for name in got["data"]]
    )
    back = os.fsencode(operator.cwd / "back/keep/out/odd")
    assert sorted(os.listdir(back)) == NAMES
    assert all(
        Path(os.fsdecode(os.path.join(back, name))).read_bytes() == b"content of " + name
        for name in NAMES
    )
    stored = next((operator.cwd / "back/logs").glob("*.log")).read_bytes()
    assert all(name.replace(b"\r", b"\n").split(b"\n")[0] in stored for name in NAMES)
    for folder in (loopback_lab.root, operator.home):
        assert not list(Path(folder).rglob(CANARY))
    assert not any(
        (place / CANARY).exists() for place in (Path.home(), Path.cwd(), Path("/tmp"), Path("/"))
    )
