"""Test `tfdeploy fetch` on real hosts.

tfdeploy verifies every fetched file, even if a run is still writing it. No host can make tfdeploy
write outside the target folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults.lines import variations
from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy
from support.lab.hosts import set_inventory
from support.lab.jobs import write_job
from support.waiting import wait_for
from tfdeploy.agent.run import keep_folders
from tfdeploy.lab import Lab

JOB = "fetch-ended"
WRITES = ("--write=ckpt/checkpoint", "--write=ckpt/model.ckpt-7.index", "--write=out/result.txt")


@pytest.fixture(scope="module")
def operator(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tfdeploy]:
    made = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("fetch") / "operator")
    yield made
    made.end_all()


@pytest.fixture(scope="module")
def ended(operator: Tfdeploy) -> str:
    """Return a run that has succeeded and written files on all hosts. Each test fetches these files
    to a separate folder.
    """
    write_job(operator, JOB, "vocal.py", *WRITES, keep=["ckpt"])
    return operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()


def workdir(operator: Tfdeploy, host: str) -> Path:
    """Return the host's workdir. On a loopback lab it is a folder of this machine."""
    return Path(operator.lab.root) / "hosts" / host / "home" / "tfdeploy"


def cwd(operator: Tfdeploy, host: str, run: str) -> Path:
    return workdir(operator, host) / JOB / "runs" / run / "cwd"


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_all_of_a_run_comes_back_and_then_nothing_more(operator: Tfdeploy, ended: str) -> None:
    first = operator.json("fetch", ended)
    to = Path(first["to"])
    assert to == operator.cwd / "fetched" / ended
    assert files(to) >= {
        "keep/ckpt/checkpoint",
        "keep/ckpt/model.ckpt-7.index",
        *(f"files/{host}/out/result.txt" for host in ("n1", "n2", "n3")),
        "logs/ps-0@n1.log",
        "logs/worker-0@n2.log",
        "logs/worker-1@n3.log",
    }
    assert (to / "files/n3/out/result.txt").read_text() == "written by worker:1\n"
    assert '"--task_index=1"' in (to / "logs/worker-1@n3.log").read_text()
    assert first["keep_from"] in ("n1", "n2", "n3")
    assert all(row["ok"] and row["files"] for row in first["hosts"])
    again = operator.json("fetch", ended)
    assert [(row["files"], row["bytes_received"]) for row in again["hosts"]] == [(0, 0)] * 3
    assert not list(to.rglob("*.fetching"))
    release = operator.json("launch", "--dry-run")["release"]
    (to / "more").write_text("x")
    # Fetched files are not part of the code, so the release stays the same.
    assert operator.json("launch", "--dry-run")["release"] == release


def test_only_what_is_asked_for_comes_to_where_it_shall(operator: Tfdeploy, ended: str) -> None:
    operator.run("fetch", ended, "--logs", "--to", "logs here", "--limit", "n2", exit_code=0)
    assert files(operator.cwd / "logs here") == {
        ".gitignore",
        "logs/worker-0@n2.log",
        "logs/worker-0@n2.times",
    }
    assert operator.run("fetch", ended, "--keep", "--to", "k", exit_code=0).stdout.strip() == "k"
    assert files(operator.cwd / "k") == {
        ".gitignore",
        "keep/ckpt/checkpoint",
        "keep/ckpt/model.ckpt-7.index",
    }


