"""Test files that another account on the host has put into the workdir. None of them is executed,
nothing is written, and the error says how to repair the workdir.

In these tests root owns the workdir and starts the agent. So the kernel's file permissions do not
protect the agent, and only its own checks do.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import NewClient
from support.agent.interpreter import AGENT_PYTHON
from support.agent.second_account import (
    AGENT,
    FILES,
    FOLDERS,
    FOREIGN,
    INNER,
    OF_FILES,
    OF_FOLDERS,
    STRANGER,
    WITHIN_S,
    arrive,
    bytecode,
    listing,
    mark_workdir_seen,
    spring,
)
from support.faults.lines import params
from tfdeploy.agent import layout, ownership
from tfdeploy.model.answers.failures import format_advice

SERVE = ("serve", "--workdir")
pytestmark = pytest.mark.needs("other accounts")


def planted_bytecode(path: Path, trap: Path) -> None:
    """Replace the code in a bytecode file by forbidden code. Python would run that code, because
    the file's header still has the size and the time of the source.
    """
    compiler = (
        "import marshal, sys; sys.stdout.buffer.write(marshal.dumps(compile(sys.argv[1], '', "
        "'exec')))"
    )
    code = subprocess.check_output([AGENT_PYTHON, "-c", compiler, spring(trap)])
    path.write_bytes(path.read_bytes()[:16] + code)
    os.chown(path, STRANGER, STRANGER)


PLANTS = {
    **{
        f"{FOREIGN}: {name}, {how}": (path, plant)
        for name, path in FOLDERS.items()
        for how, plant in OF_FOLDERS.items()
    },
    **{
        f"{FOREIGN}: {name}, {how}": (path, plant)
        for name, path in INNER.items()
        for how, plant in list(OF_FOLDERS.items())[:5]
    },
    **{
        f"{FOREIGN}: {name}, {how}": (path, plant)
        for name, path in FILES.items()
        for how, plant in OF_FILES.items()
    },
    **{
        f"{FOREIGN}: bytecode, {how}": (None, plant)
        for how, plant in {**OF_FILES, "planted": planted_bytecode}.items()
    },
}


@pytest.mark.parametrize(("path", "plant"), params(PLANTS))
def test_what_another_user_planted_is_refused(
    workdir: Path, trap: Path, path: str | None, plant: Any
) -> None:
    mark_workdir_seen(workdir)
    plant(workdir / path if path is not None else bytecode(workdir), trap)
    before = listing(workdir.parent)
    kind, said = arrive(workdir)
    assert (kind, said.get("code")) == ("fail", "foreign"), said
    step = format_advice("n1", said["advice"], said["details"])
    assert said["what"].startswith(str(workdir)) and step
    assert not trap.exists() and listing(workdir.parent) == before
    if not step.startswith("write "):
        subprocess.run(shlex.split(step.strip("`").partition(" -- ")[2]), check=True)
        for second in trap.parent.glob("*second-name"):
            second.unlink()
        assert arrive(workdir)[0] in ("have", "need")
        assert not trap.exists() and arrive(workdir) == ("have", {})


def test_a_file_that_was_replaced_between_two_looks_has_no_second_name(tmp_path: Path) -> None:
    path = tmp_path / "some.pyc"
    with path.open("wb") as file:
        path.unlink()
        about = os.fstat(file.fileno())
    assert about.st_nlink == 0
    ownership._check_entry(about, str(path), str(tmp_path), stat.S_IFREG)


@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [
        (0o777, 0, "may be written to by others (mode 0777)"),
        (0o775, 0, "mode 0775"),
        (0o1777, STRANGER, "belongs to"),
    ],
)
def test_a_folder_above_it_in_which_others_may_replace_it(
    tmp_path: Path, mode: int, owner: int, words: str
) -> None:
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    os.chown(above, owner, owner)
    above.chmod(mode)
    for workdir in (above / "tfdeploy", above / "mine/tfdeploy"):
        kind, said = arrive(workdir)
        assert (
            kind == "fail"
            and words in said["what"]
            and str(workdir) in said["what"]
            and format_advice("n1", said["advice"], said["details"])
        )
        assert not workdir.exists()


def test_links_above_it_are_followed_with_the_same_eyes(tmp_path: Path) -> None:
    (tmp_path / "real/home").mkdir(parents=True)
    (tmp_path / "home").symlink_to("real/../real/home")
    assert arrive(tmp_path / "home/tfdeploy")[0] == "need"
    assert arrive(tmp_path / "home/tfdeploy")[0] == "have"
    (tmp_path / "real").chmod(0o777)
    assert arrive(tmp_path / "home/tfdeploy")[0] == "fail"
    (tmp_path / "real").chmod(0o755)
    os.lchown(tmp_path / "home", STRANGER, STRANGER)
    assert "belongs to" in arrive(tmp_path / "home/tfdeploy")[1]["what"]


def test_a_link_of_the_users_own_is_answered_with_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(0o700)
    (tmp_path / "tfdeploy").symlink_to("disk")
    said = arrive(tmp_path / "tfdeploy")[1]
    assert (
        format_advice("n1", said["advice"], said["details"])
        == f"write `workdir: {tmp_path}/disk` in the inventory"
    )


def test_a_home_whose_owners_the_file_server_changes_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "tfdeploy").mkdir(0o700)
    for path in (tmp_path, tmp_path / "tfdeploy"):
        os.chown(path, 65534, 65534)
    kind, said = arrive(tmp_path / "tfdeploy", env={"HOME": str(tmp_path)})
    assert kind == "fail" and said["code"] == "foreign"
    os.chown(tmp_path, 0, 0)
    said = arrive(tmp_path / "tfdeploy", env={"HOME": str(tmp_path)})[1]
    assert "the file server changes the owners" in said["what"] and "local disk" in str(
        format_advice("n1", said["advice"], said["details"])
    )


def test_an_ordinary_users_workdir_beside_others(installed: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no interpreter that another account may run")
    place = installed.parent / "theirs"
    how = {
        "user": STRANGER,
        "group": STRANGER,
        "extra_groups": [],
        "cwd": "/",
        "env": {"HOME": "/nonexistent"},
    }
    assert arrive(place, python, **how) == ("need", {})
    assert arrive(place, python, **how) == ("have", {})
    # The workdir does not belong to root, who starts the agent here.
    assert arrive(place)[1]["code"] == "foreign"
    os.chown(place, STRANGER + 1, STRANGER + 1)
    assert "belongs to" in arrive(place, python, **how)[1]["what"]


OF_A_RUN = [
    "job",
    *(f"job/{name}" for name in ("releases", "data", "keep", "locks", "runs")),
    "job/runs/r1",
    "job/runs/r1/hosts",
]
OF_A_RUN += ["job/runs/r1/hosts/n1", "job/runs/r1/hosts/n1/tasks"]
OF_A_TASK = [*OF_A_RUN, "job/runs/r1/hosts/n1/tasks/worker-0"]


@pytest.fixture
def run(workdir: Path, trap: Path) -> Path:
    """Write the files of a run. The task of the run is forbidden code, which creates the file
    `trap`.

    The minder (which looks after the run) or the supervisor (the parent process of a task) would
    run the task if it believed these files.
    """
    for path in OF_A_TASK:
        (workdir / path).mkdir(0o700, exist_ok=True)
    folder = Path(layout.host_dir(str(workdir), "job", "r1", "n1"))
    task = {
        "task": "worker:0",
        "role": "worker",
        "index": 0,
        "argv": ["touch", str(trap)],
        "env": {},
    }
    part = {
        "run": "r1",
        "job": "job",
        "mode": "async",
        "host": "n1",
        "plan_digest": "d",
        "release": "r",
        "tasks": [task],
    }
    (folder / "part.json").write_text(json.dumps(part))
    (workdir / "job/runs/r1/cwd").mkdir()
    return folder


@pytest.mark.fault(f"{FOREIGN}: a part of a job")
@pytest.mark.parametrize("path", OF_A_RUN)
@pytest.mark.parametrize("how", ["another user's", "for all to write", "a link"])
def test_a_foreign_part_of_a_job_is_refused_to_serve_and_minder(
    run: Path, workdir: Path, trap: Path, serve: NewClient, path: str, how: str
) -> None:
    OF_FOLDERS[how](workdir / path, trap)
    before = listing(workdir / "job")
    client = serve(at=workdir)
    error = client.call("run.status", job="job", run="r1")["error"]
    assert (
        error["code"] == "refused"
        and str(workdir / path) in error["what"]
        and format_advice("n1", error["advice"], error["details"])
    )
    if path.startswith("job/runs") or path == "job":
        done = start(workdir, "minder", str(run))
        assert done.returncode == 3 and str(workdir / path) in done.stderr
    assert listing(workdir / "job") == before and not trap.exists()


@pytest.mark.fault(f"{FOREIGN}: a task's folder")
@pytest.mark.parametrize("path", [path for path in OF_A_TASK if path.startswith("job/runs")])
def test_a_foreign_folder_of_a_run_is_refused_to_supervise(
    run: Path, workdir: Path, trap: Path, path: str
) -> None:
    (workdir / path).chmod(0o770)
    done = start(workdir, "supervise", str(run), "worker:0", "1", "1")
    assert (
        done.returncode == 3
        and f"close_folder {workdir / path}" in done.stderr
        and not trap.exists()
    )
    (workdir / path).chmod(0o700)
    (run / "state.json").write_text(
        json.dumps({"run": "r1", "job": "job", "host": "n1", "phase": "ended"})
    )
    assert start(workdir, "supervise", str(run), "worker:0", "1", "1").returncode == 0


def start(workdir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [AGENT_PYTHON, "-S", "-E", str(workdir / AGENT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
