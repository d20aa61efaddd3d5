"""Test the locks of a job. A lock has one holder, and ends with the holder's session. A client that
cannot get the lock gets an error that names the holder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol_table import agent_verbs
from support.agent.client import Client
from support.agent.cluster import NewClient
from support.waiting import wait_for
from tfdeploy.agent import layout
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.serve import lock as serve_lock
from tfdeploy.agent.serve.server import failure_answer
from tfdeploy.model.answers.failures import format_advice

WITHIN_S = 60.0
LISTING = Listing().pack()  # of an empty data set
HOLDER = {"user": "ann", "machine": "desk", "pid": 7, "time": 1.0}


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_loser_of_a_lock_learns_who_holds_it(serve: NewClient, tmp_path: Path) -> None:
    first, second = serve(), serve()
    lock = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": 0}
    assert first.call("lock", **lock)["value"] == first.call("lock", **lock)["value"]
    error = second.call("lock", **lock)["error"]
    assert error["code"] == "locked" and error["details"] == dict(HOLDER, operation="sync")
    assert "ann@desk" in error["what"]
    assert second.call("lock", **dict(lock, job="other"))["value"]["held"]
    assert (
        first.call("unlock", job="job")["value"] == {} == first.call("unlock", job="job")["value"]
    )
    assert second.call("lock", **lock)["value"]["held"]
    second.close()
    assert os.listdir(layout.locks_dir(str(tmp_path), "job")) == []


@pytest.mark.parametrize("end", ["eof", "kill", "term"])
def test_a_lock_goes_with_its_session(serve: NewClient, end: str) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=WITHIN_S)
    assert second.call("ping")["value"]
    if end == "eof":
        first.close()
    else:
        first.process.send_signal(signal.SIGKILL if end == "kill" else signal.SIGTERM)
        first.process.wait(WITHIN_S)
    assert second.answer(waiting)["value"]["held"]


def test_unlock_removes_what_a_killed_session_left_and_nobody_else_s(
    serve: NewClient, tmp_path: Path
) -> None:
    first, second = serve(), serve()
    folder = layout.locks_dir(str(tmp_path), "job")
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    assert second.call("unlock", job="job")["value"] == {}
    assert len(os.listdir(folder)) == 1
    first.process.kill()
    first.process.wait(WITHIN_S)
    assert len(os.listdir(folder)) == 1
    assert second.call("unlock", job="job")["value"] == {}
    assert os.listdir(folder) == []


@pytest.mark.needs("process namespaces")
def test_clones_that_share_a_workdir_do_not_lock_each_other_out(
    serve: NewClient, tmp_path: Path
) -> None:
    lock = {"job": "job", "operation": "launch", "holder": HOLDER, "wait_s": 0}
    first, second = serve(clone="n1"), serve(clone="n2")
    assert (
        first.hello["hostname"] == second.hello["hostname"]
        and first.hello["boot_id"] == second.hello["boot_id"]
    )
    assert (
        first.call("lock", **lock)["value"]["held"] and second.call("lock", **lock)["value"]["held"]
    )
    begun = [
        each.call("release.begin", zlib.compress(b"[]"), job="job", release="r1")["value"]
        for each in (first, second)
    ]
    assert begun[0]["staging"] != begun[1]["staging"]
    for each in (first, second):
        assert each.call("unlock", job="job")["value"] == {}
    assert os.listdir(layout.locks_dir(str(tmp_path), "job")) == []


@pytest.mark.needs("process namespaces")
def test_a_lock_of_a_life_before_this_one_goes_and_that_of_a_clone_stays(
    serve: NewClient,
    tmp_path: Path,
    held: ExitStack,
) -> None:
    lock = {"job": "job", "operation": "launch", "holder": HOLDER, "wait_s": 0}
    for name in ("n1", "n2"):
        died = serve(clone=name)
        assert died.call("lock", **lock)["value"]["held"]
        # The name of a lock file contains the number of the PID namespace. As long as this
        # descriptor is open, the kernel does not use the number again.
        held.callback(
            os.close, os.open(f"/proc/{died.process.pid}/ns/pid_for_children", os.O_RDONLY)
        )
        # The process is killed without a chance to clean up, as by a power cut.
        died.process.kill()
        died.process.wait(WITHIN_S)
    folder = Path(layout.locks_dir(str(tmp_path), "job"))
    wait_for(
        lambda: not any(is_locked(str(path)) for path in folder.iterdir()),
        WITHIN_S,
        "they are dead",
    )
    again = serve(clone="n1")
    assert again.call("lock", **lock)["value"]["held"]
    assert again.call("unlock", job="job")["value"] == {}
    (left,) = folder.iterdir()
    assert json.loads(left.read_text())["of_host"] == "n2"
    assert (
        serve(clone="n2").call("unlock", job="job")["value"] == {} and list(folder.iterdir()) == []
    )


def test_waiting_for_a_lock_can_be_cancelled(serve: NewClient) -> None:
    first, second = serve(), serve()
    assert first.call("lock", job="job", operation="launch", holder=HOLDER, wait_s=0)["value"]
    waiting = second.ask("lock", job="job", operation="sync", holder=HOLDER, wait_s=600)
    second.write({"cancel": waiting})
    assert second.answer(waiting)["error"]["code"] == "cancelled"


def test_a_lock_that_is_let_go_while_it_is_taken_is_not_taken_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": WITHIN_S}
    first, second, third = (Call(SessionContext(str(tmp_path), ""), args) for _ in range(3))
    serve_lock.acquire_lock(first)
    flock = fcntl.flock

    def after_the_holder_left(fd: int, how: int) -> None:
        if how & fcntl.LOCK_EX and first.context.closing_functions:
            # The second session has opened the lock file but has not called flock yet. In between,
            # the holder removes the file, so the opened file has no name any more.
            serve_lock.release_lock(first)
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", after_the_holder_left)
    serve_lock.acquire_lock(second)
    third.args["wait_s"] = 0
    with pytest.raises(VerbError, match="busy"):
        serve_lock.acquire_lock(third)
    serve_lock.release_lock(second)


# --- the fence: a number that grows each time the lock is acquired

BOB = {"user": "bob", "machine": "laptop", "pid": 9, "time": 2.0}


def taken(client: Client, holder: dict[str, Any] = HOLDER) -> int:
    number: int = client.call("lock", job="job", operation="sync", holder=holder, wait_s=WITHIN_S)[
        "value"
    ]["fence"]
    return number


def gone(client: Client) -> None:
    client.process.kill()
    client.process.wait(WITHIN_S)


def writes(client: Client, fence: int | None = None, verb: str = "data.lack", **args: Any) -> Any:
    """Call a verb that changes files on the host. Return the error code of its refusal, or None if
    the verb succeeds.
    """
    return (
        client.call(verb, LISTING, **{"job": "job", "name": "d", "fence": fence, **args})
        .get("error", {})
        .get("code")
    )


@pytest.mark.fault("28 two operators, one of whom has lost the lock")
@pytest.mark.parametrize("ended", [False, True], ids=["the other holds it", "the other is done"])
def test_who_lost_the_lock_to_another_is_refused_and_told_whose_it_is(
    serve: NewClient, ended: bool
) -> None:
    ann, bob, again = serve(), serve(), serve()
    mine = taken(ann)
    assert writes(ann, mine) is None
    gone(ann)
    his = taken(bob, BOB)
    assert his > mine
    if ended:
        assert bob.call("unlock", job="job")["value"] == {}
    error = again.call("data.lack", LISTING, job="job", name="d", fence=mine)["error"]
    assert (error["code"], error["details"]["user"]) == ("lock_lost", "bob")
    assert (
        error["what"]
        == "the lock of job job was lost on this host: the lock has since been taken for the "
        "sync of bob@laptop (pid 9)"
    )
    # bob took the lock in the meantime and still holds it.
    assert writes(bob, his) is None


@pytest.mark.parametrize(
    "verb", sorted(verb for verb, answer in agent_verbs().items() if "fenced" in vars(answer))
)
def test_each_verb_that_changes_files_is_refused(serve: NewClient, verb: str) -> None:
    ann, bob = serve(), serve()
    mine = taken(ann)
    gone(ann)
    taken(bob, BOB)
    args = {"part": {"job": "job"}} if verb == "run.prepare" else {}
    again = serve()
    assert writes(again, mine, verb, **args) == "lock_lost"
    # tfdeploy calls run.prepare without the argument `job`. The argument `part` contains the job.
    if verb == "run.prepare":
        assert again.call(verb, part={"job": "job"}, fence=mine)["error"]["code"] == "lock_lost"


def test_a_new_session_takes_its_own_lock_again(serve: NewClient) -> None:
    ann, again, bob = serve(), serve(), serve()
    mine = taken(ann)
    gone(ann)
    assert writes(again, mine) is None
    assert (
        bob.call("lock", job="job", operation="launch", holder=BOB, wait_s=0)["error"]["details"][
            "user"
        ]
        == "ann"
    )
    assert writes(again, mine) is None
    assert again.call("unlock", job="job")["value"] == {}
    assert taken(bob, BOB) > mine


def test_who_connects_again_waits_until_the_session_before_has_seen_its_end(
    serve: NewClient,
) -> None:
    ann, again = serve(), serve()
    mine = taken(ann)
    asked = [again.ask("data.lack", LISTING, job="job", name="d", fence=mine) for _ in range(3)]
    assert again.call("ping")["value"]
    again.write({"cancel": asked[0]})
    assert again.answer(asked[0])["error"]["code"] == "cancelled"
    gone(ann)
    assert all(again.answer(number)["value"] for number in asked[1:])


def test_of_a_session_before_that_never_ends_it_is_said_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_lock, "OUTLIVED_S", 0.0)
    before, again = SessionContext(str(tmp_path), ""), SessionContext(str(tmp_path), "")
    mine = serve_lock.acquire_lock(
        Call(before, {"job": "job", "operation": "sync", "holder": HOLDER})
    )["fence"]
    with pytest.raises(VerbError, match="sync by ann@desk") as caught:
        serve_lock.ensure_job_lock(Call(again, {"job": "job", "fence": mine}))
    assert caught.value.code == "locked"
    serve_lock.release_lock(Call(before, {"job": "job"}))


def test_without_a_number_it_may_while_nobody_else_holds_the_lock(serve: NewClient) -> None:
    """A call without the number of a lock (its fence) may write while nobody else holds the lock.
    Older versions of tfdeploy send no number, and neither do clients that only read.
    """
    ann, other = serve(), serve()
    assert writes(other) is None
    taken(ann)
    assert writes(other) == "locked" and writes(ann) is None
    assert other.call("data.state", job="job", name="d")["value"] is None
    assert other.call("run.stop", job="job", run="r1")["error"]["code"] == "unknown_run"
    assert other.call("run.abort", job="job", run="r1")["value"] == {}
    gone(ann)
    # The session that held the lock is dead, so its lock file does not count.
    assert writes(other) is None


def test_no_number_comes_twice_also_where_the_file_was_lost(
    serve: NewClient, tmp_path: Path
) -> None:
    seen = []
    for damage in ("", "remove", "empty", "words", ""):
        client = serve()
        seen.append(taken(client))
        client.close()
        (file,) = Path(layout.job_dir(str(tmp_path), "job"), "fences").glob("*.lock")
        if damage == "remove":
            file.unlink()
        elif damage:
            file.write_text({"empty": "", "words": '{"number": "many", "holder": 7}'}[damage])
    assert seen == sorted(set(seen))


def test_the_number_of_a_clock_that_was_set_back_is_still_higher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "locks" / "here.lock")
    os.makedirs(os.path.dirname(serve_lock.fencing_number_path(path)))
    serve_lock.advance_fencing_number(path, HOLDER)
    before = serve_lock.read_fencing_number(path)
    monkeypatch.setattr(serve_lock.time, "time", lambda: 1.0)
    serve_lock.advance_fencing_number(path, BOB)
    assert (
        serve_lock.read_fencing_number(path) == before + 1
        and serve_lock.read_last_holder(path) == BOB
    )


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_filesystem_without_locks_is_named_and_nobody_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def no_flock(fd: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    args = {"job": "job", "operation": "sync", "holder": HOLDER, "wait_s": 0}
    monkeypatch.setattr(fcntl, "flock", no_flock)
    with pytest.raises(OSError) as caught:
        serve_lock.acquire_lock(Call(SessionContext(str(tmp_path), ""), args))
    answer = failure_answer(caught.value)
    assert (
        answer["code"] == "refused"
        and str(tmp_path) in answer["where"]
        and "`workdir:`" in str(format_advice("n1", answer["advice"], answer["details"]))
    )
    assert not is_locked(str(tmp_path))