def test_what_is_left_out_is_neither_asked_nor_shown_and_is_named(
    operator: Tfdeploy, ended: str
) -> None:
    bounds = ("--limit", "n[2-3],ps", "--exclude", "n3")
    status = operator.run("status", ended, *bounds, exit_code=0)
    assert (
        "worker:0" in status.stdout and "ps:0" in status.stdout and "worker:1" not in status.stdout
    )
    assert "n3 was not asked" in status.stderr
    assert {row["task"] for row in operator.json("status", ended, "--limit", "n3")["tasks"]} == {
        "worker:1"
    }
    logs = operator.run("logs", ended, *bounds, exit_code=0)
    assert (
        "@n3 |" not in logs.stdout and "@n2 |" in logs.stdout and "n3 was not asked" in logs.stderr
    )
    runs = operator.run("runs", "--limit", "n3", exit_code=0)
    assert ended in runs.stdout and "n[1-2] were not asked" in runs.stderr
    assert operator.run("logs", ended, "--host", "n1", "--limit", "n2").returncode == 2
    assert "is excluded" in operator.run("tensorboard", ended, "--limit", "n3", exit_code=2).stderr


def test_a_file_that_was_changed_here_is_left_alone(operator: Tfdeploy, ended: str) -> None:
    there = cwd(operator, "n2", ended) / "changing.txt"
    there.write_text("first words")
    operator.run("fetch", ended, "--files", "--to", "c", exit_code=0)
    mine = operator.cwd / "c/files/n2/changing.txt"
    mine.write_text("my own words")
    there.write_text("changed there too")
    os.utime(there, (1_500_000_000, 1_500_000_000))
    completed = operator.run("fetch", ended, "--files", "--to", "c", exit_code=1)
    assert "changing.txt" in completed.stderr
    assert "--overwrite" in completed.stderr
    assert mine.read_text() == "my own words"
    operator.run("fetch", ended, "--files", "--to", "c", "--overwrite", exit_code=0)
    assert mine.read_text() == "changed there too"


@pytest.mark.fault("57 a host that has more than may come")
def test_a_host_that_has_more_than_may_come_is_named_and_the_others_come(
    operator: Tfdeploy, ended: str
) -> None:
    big = cwd(operator, "n2", ended) / "large"
    big.write_bytes(os.urandom(6 << 20))
    try:
        answer = operator.json("fetch", ended, "--files", "--to", "m", "--max", "1MiB", exit_code=1)
        rows = {row["host"]: row for row in answer["hosts"]}
        assert {name: row["ok"] for name, row in rows.items()} == {
            "n1": True,
            "n2": False,
            "n3": True,
        }
        assert "more than --max" in rows["n2"]["error"]
        assert not any(path.startswith("files/n2/") for path in files(operator.cwd / "m"))
        refused = operator.run("fetch", ended, "--to", "all", "--max", "1MiB", exit_code=1).stderr
        assert "the `keep` folders of n2 may be incomplete here" in refused
        assert "which has the newest folders" not in refused
        operator.run("fetch", ended, "--files", "--to", "m", "--max", "7MB", exit_code=0)
        assert (operator.cwd / "m/files/n2/large").read_bytes() == big.read_bytes()
    finally:
        big.unlink()
    assert "is not a size" in operator.run("fetch", ended, "--max", "much", exit_code=2).stderr


def test_a_fetch_goes_on_from_the_half_that_came(operator: Tfdeploy, ended: str) -> None:
    content = os.urandom(8 << 20)
    (cwd(operator, "n1", ended) / "big").write_bytes(content)
    half = operator.cwd / "half/files/.n1.fetching/.tfdeploy-partial/big"
    half.parent.mkdir(parents=True)
    half.write_bytes(content[: 6 << 20])
    rows = {
        row["host"]: row
        for row in operator.json("fetch", ended, "--files", "--to", "half")["hosts"]
    }
    assert (operator.cwd / "half/files/n1/big").read_bytes() == content
    assert 2 << 20 <= rows["n1"]["bytes_received"] < 4 << 20


def test_what_came_damaged_is_fetched_again(operator: Tfdeploy, ended: str) -> None:
    """A file that was damaged on the way must be fetched again, although rsync would skip it: it
    has the size and the time of the host's file, but other content.
    """
    there = cwd(operator, "n3", ended) / "out/result.txt"
    wrong = operator.cwd / "d/files/.n3.fetching/out/result.txt"
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"x" * there.stat().st_size)
    os.utime(wrong, ns=(there.stat().st_atime_ns, there.stat().st_mtime_ns))
    operator.run("fetch", ended, "--files", "--to", "d", exit_code=0)
    assert (operator.cwd / "d/files/n3/out/result.txt").read_text() == "written by worker:1\n"


