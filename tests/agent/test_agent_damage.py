"""Test an agent whose files were damaged on the host. The damage is detected, the agent is
installed again, and the damaged agent never starts. Undamaged files are not read at each start.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.second_account import (
    AGENT,
    FILES,
    STRANGER,
    WITHIN_S,
    arrive,
    bytecode,
    mark_workdir_seen,
    path_of,
)
from support.waiting import wait_for
from tfdeploy.agent import ownership
from tfdeploy.agent import seen as seen_module
from tfdeploy.agent.seen import SEEN, is_agent_unchanged
from tfdeploy.agent.serve import server
from tfdeploy.transport.agent.archive import agent_name

pytestmark = pytest.mark.needs("other accounts")


@pytest.fixture(params=["seen", "unseen"])
def seen(request: pytest.FixtureRequest, workdir: Path) -> bool:
    """Run the test in two cases. Return True in the case in which the whole agent is checked before
    the test damages it.

    After such a check, a later start checks only the files that have changed since.
    """
    if request.param == "seen":
        mark_workdir_seen(workdir)
    return bool(request.param == "seen")


def test_an_arrival_clears_away_what_killed_ones_left_and_nothing_else(workdir: Path) -> None:
    agents = workdir / ".agent"
    shutil.rmtree(workdir / AGENT)
    for name in ("new-7-a1", "new-7-a1.old", "new-8-b2", "new-9-c3", "0123abcd"):
        (agents / name / "tfdeploy").mkdir(parents=True)
        (agents / name / "tfdeploy" / "main.py").write_text("half of it")
        if name != "new-8-b2":
            os.utime(agents / name, (1.0, 1.0))
    os.chown(agents / "new-9-c3", STRANGER, STRANGER)
    assert arrive(workdir) == ("need", {})
    assert {each.name for each in agents.iterdir()} == {
        agent_name(),
        "new-8-b2",
        "new-9-c3",
        "0123abcd",
    }


def other_code(path: Path) -> None:
    path.write_text("raise SystemExit('other code')\n")


def unnoticed(path: Path) -> None:
    """Change the content of a file, but keep its size and time, so that only a hash shows the
    change.
    """
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"import", b"export"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


DAMAGES = {
    "60 edited, of its old size and time": lambda agent: unnoticed(agent / path_of(server)),
    "60 edited, the look itself": lambda agent: unnoticed(agent / path_of(seen_module)),
    "60 emptied": lambda agent: (agent / path_of(server)).write_bytes(b""),
    "60 edited": lambda agent: other_code(agent / path_of(server)),
    "60 missing": lambda agent: (agent / path_of(server)).unlink(),
    "60 a module of a library's name": lambda agent: other_code(agent / "json.py"),
    "60 a package of a library's name": lambda agent: (
        (agent / "json").mkdir(),
        other_code(agent / "json/__init__.py"),
    ),
    "60 bytecode without a source": lambda agent: (agent / "json.pyc").write_bytes(b"\0" * 20),
    "60 nothing in it": lambda agent: [shutil.rmtree(agent), agent.mkdir(0o700)],
}


@pytest.mark.parametrize(
    "damage",
    [pytest.param(how, id=name, marks=pytest.mark.fault(name)) for name, how in DAMAGES.items()],
)
@pytest.mark.usefixtures("seen")
def test_a_damaged_agent_comes_again_by_itself(workdir: Path, damage: Any) -> None:
    damage(workdir / AGENT)
    assert arrive(workdir) == ("need", {})
    assert arrive(workdir) == ("have", {})
    assert [path.name for path in (workdir / ".agent").iterdir()] == [agent_name()]


def test_all_of_the_agent_is_read_once_and_then_only_what_changed(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check counts only if it is later than the time stamps of all files. Otherwise a file might
    have changed after the check and still have the same time stamp.
    """
    at, name = str(workdir), agent_name()
    wait_for(
        lambda: arrive(workdir) == ("have", {}) and is_agent_unchanged(at, name),
        WITHIN_S,
        "the agent to be known",
    )
    with monkeypatch.context() as patched:
        patched.setattr(
            ownership, "_read_agent", lambda *_: pytest.fail("all of it was read again")
        )
        assert ownership.has_agent(at, name)
    (workdir / AGENT / SEEN).write_text("nonsense")
    assert not is_agent_unchanged(at, name)
    assert arrive(workdir) == ("have", {}) and is_agent_unchanged(at, name)


BLOCK_BYTES = 4096


@pytest.mark.fault("44 a full disk cuts the agent's bytecode short, and has room again")
def test_bytecode_that_a_full_disk_cut_short_is_written_again(workdir: Path) -> None:
    """On a full disk, Python before 3.13 leaves truncated bytecode files. A file that fits into one
    disk block is written completely or not at all.
    """
    lengths = {each: each.stat().st_size for each in bytecode(workdir).parent.glob("*.pyc")}
    long = [each for each, length in lengths.items() if length > BLOCK_BYTES]
    for each in long:
        os.truncate(each, BLOCK_BYTES)
    assert long and bytecode(workdir) not in long
    assert arrive(workdir) == ("have", {})
    assert [
        each.name for each in long if each.exists() and each.stat().st_size < lengths[each]
    ] == []


def test_bytecode_that_others_write_at_this_moment_is_no_damage(workdir: Path) -> None:
    """Temporary files of other hosts are no damage. Each host that shares the workdir writes
    bytecode at its first start, to a temporary file that it then renames.
    """
    folder, over = bytecode(workdir).parent, threading.Event()
    (workdir / AGENT / SEEN).unlink(missing_ok=True)

    def write(number: int) -> None:
        while not over.is_set():
            fresh = folder / f"some.pyc.{number}"
            fresh.write_bytes(b"")
            fresh.rename(folder / "some.pyc")

    writers = [threading.Thread(daemon=True, target=write, args=(number,)) for number in range(3)]
    for each in writers:
        each.start()
    try:
        assert all(ownership.has_agent(str(workdir), agent_name()) for _ in range(60))
    finally:
        over.set()
        for each in writers:
            each.join()


def test_nothing_is_started_from_an_agent_that_was_changed(workdir: Path) -> None:
    ownership.check_agent(str(workdir / AGENT))
    (workdir / FILES["source"]).write_text("")
    with pytest.raises(ownership.UntrustedPath, match="not the agent that tfdeploy installed"):
        ownership.check_agent(str(workdir / AGENT))
