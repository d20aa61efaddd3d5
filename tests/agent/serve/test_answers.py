"""Test that the real answer of each verb of the agent has exactly the fields that the control
machine expects.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
import zlib
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest

from protocol_table import agent_verbs, verbs
from support.agent.answer_types import unknown
from support.agent.certificates import make_certs
from support.agent.cluster import NewCluster
from support.waiting import wait_for
from tfdeploy.agent import bitmap, listing, pieces, wire
from tfdeploy.agent.broadcast.holdings import Holdings
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.pieces import bitmap_bytes
from tfdeploy.agent.serve import server
from tfdeploy.agent.serve.server import failure_answer, find_verb
from tfdeploy.model.answers.failures import Failure
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.text import typed
from tfdeploy.text.typed import StreamingVerb

VERBS = verbs()
FILES = {"train.py": b"print(1)\n"}
TRAIN = [
    "sh",
    "-c",
    "echo hello; mkdir -p left; echo x > left/file; until test -e go; do sleep 0.05; done; exit 3",
]
BOARD = f"""#!/bin/sh
case "$*" in *find_spec*) exit 0;; esac
while [ "$1" != --port ]; do shift; done
exec {sys.executable} -m http.server --bind 127.0.0.1 "$2"
"""


class Listener:
    """Collects the items that a verb sends while it runs in a thread, until the test cancels the
    verb.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.cancelled = threading.Event()

    def cancel_once(self, *wanted: dict[str, Any]) -> None:
        """Cancel the verb as soon as it has sent, for each dict in `wanted`, an item that contains
        all fields of the dict.
        """
        wait_for(
            lambda: all(
                any(each.items() <= item.items() for item in self.items) for each in wanted
            ),
            10.0,
            str(wanted),
        )
        self.cancelled.set()


def asked(
    context: SessionContext,
    verb: str,
    blob: bytes = b"",
    /,
    *,
    enough: int = 0,
    listener: Listener | None = None,
    **args: Any,
) -> Any:
    """Call a real verb on a host, check the answer against its type, and return the answer.

    After `enough` items, the verb is cancelled.
    """
    kind, listener = VERBS[verb], listener or Listener()

    def item(fields: dict[str, Any], content: bytes) -> None:
        assert (
            isinstance(kind, StreamingVerb)
            and unknown(json.loads(json.dumps(fields)), kind.item) == []
        )
        listener.items.append(fields)
        if len(listener.items) == enough:
            listener.cancelled.set()

    cancelled = listener.cancelled

    value = json.loads(json.dumps(find_verb(verb)(Call(context, args, blob, item, cancelled))))
    assert unknown(value, kind.value) == []
    return value


@pytest.fixture
def host(tmp_path: Path, agent_dir: str) -> SessionContext:
    return SessionContext(str(tmp_path / "w"), agent_dir)


