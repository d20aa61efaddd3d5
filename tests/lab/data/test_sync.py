"""Test that `tfdeploy sync` makes the files on real hosts equal to the source, whatever their
names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable

import pytest

from support.files.odd_tree import write_names
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.releases import job_file, list_host_folder, list_local_folder, list_releases
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
MIB = 1 << 20
# All processes of a sync together may use at most this much memory.
MOST_KIB = 150 * 1024


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def contents(rows: dict[str, list[str]]) -> dict[str, str]:
    return {path: row[-1] for path, row in rows.items()}


@pytest.mark.fault("18 spaces, quotes, newlines, dashes, no UTF-8, emoji")
def test_odd_names_are_identical_at_the_far_end(operator: Tfdeploy) -> None:
    data = operator.cwd / "data of mine"
    data.mkdir()
    write_names(data)
    code = job_file(operator, "odd", data={"d": "./data of mine"})
    write_names(code)
    answer = operator.json("sync")
    assert answer["ok"]
    release = answer["hosts"][0]["release"]
    for host in operator.lab.hosts:
        assert list_host_folder(operator, host, f"odd/releases/{release}") == list_local_folder(
            code
        )
        assert contents(list_host_folder(operator, host, "odd/data/d")) == contents(
            list_local_folder(data)
        )
    again = operator.run("sync", exit_code=0)
    assert "n[1-4]: had everything already" in again.stderr


def test_a_dry_run_says_what_each_host_would_get(operator: Tfdeploy) -> None:
    (operator.cwd / "digits").write_bytes(bytes(5000))
    job_file(operator, "forecast", data={"d": "./digits"})
    stdout = operator.run("sync", "--dry-run", "--limit", "n1", exit_code=0).stdout
    assert re.search(r"^n1 +[\d.]+ kB +code [\d.]+ k?B, data d 5.0 kB", stdout, re.M), stdout
    job_file(operator, "forecast-2")
    stdout = operator.run("sync", "--dry-run", "--limit", "n1", exit_code=0).stdout
    assert re.search(r"^n1 +[\d.]+ k?B +code +here", stdout, re.M), stdout


def test_the_json_of_a_sync(operator: Tfdeploy) -> None:
    job_file(operator, "shape")
    answer = operator.json("sync", "--limit", "n1,n2")
    assert answer.keys() == {"ok", "hosts", "broadcasts"} and answer["ok"] is True
    assert [row["host"] for row in answer["hosts"]] == ["n1", "n2"]
    for row in answer["hosts"]:
        assert row.keys() == {"host", "ok", "release", "bytes_sent", "from", "seconds", "error"}
        assert (
            row["ok"] is True
            and row["bytes_sent"] > 0
            and row["seconds"] > 0
            and row["error"] is None
        )
    again = operator.json("sync", "--limit", "n1,n2")
    assert [row["bytes_sent"] for row in again["hosts"]] == [0, 0]


IGNORE = {
    ".gitignore": "/build/*\n!/build/keep.txt\n*.log\n*.tmp\n",
    "deep/.gitignore": "!*.log\nbuild/\n",
}
SENT = ("kept.py", "gone.py", "build/keep.txt", "deep/logs/a.log")
NOT_SENT = (
    "build/out.o",
    "deep/build/out.o",
    "logs/a.log",
    "x.tmp",
    ".venv/pyvenv.cfg",
    "__pycache__/a.pyc",
    ".git/x",
)


@pytest.mark.fault("26 deleted here, negation and anchors of .gitignore")
def test_deleted_here_is_gone_in_the_next_release_and_what_git_ignores_is_never_sent(
    operator: Tfdeploy,
) -> None:
    code = job_file(operator, "ignored")
    for name in (*SENT, *NOT_SENT, *IGNORE):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(IGNORE.get(name, name))
    first = operator.json("sync", "--limit", "n1")["hosts"][0]["release"]
    assert {path[2:] for path in list_host_folder(operator, "n1", f"ignored/releases/{first}")} == {
        *SENT,
        *IGNORE,
        "train.py",
    }
    (code / "gone.py").unlink()
    second = operator.json("sync", "--limit", "n1")["hosts"][0]["release"]
    assert {
        path[2:] for path in list_host_folder(operator, "n1", f"ignored/releases/{second}")
    } == {
        *SENT,
        *IGNORE,
        "train.py",
    } - {"gone.py"}
    assert "./gone.py" in list_host_folder(operator, "n1", f"ignored/releases/{first}")


def test_a_release_keeps_what_it_was_when_a_later_one_shares_its_files(operator: Tfdeploy) -> None:
    code = job_file(operator, "shared")
    (code / "big.bin").write_bytes(os.urandom(100_000))
    first = operator.json("sync", "--limit", "n1")["hosts"][0]
    before = list_host_folder(operator, "n1", f"shared/releases/{first['release']}")
    (code / "train.py").write_text("print('changed')\n")
    (code / "big.bin").chmod(0o755)
    second = operator.json("sync", "--limit", "n1")["hosts"][0]
    assert list_host_folder(operator, "n1", f"shared/releases/{first['release']}") == before
    assert list_host_folder(
        operator, "n1", f"shared/releases/{second['release']}"
    ) == list_local_folder(code)
    (code / "train.py").write_text("print('here')\n")
    (code / "big.bin").chmod(0o644)
    third = operator.json("sync", "--limit", "n1")["hosts"][0]
    assert (third["release"], third["bytes_sent"]) == (first["release"], 0)


def test_five_releases_stay(operator: Tfdeploy) -> None:
    code = job_file(operator, "five")
    made = []
    for number in range(7):
        (code / "version").write_text(str(number))
        made.append(operator.json("sync", "--limit", "n1")["hosts"][0]["release"])
    assert set(list_releases(operator, "n1", "five")) == set(made[-5:])


def test_data_sets_of_every_kind(operator: Tfdeploy) -> None:
    code = job_file(
        operator,
        "kinds",
        data={"folder": "./outside", "file": "./one.npz", "inside": "./code/shards"},
    )
    outside = operator.cwd / "outside"
    for path, text in (
        (outside / "sub/a", "a"),
        (outside / "b", "b"),
        (operator.cwd / "one.npz", "n"),
        (code / "shards/s0", "s"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    release = operator.json("sync", "--limit", "n1")["hosts"][0]["release"]
    assert list_host_folder(operator, "n1", "kinds/data/folder").keys() == {"./b", "./sub/a"}
    assert list_host_folder(operator, "n1", "kinds/data/file").keys() == {"./one.npz"}
    assert list_host_folder(operator, "n1", "kinds/data/inside").keys() == {"./s0"}
    assert list_host_folder(operator, "n1", f"kinds/releases/{release}").keys() == {"./train.py"}
    (outside / "b").unlink()
    (outside / "c").write_text("c")
    operator.run("sync", "--limit", "n1", exit_code=0)
    assert list_host_folder(operator, "n1", "kinds/data/folder").keys() == {"./c", "./sub/a"}


@pytest.mark.fault("22 links that lead out of the tree")
def test_links_that_lead_out_are_reported_and_not_followed(operator: Tfdeploy) -> None:
    code = job_file(operator, "links")
    (operator.cwd / "secret").write_text("not yours")
    (code / "out").symlink_to("../secret")
    (code / "inside").symlink_to("train.py")
    done = operator.run("sync", "--limit", "n1", exit_code=0)
    assert re.search(r"warning: .*\bout\b", done.stderr), done.stderr
    (release,) = list_releases(operator, "n1", "links")
    remote_listing = list_host_folder(operator, "n1", f"links/releases/{release}")
    assert remote_listing["./inside"] == ["link", "train.py"]
    assert remote_listing.get("./out", ["link"])[0] == "link"


@pytest.mark.fault("22 checkpoints and logs inside the code folder are kept")
def test_what_a_run_keeps_inside_the_code_is_never_sent_and_never_deleted(
    operator: Tfdeploy,
) -> None:
    code = job_file(operator, "keeps", keep=["checkpoints", "logs/events"])
    for path in ("checkpoints/mine", "logs/events/mine", "logs/other"):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text("here")
    there = "~/tfdeploy/keeps/keep"
    on_host(
        operator.lab,
        "n1",
        f"mkdir -p {there}/checkpoints {there}/logs/events; echo theirs > "
        f"{there}/checkpoints/theirs",
    )
    for _ in range(2):
        release = operator.json("sync", "--limit", "n1")["hosts"][0]["release"]
        sent = {path[2:] for path in list_host_folder(operator, "n1", f"keeps/releases/{release}")}
        assert sent == {"train.py", "logs/other"}
        assert on_host(operator.lab, "n1", f"cat {there}/checkpoints/theirs") == "theirs"
        (code / "train.py").write_text("print('again')\n")
    assert (code / "checkpoints/mine").exists()


PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@pytest.mark.fault("24 thousands of small files, a sparse one, memory bounded")
def test_thousands_of_small_files_and_a_sparse_one(operator: Tfdeploy) -> None:
    data = operator.cwd / "data"
    for number in range(3000):
        path = data / f"{number // 100}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    with (data / "sparse").open("wb") as file:
        file.truncate(200 * MIB)
    job_file(operator, "many", data={"many": "./data"})
    peak = operator.home / "peak"
    command = [
        "/usr/bin/env",
        "python3",
        "-c",
        PEAK,
        str(peak),
        *operator.argv("sync", "--json", "--limit", "n1"),
    ]
    done = subprocess.run(
        command,
        env=operator.env,
        cwd=operator.cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(peak.read_text()) < MOST_KIB
    row = json.loads(done.stdout)["hosts"][0]
    assert row["ok"] and row["bytes_sent"] > 3000
    assert on_host(operator.lab, "n1", "find ~/tfdeploy/many/data/many -type f | wc -l") == "3001"
    assert on_host(operator.lab, "n1", "stat -c %s ~/tfdeploy/many/data/many/sparse") == str(
        200 * MIB
    )
    on_host(operator.lab, "n1", "rm -rf ~/tfdeploy/many")