def test_a_log_goes_on_where_it_ended_and_one_that_is_not_the_host_s_is_said(
    operator: Tfdeploy, ended: str
) -> None:
    command = ("fetch", ended, "--logs", "--to", "l")
    operator.run(*command, exit_code=0)
    log = operator.cwd / "l" / "logs/worker-0@n2.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:100])
    rows = {row["host"]: row for row in operator.json(*command)["hosts"]}
    assert log.read_bytes() == whole
    assert rows["n2"]["bytes_received"] == len(whole) - 100
    log.write_bytes(b"?" * 100)
    completed = operator.run(*command, exit_code=1)
    assert "n2" in completed.stderr
    assert "move worker-0@n2.log away" in completed.stderr


def fetch_live_run(operator: Tfdeploy, run: str, to: str) -> None:
    """Fetch from saving.py. If it saves faster than this machine can fetch, make it slower."""
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0):
        done = operator.run("fetch", run, "--keep", "--logs", "--to", to)
        if done.returncode == 0:
            return
        assert "files keep changing while they are fetched" in done.stdout + done.stderr, done
        pause = workdir(operator, "n2") / "fetch-live/runs" / run / "cwd/pause"
        pause.write_text(f"{pause_s}\n")
    raise AssertionError(done.stderr)


def test_a_checkpoint_fetched_while_it_is_replaced_is_whole(operator: Tfdeploy) -> None:
    write_job(operator, "fetch-live", "saving.py", keep=["ckpt"])
    run = operator.run("launch", "-q", exit_code=0).stdout.strip()
    try:
        saved = workdir(operator, "n2") / "fetch-live/keep/ckpt/checkpoint"
        wait_for(saved.exists, 60, "the first checkpoint")
        for number in range(3):
            to = operator.cwd / f"live-{number}"
            fetch_live_run(operator, run, str(to))
            named = (to / "keep/ckpt/checkpoint").read_text().split('"')[1].rpartition("-")[2]
            assert (to / f"keep/ckpt/model.ckpt-{named}.data").read_text().split() == [named] * 1000
            assert (to / f"keep/ckpt/model.ckpt-{named}.index").read_text() == named
            assert (to / "logs/worker-0@n2.log").read_text().startswith("step 1\n")
    finally:
        operator.run("stop", run, "--now", exit_code=0)


@pytest.mark.fault("48 a log whose beginning is gone")
def test_a_log_whose_beginning_was_rotated_away_says_so_by_its_name(operator: Tfdeploy) -> None:
    write_job(operator, "fetch-rotated", "flood.py", "--lines=4000", logs={"max": "100KiB"})
    run = operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()
    operator.run("fetch", run, "--logs", "--to", "r", exit_code=0)
    log = next((operator.cwd / "r/logs").glob("worker-1@n3*.log"))
    offset = int(log.name.partition(".from-")[2].removesuffix(".log"))
    assert offset > 100 << 10
    content = log.read_bytes()
    assert b"worker:1 line 4000 " in content
    assert b"worker:1 line 10 " not in content
    answer = operator.json("fetch", run, "--logs", "--to", "r")
    assert all(row["bytes_received"] == 0 for row in answer["hosts"])
    assert log.read_bytes() == content


# {text in the error: the lie that the host tells}
LIES = {
    "leads out": 'make_row = lambda root, path: ("../../evil", 3, 1, None)',
    "is invalid": "make_row = lambda root, path: (path, -1, 1, None)",
    "occurs twice": 'make_row = lambda root, path: ("same", 3, 1, None)',
}