def test_a_run_that_fails(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n1", TRAIN), "worker:1": ("n2", ["sleep", "1000"])}
    cluster.prepare(
        "r1", {**tasks, "ps:0": ("n1", ["sleep", "1000"], {"serves": True})}, sample_every_s=0.1
    )
    one, two = (cluster.hosts[name].context for name in ("n1", "n2"))
    which = {"run": "r1", "job": cluster.job}
    for context in (one, two):
        asked(context, "run.links", **which)
        asked(context, "run.renew", plan_digest="d1", **which)
        asked(context, "run.start", **which)
    for context in (one, two):
        asked(context, "run.commit", **which)
        asked(context, "run.status", **which)
    asked(
        one,
        "probe",
        python=sys.executable,
        ports=[2222, 2230],
        gpus="auto",
        job=cluster.job,
        keep=["ckpt"],
        names=["localhost"],
    )
    cluster.wait_until(lambda: Path(cluster.hosts["n1"].paths("r1").file("samples.json")).exists())
    asked(one, "run.watch", enough=2, **which)
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    for context in (one, two):
        assert (
            asked(context, "run.status", **which)["host_state"]["first_death"]["outcome"]
            == "failed"
        )
        asked(context, "runs")
        asked(context, "run.watch", **which)
        asked(context, "logs", follow=True, **which)
        over = asked(context, "run.known", **which)["known"]
        asked(context, "run.tell", known=over, **which)
        asked(context, "run.stop", grace_s=0.1, **which)
    asked(one, "samples", **which)
    known = asked(one, "run.known", **which)["known"]
    asked(two, "run.tell", known=known, **which)
    end = asked(one, "logs", follow=False, tasks=["worker:0"], **which)["ends"]["worker:0"]
    asked(one, "fetch.log_sum", task="worker:0", first=0, end=end, **which)
    asked(one, "fetch.list", what="files", **which)
    asked(one, "fetch.sums", what="files", files=[["left/file", 2], ["none", 1]], **which)
    asked(one, "run.plan", **which)
    with pytest.raises(VerbError):
        asked(one, "run.resume", **which)
    asked(one, "run.abort", reason="test", purge=True, **which)
    asked(one, "audit", python=sys.executable)
    asked(one, "audit", **which)
    asked(one, "clean.list", named=[])
    fence = asked(one, "lock", job=cluster.job, operation="clean", holder={"user": "me"})["fence"]
    asked(
        one,
        "clean.remove",
        job=cluster.job,
        things=[["run", "r1"], ["release", "none"]],
        fence=fence,
    )
    asked(one, "clean.workdir", things=[["half", "none"]])
    asked(one, "unlock", job=cluster.job)
    # The host refuses this verb while a minder (a process that looks after a run) is alive.
    with contextlib.suppress(VerbError):
        asked(two, "clean.everything", holder={"user": "me"})


def test_a_run_whose_hosts_do_not_reach_each_other(hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    cluster.runs.append("r4")
    part = cluster.parts(
        "r4", {"worker:0": ("n1", ["sleep", "1000"]), "worker:1": ("n2", ["sleep", "1000"])}
    )["n1"]
    plan = {"run": "r4", "operator": "me@here", "created": 1.0}
    context = cluster.hosts["n1"].context
    asked(context, "run.prepare", part=part, plan=plan, secrets={}, certs=cluster.certs["n1"])
    assert asked(context, "run.links", run="r4", job=cluster.job)["shut"]


def test_a_run_that_starts_again(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    again = {
        "restart_max": 3,
        "restart_backoff_s": [0.05, 0.1],
        "recovery": {"worker:0": ("alone", False)},
    }
    cluster.prepare("r2", {"worker:0": ("n1", TRAIN)}, **again)
    context, which = cluster.hosts["n1"].context, {"run": "r2", "job": cluster.job}
    part = json.loads(Path(cluster.hosts["n1"].paths("r2").file("part.json")).read_text())
    plan = {"run": "r2", "operator": "me@here", "created": 1.0}
    asked(context, "run.prepare", part=part, plan=plan, secrets={}, certs=cluster.certs["n1"])
    asked(context, "run.start", **which)
    asked(context, "run.commit", **which)
    Path(cluster.hosts["n1"].paths("r2").cwd, "go").touch()
    cluster.wait_until(lambda: cluster.status("r2", "worker:0").attempt > 1)
    asked(context, "run.watch", **which)
    assert asked(context, "run.status", **which)["host_state"]["restarts"]


def test_releases_and_data(host: SessionContext, tmp_path: Path) -> None:
    import hashlib

    rows = [
        [path, "file", len(text), hashlib.sha256(text).hexdigest(), ""]
        for path, text in FILES.items()
    ]
    which = {"job": "j", "release": "c0ffee"}
    asked(host, "release.state", **which)
    begun = asked(host, "release.begin", zlib.compress(json.dumps(rows).encode()), **which)
    assert asked(host, "release.commit", staging=begun["staging"], **which) == {
        "changed": ["train.py"]
    }
    contents = json.dumps([1] * len(FILES)).encode() + b"\n" + b"".join(FILES.values())
    asked(host, "release.commit", zlib.compress(contents), staging=begun["staging"], **which)
    assert asked(host, "release.state", **which) == {"present": True}
    missing = asked(
        host, "release.missing", zlib.compress(json.dumps(rows).encode()), job="j", release="decade"
    )
    assert missing == {"missing": []}
    assert asked(host, "data.state", job="j", name="digits") is None
    asked(host, "data.lack", Listing().pack(), job="j", name="digits")
    asked(host, "data.commit", job="j", name="digits")
    asked(host, "data.state", job="j", name="digits")
    asked(host, "data.losing", job="j", name="digits", digest="")


def test_a_broadcast(host: SessionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "shard").write_bytes(b"1234")
    which, rows = {"job": "j", "name": "digits"}, listing.walk(str(source))
    lacking = asked(host, "data.lack", rows.pack(), **which)["lacking"]
    leaf = pieces.hash_piece(b"1234")
    about = {"id": "b", "host": "n1", "members": ["n1", "n2"], "certs": make_certs(["n1"])["n1"]}
    listener = Listener()
    args = {"listener": listener, "moved": lacking, "ports": [20000, 60000], **about, **which}
    join = threading.Thread(daemon=True, target=asked, args=(host, "broadcast.join"), kwargs=args)
    join.start()
    wait_for(lambda: "broadcast b" in host.closing_functions, 10.0, "it takes part")
    asked(
        host, "broadcast.feeds", id="b", stripes=1, parents=[["n2", "127.0.0.1", 1, [0]]], here=[0]
    )
    asked(host, "broadcast.roots", id="b", first=0, roots=[pieces.hash_leaves(leaf).hex()])
    assert asked(host, "broadcast.leaves", leaf, id="b", segment=0) == {
        "wanted": bitmap.pack(bitmap_bytes(1))
    }
    asked(host, "broadcast.put", b"1234", id="b", segment=0, index=0)
    assert asked(host, "broadcast.sums", id="b", segment=0) == {"leaves": leaf.hex()}
    asked(host, "broadcast.read", id="b", segment=0, index=0)
    for error, code in ((PermissionError(13, "", "shard"), "permission"), (OSError(), "changed")):
        for verb, method in (("broadcast.sums", "compute_leaves"), ("broadcast.read", "read")):
            with monkeypatch.context() as patched, pytest.raises((OSError, VerbError)) as caught:
                patched.setattr(Holdings, method, Mock(side_effect=error))
                asked(host, verb, id="b", segment=0, index=0)
            assert failure_answer(caught.value)["code"] == code
    refused = ["n2", "unreached", "[Errno 111] Connection refused"]
    listener.cancel_once({"have": 4}, {"failed": refused})
    assert "port" in listener.items[0]
    join.join()
    assert asked(host, "data.commit", staged=True, **which)["ok"]
    asked(host, "data.held", rows.pack(), **which)
    args = {"enough": 2, "ports": [20000, 60000], **about, **which, "id": "c"}
    asked(host, "broadcast.offer", rows.pack(), id="c", root="", **which)
    lend = threading.Thread(daemon=True, target=asked, args=(host, "broadcast.lend"), kwargs=args)
    lend.start()
    wait_for(lambda: "broadcast c" in host.closing_functions, 10.0, "it lends")
    asked(host, "broadcast.roots", id="c", first=0, roots=[pieces.hash_leaves(leaf).hex()])
    lend.join()


def test_data_that_begins_on_a_host(host: SessionContext, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "shard").write_bytes(b"1234")
    which = {"job": "j", "name": "digits"}
    assert asked(host, "data.look", path=str(source))["folder"]
    asked(host, "data.lack", listing.walk(str(source)).pack(), **which)
    asked(host, "data.copy", root=str(source), **which)
    assert asked(host, "data.commit", staged=True, **which)["ok"]


def test_keep_locks_and_clocks(host: SessionContext) -> None:
    asked(host, "ping")
    asked(
        host,
        "lock",
        job="j",
        operation="sync",
        holder={"user": "me", "machine": "m", "pid": 1, "time": 1.0},
        wait_s=0,
    )
    asked(host, "unlock", job="j")
    folder = Path(asked(host, "keep.begin", job="j", bytes=1)["folder"])
    (folder / "ckpt").mkdir()
    (folder / "ckpt" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-12"\n')
    about = (folder / "ckpt" / "checkpoint").stat()
    file = ["ckpt/checkpoint", about.st_size, about.st_mtime_ns]
    lacking = {"job": "j", "keep": ["ckpt"], "aside": []}
    asked(host, "keep.place", files=[file, ["ckpt/none", 1, 1]], **lacking)
    asked(host, "keep.place", files=[file], **lacking)
    asked(host, "fetch.list", what="keep", job="j", keep=["ckpt"])
    asked(host, "keep.aside", job="j", run="r1", keep=["other"])
    asked(
        host,
        "probe",
        python="python3",
        ports=[2222, 2222],
        gpus="none",
        job="j",
        keep=["ckpt"],
        names=[],
    )
    asked(host, "probe", python="python3", ports=[2222, 2222], gpus="auto", preflight=True)


def test_links_between_hosts(host: SessionContext) -> None:
    token, key = "0" * 32, "1" * 32
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked(host, "check.listen", enough=1, ports=[port], token=token, key=key, seconds=5)
    link = ["127.0.0.1", port, token]
    assert asked(host, "check.knock", links=[link])["failed"][0][1] == "refused"
    assert asked(host, "check.measure", link=link, key=key)["why"]


def test_environments(host: SessionContext) -> None:
    which = {"job": "j", "digest": "d1", "python": sys.executable}
    asked(host, "env.state", **which)
    asked(host, "env.make", files={"requirements.txt": ""}, main="requirements.txt", **which)
    assert asked(host, "env.state", **which)["ready"]


def test_tensorboard(hosts: NewCluster, tmp_path: Path) -> None:
    cluster = hosts("n1")
    cluster.prepare("r3", {"worker:0": ("n1", ["sleep", "1000"])})
    python = tmp_path / "python"
    python.write_text(BOARD)
    python.chmod(0o755)
    asked(
        cluster.hosts["n1"].context,
        "tensorboard",
        enough=1,
        run="r3",
        job=cluster.job,
        python=str(python),
    )


def test_every_verb_is_asked_here_and_the_agent_knows_no_other() -> None:
    assert set(VERBS) == set(agent_verbs())
    for name in agent_verbs():
        find_verb(name)
    text = Path(__file__).read_text()
    asked = set(re.findall(r',\s+"([a-z._]+)"', text))
    assert sorted(set(VERBS) - asked) == []


def test_hello_and_what_the_agent_refuses(host: SessionContext) -> None:
    os.makedirs(host.workdir)
    assert unknown(json.loads(json.dumps(server.session_facts(host))), Hello) == []
    errors: list[Exception] = [
        ValueError("x"),
        VerbError("disk", "full", details={"free_bytes": 1}),
        OSError(28, "full", "/x"),
    ]
    holder = {"holder": {"user": "me", "pid": 1}, "operation": "sync"}
    errors += [
        VerbError("locked", "by me", details=holder),
        VerbError("setup_failed", "no", details={"lines": ["a"]}),
    ]
    for error in errors:
        assert unknown(json.loads(json.dumps(failure_answer(error))), Failure) == []


def test_the_words_are_those_of_the_wire() -> None:
    assert (get_args(typed.Outcome), get_args(typed.Phase)) == (wire.OUTCOMES, wire.PHASES)
    assert get_args(typed.TaskState) == wire.TASK_STATES
