"""Test what `clean` removes from a workdir and what it never removes, on real folders with real
runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster, wait_until
from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.serve.clean import verbs as clean
from tfdeploy.agent.serve.server import find_verb

JOB = "digits"
TASKS = {"worker:0": ("n1", ["sh", "-c", "until test -e go; do sleep 0.05; done"])}
LINGERS = "its minder is still telling other hosts that the run has ended"
HOLDER = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}


def asked(context: SessionContext, verb: str, **args: Any) -> list[dict[str, Any]]:
    """Call the verb and return the items of its answer."""
    items: list[dict[str, Any]] = []
    find_verb(verb)(Call(context, args, b"", lambda fields, blob: items.append(dict(fields))))
    return items


def listed(context: SessionContext, **args: Any) -> dict[tuple[str, str], str]:
    """Return {(kind, name) of a thing: why `clean` would not remove the thing, or ""}."""
    return {
        (row["kind"], row["name"]): row["stays"] for row in asked(context, "clean.list", **args)
    }


def removed(context: SessionContext, *things: tuple[str, str], **args: Any) -> dict[str, str]:
    """Call clean.remove for these things. Return {name: why the thing was not removed, or ""}."""
    return {
        row["name"]: row["stays"]
        for row in asked(context, "clean.remove", job=JOB, things=things, **args)
    }


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def host(tmp_path: Path) -> SessionContext:
    """Return a host whose workdir has a job with empty folders and one checkpoint."""
    workdir = tmp_path / "w"
    for name in ("locks", "fences", "runs", "releases", "data", "keep/ckpt"):
        (workdir / JOB / name).mkdir(parents=True, mode=0o700)
    write(workdir / JOB / "keep/ckpt/model")
    return SessionContext(str(workdir), str(tmp_path), "n1")


def a_run(
    context: SessionContext,
    run: str,
    phase: str = "ended",
    on: str = "n1",
    ended: float = 1.0,
    **fields: Any,
) -> Path:
    """Write the files of a run on host `on`, as they are after a reboot. Return their folder."""
    folder = Path(layout.host_dir(context.workdir, JOB, run, on))
    part = wire.HostPart(
        run=run,
        job=JOB,
        mode="async",
        host=on,
        plan_digest="d",
        release=fields.pop("release", "r0"),
        **fields,
    )
    state = wire.HostRunState(
        run=run, job=JOB, host=on, phase=phase, ended=ended if phase == "ended" else None
    )
    write(folder / "part.json", json.dumps(wire.to_wire(part)))
    write(folder / "state.json", json.dumps(wire.to_wire(state)))
    write(folder.parents[1] / "cwd/result", "y" * 10_000)
    return folder.parents[1]


@pytest.fixture
def cluster(hosts: NewCluster) -> Cluster:
    made = hosts("n1")
    made.hosts["n1"].context.host = "n1"
    os.chmod(made.hosts["n1"].context.workdir, 0o700)
    return made


def test_a_live_run_stays_and_goes_on_and_once_ended_it_goes(cluster: Cluster) -> None:
    context = cluster.hosts["n1"].context
    cluster.launch("r1", TASKS)
    assert listed(context)["run", "r1"] == "the run is alive on n1"
    assert removed(context, ("run", "r1")) == {"r1": "the run is alive on n1"}
    cluster.wait_state("r1", "worker:0", "running")
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    wait_until(lambda: listed(context)["run", "r1"] != LINGERS)
    (row,) = [row for row in asked(context, "clean.list") if row["kind"] == "run"]
    assert row["stays"] == "" and row["bytes"] > 0 and row["ended"] > 0
    assert removed(context, ("run", "r1")) == {"r1": ""}
    assert not Path(cluster.hosts["n1"].paths("r1").run_dir).exists()
    # The name r1 is free again, because the run of that name was removed.
    cluster.launch("r1", TASKS)


def test_a_run_that_is_launched_between_list_and_removal_stays(cluster: Cluster) -> None:
    context = cluster.hosts["n1"].context
    write(Path(context.workdir, JOB, "runs/r1/hosts/n1/word.told"))
    cluster.launch("r0", TASKS)
    cluster.each("run.stop", "r0", grace_s=0.0)
    assert listed(context)["half", "runs/r1"] == ""
    cluster.launch("r1", TASKS)
    assert removed(context, ("half", "runs/r1")) == {"runs/r1": "the run is alive on n1"}
    cluster.wait_state("r1", "worker:0", "running")


def test_a_run_of_which_only_a_process_is_alive_stays(cluster: Cluster) -> None:
    context = cluster.hosts["n1"].context
    cluster.launch("r1", TASKS)
    marks = {"TFDEPLOY_TASK_RUN_ID": "r1", "TFDEPLOY_TASK_JOB": JOB}
    marks["TFDEPLOY_TASK_FOLDER"] = os.path.realpath(cluster.hosts["n1"].paths("r1").host_dir)
    cluster.each("run.stop", "r1", grace_s=0.0)
    left = subprocess.Popen(["sleep", "100"], env={**os.environ, **marks})
    try:
        reasons = wait_until(
            lambda: [why for why in removed(context, ("run", "r1")).values() if why != LINGERS]
        )
        assert reasons == ["processes of the run are alive"]
    finally:
        left.kill()
        left.wait()
    assert removed(context, ("run", "r1")) == {"r1": ""}


def test_a_part_of_another_host_that_has_not_ended_protects_the_run(host: SessionContext) -> None:
    folder = a_run(host, "r1")
    a_run(host, "r1", "committed", on="n2")
    assert listed(host)["run", "r1"] == "the run has not ended on n2"
    lock = FileLock(str(folder / "hosts/n1/minder.lock"))
    assert lock.acquire()
    assert removed(host, ("run", "r1"))["r1"] == LINGERS
    lock.release()
    assert removed(host, ("run", "r1"))["r1"] == "the run has not ended on n2" and folder.exists()
    a_run(host, "r1", on="n2")
    assert removed(host, ("run", "r1")) == {"r1": ""} and not folder.exists()
    assert removed(host, ("run", "r1")) == {"r1": clean.GONE}


def test_a_run_with_a_damaged_part_stays_and_so_does_one_that_is_prepared_now(
    host: SessionContext,
) -> None:
    write(a_run(host, "r1") / "hosts/n1/state.json", '{"phase": 7}')
    partial = write(Path(host.workdir, JOB, "runs/r2/hosts/n3/word.abort"))
    lock = FileLock(str(Path(host.workdir, JOB, "locks/prepare.n3")))
    assert lock.acquire()
    items = listed(host)
    assert (
        "damaged" in items["run", "r1"] and items["run", "r2"] == "the run is being prepared on n3"
    )
    lock.release()
    assert listed(host)["half", "runs/r2"] == ""
    assert removed(host, ("half", "runs/r2")) == {"runs/r2": ""} and not partial.exists()


def test_links_are_not_followed(host: SessionContext, tmp_path: Path) -> None:
    precious = write(tmp_path / "precious/file")
    folder = a_run(host, "r1")
    (folder / "cwd/out").symlink_to(precious.parent)
    (Path(host.workdir, JOB, "runs/r2")).symlink_to(precious.parent)
    (Path(host.workdir, JOB, "releases/.gone-x")).symlink_to(precious.parent)
    (Path(host.workdir, JOB, "data/d")).symlink_to(precious.parent)
    write(Path(host.workdir, JOB, "data/d.tfdeploy"))
    assert set(listed(host, named=[])) == {("run", "r1")}
    things = [
        ("run", "r1"),
        ("run", "r2"),
        ("half", "releases/.gone-x"),
        ("data", "d"),
        ("run", "../../../precious"),
    ]
    assert removed(host, *things, named=[])["r1"] == ""
    assert precious.exists() and (Path(host.workdir, JOB, "runs/r2")).is_symlink()


def test_names_lead_nowhere_else(host: SessionContext, tmp_path: Path) -> None:
    precious = write(tmp_path / "precious/file")
    for kind in ("run", "release", "data", "half", "environment", "x"):
        for name in (
            "../../../precious",
            "..",
            ".",
            "",
            "/",
            str(precious.parent),
            "runs/..",
            "runs/../../../precious",
            "keep",
        ):
            asked(host, "clean.remove", job=JOB, things=[[kind, name]])
            asked(host, "clean.workdir", things=[[kind, name]])
    assert precious.exists() and Path(host.workdir, JOB, "keep/ckpt/model").exists()
    with pytest.raises(VerbError):
        asked(host, "clean.remove", job=JOB, things=[["run"]])
    with pytest.raises(VerbError):
        asked(host, "clean.remove", job="../x", things=[])


def test_what_is_foreign_stays_with_the_run_that_has_it(host: SessionContext) -> None:
    foreign = write(a_run(host, "r1") / "notes.txt")
    beside = write(Path(host.workdir, "mine/runs/exp1/events.out"))
    items = listed(host)
    assert "notes.txt" in items["run", "r1"] and not any("exp1" in name for _, name in items)
    assert (
        "notes.txt" in removed(host, ("run", "r1"))["r1"] and foreign.exists() and beside.exists()
    )


@pytest.mark.needs("other accounts")
def test_another_users_file_stays_with_all_around_it(host: SessionContext) -> None:
    folder = a_run(host, "r1")
    os.chown(folder / "cwd/result", 12345, -1)
    assert (
        "belongs to another user" in removed(host, ("run", "r1"))["r1"]
        and (folder / "cwd/result").exists()
    )


def test_a_folder_that_the_program_closed_goes_too(host: SessionContext) -> None:
    folder = a_run(host, "r1")
    write(folder / "cwd/closed/file")
    os.chmod(folder / "cwd/closed", 0o500)
    assert removed(host, ("run", "r1")) == {"r1": ""} and not folder.exists()


def test_releases_go_by_the_rule_of_the_sync(host: SessionContext) -> None:
    releases = Path(host.workdir, JOB, "releases")
    for number in range(8):
        write(releases / f"r{number}/a", "x" * 5000)
        write(releases / f"r{number}.json", "{}")
        for path in (releases / f"r{number}", releases / f"r{number}.json"):
            os.utime(path, (number, number))
    a_run(host, "live", "committed", release="r0")
    a_run(host, "over", release="r1")
    assert {name for kind, name in listed(host) if kind == "release"} == {"r1", "r2"}
    a_run(host, "later", "committed", release="r2")
    assert removed(
        host, ("release", "r0"), ("release", "r1"), ("release", "r2"), ("release", "r7")
    ) == {
        "r0": clean.GONE,
        "r1": "",
        "r2": clean.GONE,
        "r7": clean.GONE,
    }
    assert {path.name for path in releases.iterdir() if path.is_dir()} == {
        "r0",
        "r2",
        "r3",
        "r4",
        "r5",
        "r6",
        "r7",
    }
    assert not (releases / "r1.json").exists()


def test_data_that_is_not_named_goes_but_not_what_a_run_reads(host: SessionContext) -> None:
    data = Path(host.workdir, JOB, "data")
    for name in ("named", "read", "old"):
        write(data / name / "file", "x" * 5000)
        write(data / f"{name}.tfdeploy", "{}")
        write(data / f"{name}.json", "{}")
    write(data / "old.json")
    write(data / ".old.new/half")
    write(data / "foreign/file")
    write(a_run(host, "live", "committed") / "plan.json", json.dumps({"data": {"read": {}}}))
    assert "data" not in {kind for kind, _ in listed(host)}
    kept_data = {
        name: stays
        for (kind, name), stays in listed(host, named=["named"]).items()
        if kind == "data"
    }
    assert kept_data == {"read": "a run that has not ended reads the data set", "old": ""}
    answer = removed(
        host,
        ("data", "named"),
        ("data", "read"),
        ("data", "old"),
        ("data", "foreign"),
        named=["named"],
    )
    assert {name for name, stays in answer.items() if not stays} == {"old"}
    assert {path.name for path in data.iterdir() if path.is_dir()} == {"named", "read", "foreign"}
    assert not list(data.glob("*old*"))


def test_halves_go_but_not_what_a_session_holds(host: SessionContext) -> None:
    staging = write(Path(host.workdir, JOB, "releases/.staging-n1-c0ffee/a")).parent
    run = a_run(host, "r1")
    write(run / "gone-0123/x")
    # A run may have such a name. Its folder must not be taken for a folder to remove.
    a_run(host, "gone-1", "committed")
    assert {name for kind, name in listed(host) if kind == "half"} == {
        "releases/.staging-n1-c0ffee",
        "runs/r1/gone-0123",
    }
    lock = FileLock(str(Path(host.workdir, JOB, "locks/other-0123.lock")))
    assert lock.acquire()
    assert "half" not in {kind for kind, _ in listed(host)}
    assert (
        "another operation"
        in removed(host, ("half", "releases/.staging-n1-c0ffee"))["releases/.staging-n1-c0ffee"]
    )
    assert staging.exists() and lock is not None
    lock.release()
    asked_things = [
        ("half", "releases/.staging-n1-c0ffee"),
        ("half", "runs/r1/gone-0123"),
        ("half", "runs/gone-1"),
    ]
    assert list(removed(host, *asked_things).values())[:2] == ["", ""]
    assert not staging.exists() and Path(host.workdir, JOB, "runs/gone-1").exists()


def an_environment(host: SessionContext, name: str, user: str, at: float) -> Path:
    folder = Path(host.workdir, ".envs", name)
    write(folder / "bin/python")
    write(folder.parent / f"{name}.json", "{}")
    os.utime(write(folder.parent / f"{name}.used/{user}", ""), (at, at))
    return folder


def test_environments_that_no_run_and_no_next_launch_needs_go(host: SessionContext) -> None:
    os.chmod(host.workdir, 0o700)
    old, used, newest = (
        an_environment(host, letter * 16, f"{JOB}@n1", at)
        for letter, at in (("a", 1), ("b", 2), ("c", 3))
    )
    other = an_environment(host, "d" * 16, "other@n1", 0)
    an_environment(host, "e" * 16, "other@n1", 1)
    for path in (other.parent, *other.parent.iterdir()):
        os.chmod(path, 0o700)
    spec = wire.TaskSpec(
        task="worker:0",
        role="worker",
        index=0,
        argv=["x"],
        env={},
        path_prepend=[str(used / "bin")],
    )
    a_run(host, "live", "committed", tasks=[spec])
    assert {name for kind, name in listed(host) if kind == "environment"} == {"a" * 16, "d" * 16}
    assert {name for kind, name in listed(host, jobs=[JOB]) if kind == "environment"} == {"a" * 16}
    names = ["a" * 16, "b" * 16, "c" * 16, "d" * 16]
    lock = FileLock(str(Path(host.workdir, JOB, "locks/other-0123.lock")))
    assert lock.acquire()
    assert (
        lock is not None
        and "another operation"
        in asked(host, "clean.workdir", things=[["environment", names[0]]])[0]["stays"]
    )
    lock.release()
    answer = asked(
        host, "clean.workdir", things=[["environment", name] for name in names], jobs=[JOB]
    )
    assert [row["name"] for row in answer if not row["stays"]] == ["a" * 16]
    assert not list(old.parent.glob("a*")) and used.exists() and newest.exists() and other.exists()


def test_a_removal_that_is_killed_leaves_a_half_that_the_next_one_takes(
    host: SessionContext,
) -> None:
    folder = a_run(host, "r1")
    program = f"""