@pytest.mark.fault("57 lists of files that lead out or make no sense")
@pytest.mark.parametrize("args", variations(list(LIES)))
def test_a_host_that_lies_about_its_files_is_refused_and_the_others_come(
    operator: Tfdeploy, ended: str, args: str
) -> None:
    before = files(operator.home)
    with tampered_agent(operator.lab, "n3", {keep_folders: LIES[args]}):
        answer = operator.json(
            "fetch", ended, "--files", "--keep", "--to", f"lie {args}", exit_code=1
        )
    rows = {row["host"]: row for row in answer["hosts"]}
    assert rows["n3"]["error"]
    assert args in rows["n3"]["error"]
    assert rows["n2"]["ok"]
    new = files(operator.home) - before
    allowed = ("keep/", "files/n1/", "files/n2/", ".gitignore")
    assert {
        path
        for path in new
        if not path.startswith(tuple(f"work/lie {args}/{part}" for part in allowed))
    } == set()


PLANTED = (
    "files",
    "files/n3",
    "files/.n3.fetching",
    "files/n3/out",
    "logs",
    "logs/worker-1@n3.log",
)


@pytest.mark.fault("56 links where a fetch writes")
@pytest.mark.parametrize("planted", variations(PLANTED))
def test_a_link_where_a_fetch_writes_is_not_followed(
    operator: Tfdeploy, ended: str, tmp_path: Path, planted: str
) -> None:
    outside, to = tmp_path / "outside", operator.cwd / ("to " + planted.replace("/", " "))
    outside.mkdir()
    (to / planted).parent.mkdir(parents=True)
    (to / planted).symlink_to(outside / "log" if planted.endswith(".log") else outside)
    stderr = operator.run("fetch", ended, "--files", "--logs", "--to", str(to), exit_code=3).stderr
    assert "a link is in the way" in stderr and planted.rpartition("/")[2] in stderr
    assert not list(outside.iterdir())
    if "/" in planted:
        assert "files/n2/out/result.txt" in files(to)


@pytest.mark.fault("57 a plan that a host changed")
def test_who_launched_elsewhere_is_led_astray_by_no_plan(
    operator: Tfdeploy, ended: str, tmp_path: Path
) -> None:
    write_job(operator, JOB, "vocal.py", *WRITES, keep=["ckpt"])
    # With these variables, tfdeploy runs as on a machine without a record of the run.
    elsewhere = {"XDG_STATE_HOME": str(tmp_path)}
    on_n1 = workdir(operator, "n1") / JOB / "runs" / ended / "plan.json"
    honest = on_n1.read_text()
    before = files(operator.home)
    try:
        on_n1.write_text(honest.replace('"host":"n3"', '"host":"../../../../.ssh"'))
        stderr = operator.run("fetch", ended, "--to", "astray", exit_code=1, env=elsewhere).stderr
        assert f"[n1] the host's plan of {ended} is invalid" in stderr
        new = files(operator.home) - before - {"work/astray/.gitignore"}
        assert new >= {"work/astray/files/n3/out/result.txt", "work/astray/logs/ps-0@n1.log"}
        assert all(
            path.startswith(("work/astray/keep/", "work/astray/files/n", "work/astray/logs/"))
            for path in new
        )
        on_n1.write_text(honest.replace('"stop_grace_s":', '"stop_grace_s":1'))
        for verb in ("status", "logs", "fetch"):
            stderr = operator.run(verb, ended, exit_code=1, env=elsewhere).stderr
            assert f"2 different plans of {ended}: plan 1 is on n1; plan 2 is on n[2-3]" in stderr
        assert "2 different plans" in operator.run("runs", exit_code=0, env=elsewhere).stderr
        stopped = operator.run("stop", ended, "--json", exit_code=0, env=elsewhere)
        assert [row["host"] for row in json.loads(stopped.stdout)["hosts"]] == ["n1", "n2", "n3"]
    finally:
        on_n1.write_text(honest)
    other = tmp_path / "other.yaml"
    other.write_text(Path(operator.lab.inventory).read_text().replace("n3", "n8"))
    completed = operator.run("status", ended, "-i", str(other), exit_code=4, env=elsewhere)
    assert "[n3] the inventory" in completed.stderr and "worker:0" in completed.stdout


