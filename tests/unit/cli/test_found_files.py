"""Test which job file and which inventory tfdeploy uses. It must never use a file of another user.

The tests start real processes, but no hosts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.lab.forked_client import REPOSITORY, ForkedClient, can_fork

STRANGER = 64001
JOB = "name: j\nmode: async\ncommand: [python, train.py]\n"


class Operator:
    """Runs `tfdeploy` in the folder `cwd`, as a user with the home folder `home`."""

    def __init__(self, home: Path) -> None:
        self.home = self.cwd = home
        self.env = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
        }

    def write(self, path: str, text: str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def inventory(self, path: str, host: str) -> Path:
        return self.write(
            path,
            f"hosts: {{{host}: {{address: 127.0.0.1, port: 1}}}}\nroles: {{ps: [{host}], worker: "
            f"[{host}]}}\n",
        )

    def run(
        self, *args: str, env: Mapping[str, str | None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        variables = {
            name: value for name, value in {**self.env, **(env or {})}.items() if value is not None
        }
        kind = ForkedClient if can_fork(variables) else subprocess.Popen
        argv, pipe = [sys.executable, "-m", "tfdeploy", *args], subprocess.PIPE
        with kind(
            argv,
            env=variables,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        ) as client:
            output, errors = client.communicate(timeout=60)
        return subprocess.CompletedProcess(argv, client.returncode, output, errors)

    def host(self, *args: str, env: Mapping[str, str | None] | None = None) -> tuple[str, str]:
        """Run tfdeploy. Return the name of the only host in the inventory, and the text on stderr.

        Each inventory has one host, and all hosts have different names. So the name tells which
        inventory tfdeploy used.
        """
        done = self.run("inventory", "--json", *args, env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["hosts"][0]["name"], done.stderr

    def refused(
        self, *args: str, code: int = 3, env: Mapping[str, str | None] | None = None
    ) -> dict[str, str]:
        done = self.run(*args, "--json", env=env)
        assert done.returncode == code, done.stdout + done.stderr
        error: dict[str, str] = json.loads(done.stdout)["error"]
        return error


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    home = tmp_path / "home"
    home.mkdir()
    return Operator(home)


@pytest.fixture
def project(operator: Operator) -> Operator:
    """Create a project below the home folder, with a job file and an inventory. The current folder
    is outside of the project.
    """
    operator.write("project/tfdeploy.yaml", JOB)
    operator.inventory("project/inventories/hosts.yaml", "own")
    operator.cwd = operator.home / "elsewhere/deep"
    operator.cwd.mkdir(parents=True)
    return operator


def test_error_outside_project_names_folder_of_last_run_first(project: Operator) -> None:
    run = ".local/state/tfdeploy/runs/j-1"
    project.write(f"{run}/plan.json", "{}")
    project.write(f"{run}/code", str(project.home / "project"))
    for verb in ("launch", "inventory"):
        error = project.refused(verb, code=2)
        assert error["next"].startswith(
            f"`cd {project.home}/project` (the folder of the last run); otherwise "
        )
        assert error["next"].endswith("with `tfdeploy init`")
    (project.home / run / "code").unlink()
    assert "last run" not in project.refused("launch", code=2)["next"]
    project.write(f"{run}/code", "/" + "x" * 300)  # a folder that cannot be examined
    assert "last run" not in project.refused("launch", code=2)["next"]


def test_error_beside_project_names_its_folder(project: Operator) -> None:
    project.cwd = project.home / "notes"
    project.cwd.mkdir()
    assert project.refused("launch", code=2)["next"].startswith("`cd ../project`; otherwise ")


def test_error_in_project_without_inventory_names_no_folder(project: Operator) -> None:
    project.cwd = project.home / "project"
    (project.cwd / "inventories/hosts.yaml").unlink()
    assert "`cd " not in project.refused("launch", code=2)["next"]


def test_error_without_inventory_names_no_project_that_has_none(project: Operator) -> None:
    project.cwd = project.home / "notes"
    project.cwd.mkdir()
    assert project.refused("inventory", code=2)["next"].startswith("`cd ../project`; otherwise ")
    (project.home / "project/inventories/hosts.yaml").unlink()
    (project.home / "project/inventories").rmdir()
    assert "`cd " not in project.refused("inventory", code=2)["next"]
    assert "`cd " in project.refused("launch", code=2)["next"]


def test_second_job_file_is_named(project: Operator) -> None:
    project.cwd = project.home / "project"
    project.write("project/tfdeploy.yml", JOB)
    assert "job: tfdeploy.yaml (tfdeploy.yml is not used)" in project.run("inventory").stderr


def test_inventory_is_found_next_to_job_file_in_other_folder(
    project: Operator,
) -> None:
    for path in (
        "../../project/tfdeploy.yaml",
        "../../project",
        str(project.home / "project/tfdeploy.yaml"),
    ):
        assert project.host("-j", path)[0] == "own"
    assert project.host(env={"TFDEPLOY_JOB": "../../project"})[0] == "own"
    done = project.run("launch", "--dry-run", "-j", "../../project")
    # The job names a host, but nothing listens at its address.
    assert done.returncode == 4, done.stderr


def test_inventory_next_to_job_file_takes_precedence_over_current_folder(project: Operator) -> None:
    project.inventory("elsewhere/deep/inventories/x.yaml", "here")
    host, message = project.host("-j", "../../project")
    assert host == "own"
    line = (
        "inventory: ../../project/inventories/hosts.yaml (next to the job file; "
        "inventories/x.yaml is not used)\n"
    )
    assert message == line
    shutil.rmtree(project.home / "project/inventories")
    assert project.host("-j", "../../project") == ("here", "")


def test_files_of_project_are_found_from_subfolder_and_named(project: Operator) -> None:
    project.cwd = project.home / "project/src/deep"
    project.cwd.mkdir(parents=True)
    assert project.host() == (
        "own",
        "job: ../../tfdeploy.yaml\ninventory: ../../inventories/hosts.yaml\n",
    )
    assert project.host("-q") == ("own", "")
    project.cwd = project.home / "project"
    assert project.host() == ("own", "")


@pytest.mark.parametrize("border", ["git", "home", "shared"])
def test_search_ends_at_checkout_and_home_and_before_shared_folder(
    project: Operator, border: str
) -> None:
    project.cwd = project.home / "project/src/deep"
    project.cwd.mkdir(parents=True)
    env: dict[str, str | None] = {}
    if border == "git":
        (project.home / "project/src/.git").mkdir()
        reason = "the top of a git checkout"
    elif border == "home":
        env["HOME"] = str(project.home / "project/src")
        reason = "your home folder"
    else:
        (project.home / "project").chmod(0o1777)
        reason = f"others may write to {project.home}/project"
    error = project.refused("launch", "--dry-run", code=2, env=env)
    searched = (
        f"tfdeploy.yaml in {project.cwd} and the folders above it, up to "
        f"{project.home}/project/src ({reason})"
    )
    assert (error["what"], error["where"]) == ("no job file", searched)
    error = project.refused("trust", code=2, env=env)
    searched = f"looked in inventories, {project.home}/project/src/inventories"
    assert (error["what"], error["where"]) == ("no inventory", searched)


def test_searched_folders_without_inventory_are_named(project: Operator) -> None:
    shutil.rmtree(project.home / "project/inventories")
    error = project.refused("check", "-j", "../../project", code=2)
    assert error["where"] == f"looked in {project.home}/project/inventories, inventories"


def test_inventory_from_environment_is_named_once_if_project_has_one(
    project: Operator,
) -> None:
    project.cwd = project.home / "project"
    other = project.inventory("lab.yaml", "lab")
    env = {"TFDEPLOY_INVENTORY": str(other)}
    line = (
        "inventory: ../lab.yaml (TFDEPLOY_INVENTORY; the project's inventories/hosts.yaml is not "
        "used)\n"
    )
    assert project.host(env=env) == ("lab", line)
    assert project.host("-q", env=env) == ("lab", "")
    for args in (
        ("exec", "--", "true"),
        ("check",),
        ("launch", "--dry-run"),
        ("runs", "--all"),
        ("sync",),
    ):
        done = project.run(*args, env=env)
        assert done.returncode == 4 and done.stderr.count(line) == 1, done.stderr
    assert project.host("-i", "inventories/hosts.yaml", env=env) == ("own", "")
    assert project.host(env={"TFDEPLOY_INVENTORY": "inventories/hosts.yaml"}) == ("own", "")
    project.write("project/tfdeploy.yaml", JOB + "inventory: mine.yaml\n")
    project.inventory("project/mine.yaml", "mine")
    assert "the project's mine.yaml is not used" in project.host(env=env)[1]
    project.cwd = project.home / "elsewhere"
    assert project.host(env=env) == ("lab", "")


def test_init_mentions_project_in_parent_folder(project: Operator) -> None:
    project.cwd = project.home / "project/sub"
    project.cwd.mkdir()
    done = project.run("init", "--hosts", "a,b", "--mode", "async", "--command", "python x.py")
    assert done.returncode == 0 and "../tfdeploy.yaml exists too" in done.stderr


@pytest.mark.needs("other accounts")
@pytest.mark.parametrize("file_found", ["tfdeploy.yaml", "inventories/hosts.yaml"])
@pytest.mark.parametrize("change", ["owner", "group", "everybody", "folder"])
def test_found_file_of_other_user_is_refused_and_named_file_only_warned_about(
    project: Operator, file_found: str, change: str
) -> None:
    project.cwd = project.home / "project"
    file = project.cwd / file_found
    if change == "owner":
        os.chown(file, STRANGER, STRANGER)
    elif change == "group":
        os.chown(file, -1, STRANGER)
        file.chmod(0o664)
    elif change == "everybody":
        file.chmod(0o666)
    else:
        project.cwd.chmod(0o777)
    verbs = (
        ("inventory",),
        ("exec", "--", "true"),
        ("launch", "--dry-run"),
        ("status",),
        ("stop", "r1"),
        ("sync",),
    )
    for args in verbs if change == "owner" else verbs[:1]:
        flag_index = args.index("--") if "--" in args else len(args)
        done = project.run(*args[:flag_index], "--json", *args[flag_index:])
        assert done.returncode == 3, (args, done.stdout, done.stderr)
        error = json.loads(done.stdout)["error"]
    assert "decides what runs under your account" in error["what"]
    flag = (
        "-j tfdeploy.yaml"
        if file_found == "tfdeploy.yaml" or change == "folder"
        else "-i inventories/hosts.yaml"
    )
    assert flag in error["next"] and error["next"].startswith(("`sudo chown ", "`chmod "))
    named = project.run("runs", "-j", "tfdeploy.yaml", "-i", "inventories/hosts.yaml")
    assert named.returncode == 4 and named.stderr.count("warning: ") == (
        2 if change == "folder" else 1
    ), named.stderr
    assert (
        project.host(
            env={"TFDEPLOY_JOB": "tfdeploy.yaml", "TFDEPLOY_INVENTORY": "inventories/hosts.yaml"}
        )[0]
        == "own"
    )


@pytest.mark.needs("other accounts")
def test_root_gets_all_flags_needed_for_checkout_of_other_user(project: Operator) -> None:
    """Test root in a checkout that belongs to another user, as when a project is mounted into a
    container.
    """
    project.cwd = project.home / "project"
    for path in (project.cwd, *project.cwd.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    error = project.refused("inventory")
    assert error["next"].endswith("name it with -j tfdeploy.yaml -i inventories/hosts.yaml")
    error = project.refused("launch", "--dry-run", "-i", "inventories/hosts.yaml")
    assert error["next"].endswith("name it with -j tfdeploy.yaml")
    assert project.host("-j", "tfdeploy.yaml", "-i", "inventories/hosts.yaml")[0] == "own"
    assert project.host(env={"SUDO_UID": str(STRANGER)}) == ("own", "")


@pytest.mark.needs("other accounts")
def test_job_file_of_stranger_above_project_is_ignored(
    operator: Operator,
) -> None:
    """Test that a job file of another user is ignored, for example one in /tmp, where any user can
    write.
    """
    (operator.home / "shared").mkdir()
    (operator.home / "shared").chmod(0o1777)
    planted = operator.write("shared/tfdeploy.yaml", JOB)
    os.chown(planted, STRANGER, STRANGER)
    operator.inventory("shared/mine/inventories/hosts.yaml", "own")
    operator.cwd = operator.home / "shared/mine"
    assert operator.host() == ("own", "")
    operator.cwd = operator.home / "shared"
    assert operator.host("-i", "mine/inventories/hosts.yaml") == ("own", "")
    assert operator.refused("runs", "-i", "mine/inventories/hosts.yaml")["where"] == "tfdeploy.yaml"


@pytest.mark.needs("other accounts")
@pytest.mark.parametrize("change", ["owner", "runs", "everybody", "link"])
def test_state_folder_writable_by_other_user_is_not_used(project: Operator, change: str) -> None:
    project.cwd = project.home / "project"
    state = project.home / ".local/state/tfdeploy"
    (state / "runs/r1").mkdir(parents=True, mode=0o755)
    if change == "owner":
        os.chown(state, STRANGER, STRANGER)
    elif change == "runs":
        os.chown(state / "runs", STRANGER, STRANGER)
    elif change == "everybody":
        state.chmod(0o1777)
    else:
        state.rename(project.home / "state")
        state.symlink_to(project.home / "state")
        os.lchown(state, STRANGER, STRANGER)
    verbs = (
        ("status", "r1"),
        ("logs", "r1"),
        ("launch",),
        ("sync",),
        ("fetch", "r1"),
        ("runs",),
        ("lab", "status"),
    )
    for args in verbs if change == "owner" else verbs[:1]:
        done = project.run(*args, "--json")
        assert done.returncode == 3, (args, done.stdout, done.stderr)
    error = json.loads(done.stdout)["error"]
    assert "tfdeploy keeps its records of runs" in error["what"]
    mend = f"chmod go-w {state} {state}/*" if change == "everybody" else f"mv {state}"
    assert error["next"].startswith(f"`{mend}") and "XDG_STATE_HOME" in error["next"]
    subprocess.run(["sh", "-c", error["next"].partition("; ")[0]], check=True)
    assert project.run("runs", "--json").returncode == 4
    elsewhere = {"XDG_STATE_HOME": str(project.home / "mine")}
    assert project.run("runs", "--json", env=elsewhere).returncode == 4


@pytest.mark.needs("ssh")
@pytest.mark.parametrize("place", [".", "", "bin"])
def test_no_program_of_current_folder_is_started(project: Operator, place: str) -> None:
    project.cwd = project.home / "project"
    for path in ("ssh", "bin/ssh"):
        project.write(f"project/{path}", "#!/bin/sh\necho planted\n").chmod(0o755)
    done = project.run("ssh", "own", env={"PATH": f"{place}:{project.env['PATH']}"})
    assert done.returncode == 255 and "planted" not in done.stdout, done.stderr
    assert project.run("ssh", "own", env={"PATH": place}).stdout == ""