import os, signal, sys
from tfdeploy.agent.host import removal
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.serve.server import find_verb
removal.remove = lambda path: os.kill(os.getpid(), signal.SIGKILL)
context = SessionContext({host.workdir!r}, "/x", "n1")
find_verb("clean.remove")(Call(context, dict(job="{JOB}", things=[["run", "r1"]])))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert not folder.exists()
    (partial,) = [name for kind, name in listed(host) if kind == "half"]
    assert partial.startswith("runs/.gone-r1-") and ("run", "r1") not in listed(host)
    (left,) = [row for row in find_verb("audit")(Call(host, {}))["left"] if row["kind"] == "half"]  # type: ignore[index, call-overload]
    assert left["path"].endswith(partial)
    assert removed(host, ("half", partial)) == {partial: ""} and listed(host) == {}


def test_of_two_removals_at_once_each_thing_goes_once(host: SessionContext) -> None:
    for number in range(30):
        a_run(host, f"r{number}")
    things = [("run", f"r{number}") for number in range(30)]
    outcomes: list[dict[str, str]] = [{}, {}]

    def clean(which: int) -> None:
        outcomes[which] = removed(
            SessionContext(host.workdir, host.agent_dir, f"n{which}"), *things
        )

    both = [threading.Thread(daemon=True, target=clean, args=(which,)) for which in (0, 1)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    once = [[name for name, stays in answer.items() if not stays] for answer in outcomes]
    assert sorted(once[0] + once[1]) == sorted(name for _, name in things)
    assert os.listdir(Path(host.workdir, JOB, "runs")) == []


def test_ten_thousand_files(host: SessionContext) -> None:
    folder = a_run(host, "r1")
    for number in range(10_000):
        (folder / f"cwd/{number}").write_bytes(b"")
    assert listed(host)["run", "r1"] == "" and removed(host, ("run", "r1")) == {"r1": ""}
    assert not folder.exists()


def test_files_with_names_elsewhere_free_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a/one", "x" * 100_000)
    (tmp_path / "b").mkdir()
    os.link(tmp_path / "a/one", tmp_path / "b/one")
    os.link(tmp_path / "b/one", tmp_path / "b/two")
    assert removal.bytes_freed_by_removal(str(tmp_path / "b")) < 50_000
    os.unlink(tmp_path / "a/one")
    assert 100_000 <= removal.bytes_freed_by_removal(str(tmp_path / "b")) < 150_000


def test_what_is_mounted_inside_stays_also_from_the_same_file_system(
    host: SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bind mount from the same file system has the same st_dev as the folder around it. So the
    mount can be found only in the list of mounts.
    """
    folder = a_run(host, "r1")
    precious = write(folder / "cwd/in side/precious").parent
    row = ["/dev/sda1", str(precious), "ext4", "rw"]
    monkeypatch.setattr(removal, "read_mounts", lambda: [["proc", "/proc", "proc", "rw"], row])
    assert "a file system is mounted on this path" in listed(host)["run", "r1"]
    assert str(precious) in removed(host, ("run", "r1"))["r1"]
    assert (precious / "precious").exists()
    row[1] = f"{folder}-not"
    assert removed(host, ("run", "r1")) == {"r1": ""} and not folder.exists()


# --- `clean --everything`, which removes all files of tfdeploy in a workdir


@pytest.fixture
def full(host: SessionContext) -> SessionContext:
    """Return a host whose workdir has each kind of file that tfdeploy may write there."""
    a_run(host, "r1")
    write(Path(host.workdir, JOB, "releases/r0/a"))
    write(Path(host.workdir, ".agent/0123/tfdeploy/agent/main.py"))
    write(Path(host.workdir, ".indoubt/x"))
    write(Path(host.workdir, ".audit/n1/log.jsonl"), "")
    an_environment(host, "a" * 16, f"{JOB}@n1", 1)
    for path in (Path(host.workdir), *Path(host.workdir).glob(".*")):
        os.chmod(path, 0o700)
    return host


def everything(context: SessionContext) -> dict[str, str]:
    answer = asked(context, "clean.everything", holder=HOLDER)
    return {f"{row['kind']} {row['name']}": row["stays"] for row in answer}


def test_everything_leaves_nothing(full: SessionContext) -> None:
    kinds = {kind for kind, _ in listed(full, everything=True)}
    assert kinds == {
        "run",
        "releases",
        "data",
        "keep",
        "environments",
        "rest",
        "audit log",
        "agent",
    }
    assert set(everything(full).values()) == {""}
    assert not os.path.exists(full.workdir) and full.closing_functions == {}
    # The second call stands for another host that shares the workdir.
    assert everything(full) == {}


def test_everything_leaves_what_is_foreign(full: SessionContext) -> None:
    foreign = [f"{JOB}/notes", f"{JOB}/runs/r1/notes", "mine/runs/x", "notes"]
    for path in foreign:
        write(Path(full.workdir, path))
    Path(full.workdir, "link").symlink_to("/")
    everything(full)
    left = {
        str(path.relative_to(full.workdir))
        for path in Path(full.workdir).rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    assert left == {*foreign, "link"}


@pytest.mark.parametrize("alive", ["run", "session"])
def test_everything_is_refused_while_something_is_alive(full: SessionContext, alive: str) -> None:
    held = None
    if alive == "run":
        a_run(full, "r2", "committed", on="n2")
    else:
        held = FileLock(str(Path(full.workdir, JOB, "locks/other-0123.lock")))
        assert held.acquire()
    before = sorted(Path(full.workdir).rglob("*"))
    with pytest.raises(VerbError) as caught:
        everything(full)
    assert caught.value.code == ("live_run" if alive == "run" else "locked")
    assert not full.closing_functions
    if held is not None:
        held.release()
    assert set(before) <= set(Path(full.workdir).rglob("*"))


SECRET = {JOB: {"code": ["token.txt", "keys/id"], "data": []}}


def a_release(context: SessionContext, name: str, *paths: str) -> Path:
    folder = Path(layout.release_dir(context.workdir, JOB, name))
    for path in ("train.py", *paths):
        write(folder / path)
    write(folder.with_name(name + ".json"), "{}")
    return folder


def test_a_release_with_a_secret_file_goes_although_it_is_new_but_not_from_under_a_run(
    host: SessionContext,
) -> None:
    holding, plain, used = (
        a_release(host, "r1", "token.txt"),
        a_release(host, "r2"),
        a_release(host, "r3", "keys/id"),
    )
    a_run(host, "live", "running", release="r3")
    releases = {
        name: why
        for (kind, name), why in listed(host, secret_files=SECRET).items()
        if kind == "release"
    }
    assert releases == {
        "r1": "",
        "r3": "the release holds a secret file, but a run that has not ended uses the release",
    }
    gone = removed(
        host, ("release", "r1"), ("release", "r2"), ("release", "r3"), secret_files=SECRET
    )
    assert gone == {"r1": "", "r2": clean.GONE, "r3": releases["r3"]}
    assert (
        not holding.exists()
        and not holding.with_name("r1.json").exists()
        and plain.exists()
        and used.exists()
    )
    assert removed(host, ("release", "r3")) == {"r3": clean.GONE}


def test_a_secret_file_goes_out_of_a_run_that_has_ended_and_no_link_is_followed(
    host: SessionContext,
) -> None:
    ended, live = a_run(host, "r1"), a_run(host, "r2", "running")
    for folder in (ended, live):
        write(folder / "cwd/token.txt")
    target = write(Path(host.agent_dir) / "precious/id")
    os.symlink(target.parent, ended / "cwd/keys")
    kept_files = {
        name: why
        for (kind, name), why in listed(host, secret_files=SECRET).items()
        if kind == "secret file"
    }
    assert (
        kept_files["runs/r1/cwd/token.txt"] == ""
        and kept_files["runs/r2/cwd/token.txt"]
        and len(kept_files) == 2
    )
    things = [
        ("secret file", name) for name in (*kept_files, "runs/r1/cwd/keys/id", "runs/r1/cwd/result")
    ]
    gone = removed(host, *things, secret_files=SECRET)
    assert [name for name, why in gone.items() if not why] == ["runs/r1/cwd/token.txt"]
    assert (
        sorted(os.listdir(ended / "cwd")) == ["keys", "result"]
        and (live / "cwd/token.txt").exists()
        and target.exists()
    )


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a//b", "", "a\0b", 7])
def test_a_path_that_leads_out_is_refused(host: SessionContext, path: object) -> None:
    with pytest.raises(VerbError, match="leads out"):
        listed(host, secret_files={JOB: {"code": [path]}})