def test_a_link_that_leads_out_stays_there_and_a_near_one_comes(
    operator: Tfdeploy, ended: str
) -> None:
    out = cwd(operator, "n3", ended) / "links"
    out.mkdir()
    (out / "result.txt").write_text("here")
    (out / "passwd").symlink_to("/etc/passwd")
    (out / "up").symlink_to("../../../../plan.json")
    (out / "near").symlink_to("result.txt")
    answer = operator.json("fetch", ended, "--files", "--to", "n")
    here = operator.cwd / "n/files/n3/links"
    assert sorted(path.name for path in here.iterdir()) == ["near", "result.txt"]
    assert os.readlink(here / "near") == "result.txt"
    row = next(row for row in answer["hosts"] if row["host"] == "n3")
    assert sorted(row["left_there"]) == ["links/passwd", "links/up"]


def test_a_host_that_is_off_is_named_and_the_others_come(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(new_lab("loopback", 2))
    write_job(operator, "fetch-off", "vocal.py", *WRITES, keep=["ckpt"])
    run = operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()
    operator.lab.kill("n2")
    answer: Any = operator.json("fetch", exit_code=4)
    assert {row["host"]: row["ok"] for row in answer["hosts"]} == {"n1": True, "n2": False}
    assert "logs/ps-0@n1.log" in files(operator.cwd / "fetched" / run)
    completed = operator.run("fetch", exit_code=4)
    assert "n2" in completed.stderr
    shutil.rmtree(workdir(operator, "n1") / "fetch-off/keep")
    completed = operator.run("fetch", "--keep", exit_code=4)
    assert "the `keep` folders on the hosts that answered are still empty" in completed.stderr


def test_what_cannot_be_meant_is_refused(operator: Tfdeploy, ended: str) -> None:
    assert "no run" in operator.run("fetch", "nosuchrun", exit_code=2).stderr
    (operator.cwd / "blocked").write_text("a file")
    answer = json.loads(
        operator.run("fetch", ended, "--json", "--to", "blocked", exit_code=3).stdout
    )
    assert all("write here" in row["error"] for row in answer["hosts"])
    assert (
        hashlib.sha256((operator.cwd / "blocked").read_bytes()).hexdigest()
        == hashlib.sha256(b"a file").hexdigest()
    )


@pytest.mark.parametrize("ps", [["n1", "n2"], ["n1"]], ids=["another role", "no role"])
def test_the_line_that_a_refused_launch_gives_brings_keep_to_where_training_goes_on(
    operator: Tfdeploy, ps: list[str]
) -> None:
    inventory = operator.env["TFDEPLOY_INVENTORY"]
    write_job(operator, f"fetch-onto-{len(ps)}", "events.py", keep=["ckpt"])
    try:
        set_inventory(operator, roles={"ps": ["n1"], "worker": ["n2"]})
        operator.run("launch", "--wait", "-q", exit_code=0)
        set_inventory(operator, roles={"ps": ps, "worker": ["n3"]})
        reply = operator.json("launch", "--wait", exit_code=3)["error"]
        line = next(
            words for words in reply["next"].split("`") if words.startswith("tfdeploy fetch")
        )
        answer = operator.json(*line.split()[1:])
        assert (answer["keep_from"], answer["onto"]) == ("n2", "n3")
        assert "continues from ckpt" in operator.run("launch", "--wait", exit_code=0).stderr
        again = operator.json(*line.split()[1:])
        assert again["keep_from"] == "n3"
        assert (
            "only the newest `keep` folders"
            in operator.run("fetch", "--logs", "--onto", "n3", exit_code=2).stderr
        )
        assert "no host" in operator.run("fetch", "--onto", "n9", exit_code=2).stderr
    finally:
        operator.env["TFDEPLOY_INVENTORY"] = inventory
