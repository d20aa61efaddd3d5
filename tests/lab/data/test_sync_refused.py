"""Test what `tfdeploy sync` refuses.

The error says why a sync is refused and what to do next. If only one host refuses, that host stays
unchanged, and the other hosts receive everything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.faults.lines import variations
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import host_changed_by_scripts, on_host, set_inventory
from support.lab.releases import job_file, list_host_folder, rows_of
from tfdeploy.lab import Lab
from tfdeploy.lab.isolated import UID

pytestmark = pytest.mark.isolated
MIB = 1 << 20


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


@pytest.mark.fault("17 code or data missing or empty")
def test_a_source_that_is_missing_or_empty_is_refused_and_deletes_nothing(
    operator: Tfdeploy,
) -> None:
    code = job_file(operator, "sources", data={"d": "./data"})
    data = operator.cwd / "data"
    data.mkdir()
    (data / "precious").write_text("1")
    operator.run("sync", "--limit", "n1", exit_code=0)
    before = list_host_folder(operator, "n1", "sources")
    said = {}
    (data / "precious").unlink()
    said["empty data"] = operator.run("sync", "--limit", "n1")
    data.rmdir()
    said["missing data"] = operator.run("sync", "--limit", "n1")
    data.mkdir()
    (data / "precious").write_text("1")
    (code / "train.py").unlink()
    said["empty code"] = operator.run("sync", "--limit", "n1")
    code.rmdir()
    said["missing code"] = operator.run("sync", "--limit", "n1")
    for name, done in said.items():
        assert done.returncode in (2, 3), (name, done.returncode, done.stderr)
        assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr, done.stderr
        assert "next: " in done.stderr and "where: " in done.stderr, done.stderr
    assert list_host_folder(operator, "n1", "sources") == before


@pytest.mark.fault("17 most of a data set deleted here")
def test_most_of_a_data_set_is_deleted_only_with_a_yes(operator: Tfdeploy) -> None:
    job_file(operator, "shrunk", data={"d": "./data"})
    data = operator.cwd / "data"
    data.mkdir()
    for number in range(20):
        (data / f"part-{number}").write_text("1")
    operator.run("sync", "--limit", "n2", exit_code=0)
    before = list_host_folder(operator, "n2", "shrunk/data")
    for number in range(15):
        (data / f"part-{number}").unlink()
    done = operator.run("sync", "--limit", "n[1-2]", exit_code=3)
    assert "lacks 15 of the 20 files that are on n2" in done.stderr and "-y" in done.stderr, (
        done.stderr
    )
    assert list_host_folder(operator, "n2", "shrunk/data") == before
    operator.run("launch", "--mode", "local", "--limit", "n2", "--", "true", exit_code=3)
    operator.run("sync", "--limit", "n[1-2]", "-y", exit_code=0)
    assert {Path(name).name for name in list_host_folder(operator, "n2", "shrunk/data/d")} == {
        f"part-{n}" for n in range(15, 20)
    }


@pytest.mark.fault("17 a folder without our marker")
def test_a_folder_that_is_not_ours_is_refused(operator: Tfdeploy) -> None:
    job_file(operator, "foreign", data={"d": "./data"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/new").write_text("new")
    on_host(
        operator.lab,
        "n1",
        "mkdir -p ~/tfdeploy/foreign/data/d && echo thesis > ~/tfdeploy/foreign/data/d/thesis.tex",
    )
    rows = rows_of(operator.json("sync", "--limit", "n1,n2", exit_code=1))
    assert rows["n2"]["ok"] and not rows["n1"]["ok"]
    assert (
        "/home/lab/tfdeploy/foreign/data/d" in rows["n1"]["error"]
        and "not made by tfdeploy" in rows["n1"]["error"]
    )
    assert on_host(operator.lab, "n1", "cat ~/tfdeploy/foreign/data/d/*") == "thesis"


@pytest.mark.fault("23 rsync missing on one host")
def test_rsync_missing_on_a_host_is_named_with_the_package(operator: Tfdeploy) -> None:
    code = job_file(operator, "norsync")
    # Small code is sent without rsync.
    (code / "large.bin").write_bytes(os.urandom(9 * MIB))
    with host_changed_by_scripts(
        operator.lab,
        "n3",
        'mv "$(command -v rsync)" /root/away',
        f"mv /root/away {shutil.which('rsync')}",
    ):
        rows = rows_of(operator.json("sync", exit_code=3))
        stderr = operator.run("sync", exit_code=3).stderr
    assert [rows[host]["ok"] for host in operator.lab.hosts] == [True, True, False]
    assert "rsync" in rows["n3"]["error"] and re.search(r"next: .*install.* rsync", stderr)


FOLDER = "/home/lab/full"
FULL = f"mkdir -p {FOLDER} && mount -t tmpfs -o size=8m,uid={UID},mode=700 none {FOLDER}"


@pytest.mark.fault("20 no room on one host, for code and for data")
@pytest.mark.parametrize("what", variations(["code", "data"]))
def test_a_full_disk_on_one_host_is_named_and_the_others_complete(
    operator: Tfdeploy, what: str
) -> None:
    code = job_file(
        operator, f"full-{what}", **({"data": {"d": "./data"}} if what == "data" else {})
    )
    big = code if what == "code" else operator.cwd / "data"
    big.mkdir(exist_ok=True)
    (big / "big.bin").write_bytes(os.urandom(12 * MIB))
    set_inventory(operator, defaults={"workdir": f"{FOLDER}/tfdeploy"})
    with host_changed_by_scripts(operator.lab, "n2", FULL, f"umount {FOLDER}"):
        rows = rows_of(operator.json("sync", exit_code=1))
        assert [rows[host]["ok"] for host in operator.lab.hosts] == [True, False, True], rows
        error = rows["n2"]["error"]
        assert re.search(r"needs 1[23]\d{6} bytes more, but only \d+ are free", error), error
        left = on_host(
            operator.lab,
            "n2",
            f"find {FOLDER} -name '*.staging*' -o -name '*partial*' -o -name 'big*'",
        )
        assert left == ""
        stderr = operator.run("sync", exit_code=1).stderr
        assert "n2" in stderr and "workdir" in stderr
    for host in operator.lab.hosts:
        on_host(operator.lab, host, f"rm -rf {FOLDER}", root=True)


@pytest.mark.fault("20 a disk that is full before the agent is there")
@pytest.mark.parametrize(
    ("fill", "free"),
    [
        (f"head -c 12m /dev/zero > {FOLDER}/theirs || true", r"0 KiB and \d+ inodes"),
        (f"mount -o remount,nr_inodes=40 {FOLDER}", r"[1-9]\d+ KiB and \d\d? inodes"),
    ],
    ids=["bytes", "inodes"],
)
def test_a_full_disk_is_named_with_its_folder_and_what_the_agent_needs(
    operator: Tfdeploy, fill: str, free: str
) -> None:
    set_inventory(operator, hosts={"n2": {"workdir": f"{FOLDER}/tfdeploy"}})
    with host_changed_by_scripts(
        operator.lab, "n2", f"{FULL}\n{fill}", f"umount {FOLDER}; rm -rf {FOLDER}"
    ):
        [row] = operator.json("check", "--limit", "n2", exit_code=1)["hosts"]
        [failed] = [each for each in row["checks"] if not each["ok"]]
        form = rf"no space for the agent \(\S+ MiB\): n2 says: \"{FOLDER}/.*, {free} free\""
        assert re.fullmatch(form, failed["detail"]), failed


@pytest.mark.long
@pytest.mark.fault("20 a disk that fills up while files arrive")
def test_a_disk_that_fills_up_while_files_arrive(operator: Tfdeploy) -> None:
    """The disk has enough space when the sync starts. Then another process fills it."""
    code = job_file(operator, "filling")
    for number in range(2):
        # Each file is too large to be sent in a single request.
        (code / f"part{number}.bin").write_bytes(os.urandom(6 * MIB))
    set_inventory(operator, defaults={"workdir": f"{FOLDER}/tfdeploy"})
    with host_changed_by_scripts(
        operator.lab, "n2", FULL.replace("size=8m", "size=16m"), f"umount {FOLDER}; rm -rf {FOLDER}"
    ):
        staging = f"{FOLDER}/tfdeploy/filling/releases/.staging*"
        thief = (
            f"echo up; while ! ls {staging} >/dev/null 2>&1; do :; done; head -c 12m /dev/zero > "
            f"{FOLDER}/theirs"
        )
        with subprocess.Popen(
            host_command(operator.lab, "n2", ["sh", "-c", thief]), stdout=subprocess.PIPE
        ) as stealing:
            assert stealing.stdout is not None and stealing.stdout.readline() == b"up\n"
            rows = rows_of(operator.json("sync", "--limit", "n1,n2", exit_code=1))
        assert rows["n1"]["ok"] and not rows["n2"]["ok"]
        assert re.search(r"disk is full|[Nn]o space left|needs \d+", rows["n2"]["error"]), rows[
            "n2"
        ]
        on_host(operator.lab, "n2", f"rm {FOLDER}/theirs")
        assert operator.json("sync", "--limit", "n1,n2")["ok"]
    on_host(operator.lab, "n1", f"rm -rf {FOLDER}", root=True)


@pytest.mark.fault("25 a sync that would change data under a live run")
def test_a_live_run_keeps_the_data_that_it_began_with(operator: Tfdeploy) -> None:
    job_file(operator, "reading", data={"d": "./data"}, ready={"after": "300ms"})
    (operator.cwd / "data").mkdir()
    (operator.cwd / "data/shard").write_text("old")
    program = operator.cwd / "code/train.py"
    program.write_text("import time\ntime.sleep(1000)\n")
    run = operator.run("launch", "--detach", "--limit", "n1,n2", exit_code=0).stdout.strip()
    shown = "cat ~/tfdeploy/reading/data/d/shard"
    try:
        (operator.cwd / "data/shard").write_text("new")
        rows = rows_of(operator.json("sync", exit_code=0))
        assert all(rows[host]["bytes_sent"] for host in operator.lab.hosts)
        assert [on_host(operator.lab, host, shown) for host in operator.lab.hosts] == [
            "old",
            "old",
            "new",
        ]
        assert not any(row["bytes_sent"] for row in operator.json("sync", exit_code=0)["hosts"])
    finally:
        operator.run("stop", run, exit_code=0)
    assert not any(row["bytes_sent"] for row in operator.json("sync", exit_code=0)["hosts"])
    assert [on_host(operator.lab, host, shown) for host in operator.lab.hosts] == ["new"] * 3


PREMADE = (
    "mkdir -p -m 1777 /scratch && mkdir -p -m 777 /scratch/tfdeploy/.agent && chown -R 4711 "
    "/scratch/tfdeploy"
)


@pytest.mark.fault("60 a workdir that another user made first")
def test_a_workdir_that_another_user_made_first_is_refused_there_alone(operator: Tfdeploy) -> None:
    job_file(operator, "premade")
    set_inventory(operator, hosts={"n2": {"workdir": "/scratch/tfdeploy"}})
    before = on_host(operator.lab, "n2", f"{PREMADE} && ls -laR /scratch", root=True)
    try:
        rows = rows_of(operator.json("sync", exit_code=3))
        assert [rows[host]["ok"] for host in ("n1", "n2", "n3")] == [True, False, True], rows
        assert "/scratch/tfdeploy belongs to uid 4711" in rows["n2"]["error"]
        stderr = operator.run("launch", exit_code=3).stderr
        assert (
            "/scratch/tfdeploy" in stderr
            and "write `workdir: ~/tfdeploy` in the inventory" in stderr
            and "Traceback" not in stderr
        )
        assert on_host(operator.lab, "n2", "ls -laR /scratch", root=True) == before
        set_inventory(operator, hosts={"n2": {"workdir": "/scratch/mine"}})
        assert rows_of(operator.json("sync"))["n2"]["ok"]
    finally:
        on_host(operator.lab, "n2", "rm -rf /scratch", root=True)
