"""Locks of a job: one holder, who is named; they go with their session."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from agentside import Client
from conditions import wait_for

from tfdeploy.agent import layout, locks
from tfdeploy.agent.call import Call, Context, VerbError
from tfdeploy.agent.paths import is_locked

WITHIN_S = 20.0
HOLDER = {"user": "ann", "machine": "desk", "pid": 7, "time": 1.0}


def test_the_loser_of_a_lock_learns_who_holds_it(serve: Callable[..., Client], tmp_path: Path) -> None:
    first, second = serve(), serve()
    lock = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": 0}
    assert first.call("lock", **lock)["value"] == {"held": True} == first.call("lock", **lock)["value"]
    error = second.call("lock", **lock)["error"]
    assert error["code"] == "locked" and error["details"] == dict(HOLDER, operation="sync")
    assert "ann@desk" in error["what"]
    assert second.call("lock", **dict(lock, job="other"))["value"] == {"held": True}
    assert first.call("unlock", job="job")["value"] == {} == first.call("unlock", job="job")["value"]
    assert second.call("lock", **lock)["value"] == {"held": True}
    second.close()
    assert os.listdir(layout.locks_dir(str(tmp_path), "job")) == []


@pytest.mark.parametrize("end", ["eof", "kill", "term"])
def test_a_lock_goes_with_its_session(serve: Callable[..., Client], end: str) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=WITHIN_S)
    assert second.call("ping")["value"]
    if end == "eof":
        first.close()
    else:
        first.process.send_signal(signal.SIGKILL if end == "kill" else signal.SIGTERM)
        first.process.wait(WITHIN_S)
    assert second.answer(waiting)["value"] == {"held": True}


def test_unlock_removes_what_a_killed_session_left_and_nobody_else_s(serve: Callable[..., Client], tmp_path: Path) -> None:
    first, second = serve(), serve()
    there = layout.locks_dir(str(tmp_path), "job")
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    assert second.call("unlock", job="job")["value"] == {}
    assert len(os.listdir(there)) == 1
    first.process.kill()
    first.process.wait(WITHIN_S)
    assert len(os.listdir(there)) == 1
    assert second.call("unlock", job="job")["value"] == {}
    assert os.listdir(there) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes machines of its own")
def test_clones_that_share_a_workdir_do_not_lock_each_other_out(serve: Callable[..., Client], tmp_path: Path) -> None:
    lock = {"job": "job", "operation": "launch", "holder": HOLDER, "wait_s": 0}
    first, second = serve(clone="n1"), serve(clone="n2")
    assert first.hello["hostname"] == second.hello["hostname"] and first.hello["boot_id"] == second.hello["boot_id"]
    assert first.call("lock", **lock)["value"] == {"held": True} == second.call("lock", **lock)["value"]
    begun = [each.call("release.begin", zlib.compress(b"[]"), job="job", release="r1")["value"] for each in (first, second)]
    assert begun[0]["staging"] != begun[1]["staging"]
    for each in (first, second):
        assert each.call("unlock", job="job")["value"] == {}
    assert os.listdir(layout.locks_dir(str(tmp_path), "job")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes machines of its own")
def test_a_lock_of_a_life_before_this_one_goes_and_that_of_a_clone_stays(serve: Callable[..., Client], tmp_path: Path) -> None:
    lock = {"job": "job", "operation": "launch", "holder": HOLDER, "wait_s": 0}
    for name in ("n1", "n2"):
        died = serve(clone=name)
        assert died.call("lock", **lock)["value"] == {"held": True}
        died.process.kill()  # as in a power cut
        died.process.wait(WITHIN_S)
    there = Path(layout.locks_dir(str(tmp_path), "job"))
    wait_for(lambda: not any(is_locked(str(path)) for path in there.iterdir()), WITHIN_S, "they are dead")
    again = serve(clone="n1")
    assert again.call("lock", **lock)["value"] == {"held": True}
    assert again.call("unlock", job="job")["value"] == {}
    (left,) = there.iterdir()
    assert json.loads(left.read_text())["of_host"] == "n2"
    assert serve(clone="n2").call("unlock", job="job")["value"] == {} and list(there.iterdir()) == []


def test_waiting_for_a_lock_can_be_cancelled(serve: Callable[..., Client]) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=600)
    second.write({"cancel": waiting})
    assert second.answer(waiting)["error"]["code"] == "cancelled"


def test_a_lock_that_is_let_go_while_it_is_taken_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": WITHIN_S}
    first, second, third = (Call(Context(str(tmp_path), ""), args) for _ in range(3))
    locks.lock(first)
    flock = fcntl.flock

    def after_the_holder_left(fd: int, how: int) -> None:
        if first.context.closing:
            locks.unlock(first)  # between the second one's open and its flock: that file has no name any more
        flock(fd, how)

    monkeypatch.setattr(locks.fcntl, "flock", after_the_holder_left)
    locks.lock(second)
    third.args["wait_s"] = 0
    with pytest.raises(VerbError, match="busy"):
        locks.lock(third)
    locks.unlock(second)
