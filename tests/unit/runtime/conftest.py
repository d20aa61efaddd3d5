"""Fixtures that start Python as the agent's supervisor starts a task on a host.

PYTHONPATH begins with the folder of tfdeploy's runtime (the code of tfdeploy that runs inside
tasks), and the environment has the settings of the task.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.parent_death import end_with_parent
from support.ports import free_ports
from support.stopwatch import DEADLINE_S
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "tfdeploy" / "runtime" / "site"
PROGRAMS = ROOT / "tests" / "lab" / "programs"


def environment(task=None, mode="async", **variables):
    """Return a copy of this process's environment. If pytest itself runs inside a task of tfdeploy,
    the variables of that task are removed.

    If `task` is given (for example "worker:0"), the variables of this task are added.
    """
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("TFDEPLOY_", "PYTHON", "TF_", "GRPC_"))
    }
    env.update(
        PYTHONPATH=str(SITE),
        PYTHONUNBUFFERED="1",
        CUDA_VISIBLE_DEVICES="",
        TF_CPP_MIN_LOG_LEVEL="2",
    )
    if task is not None:
        role, index = task.split(":")
        env.update(
            TFDEPLOY_TASK_RUN_ID="run-1",
            TFDEPLOY_TASK_ROLE=role,
            TFDEPLOY_TASK_INDEX=index,
            TFDEPLOY_TASK_MODE=mode,
        )
    env.update(variables)
    return env


@pytest.fixture
def task_environment():
    """Return a function that returns the environment for a task.

    A call is task_environment("ps:0", "sync", paths=[...]). The test starts the task itself.
    """

    def make(task, mode, *, paths=()):
        env = environment(task, mode)
        return {**env, "PYTHONPATH": os.pathsep.join([env["PYTHONPATH"], *map(str, paths)])}

    return make


@pytest.fixture
def run_python(tmp_path):
    """Return a function that runs Python code in a temporary folder, and returns the process after
    its end.

    A call is run_python(code, task=..., paths=[...]).
    """

    def run(code, *, task="worker:0", paths=(), timeout_s=DEADLINE_S, **variables):
        env = environment(task, **variables)
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *map(str, paths)])
        argv = [sys.executable, "-c", code]
        return subprocess.run(
            argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=timeout_s
        )

    return run


class Cluster:
    """A cluster of tasks on loopback. Each task has its own folder, as it would on its own host."""

    def __init__(self, folder, mode, ps, workers):
        self.folder, self.mode = folder, mode
        ports = free_ports(ps + workers)
        hosts = [f"localhost:{port}" for port in ports]
        self.flags = [
            "--ps_hosts=" + ",".join(hosts[:ps]),
            "--worker_hosts=" + ",".join(hosts[ps:]),
        ]
        self.processes = {}

    def start(self, task, program, *args, **variables):
        role, index = task.split(":")
        cwd = self.cwd(task)
        cwd.mkdir(exist_ok=True)
        argv = [
            sys.executable,
            str(PROGRAMS / program),
            *self.flags,
            f"--job_name={role}",
            f"--task_index={index}",
            *args,
        ]
        with (cwd / "log").open("ab") as log:
            self.processes[task] = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment(task, self.mode, TFDEPLOY_TASK_FOLDER=str(cwd), **variables),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def cwd(self, task):
        return self.folder / task.replace(":", "-")

    def log(self, task):
        return (self.cwd(task) / "log").read_text(errors="replace")

    def ended(self, task, within_s=DEADLINE_S):
        """Wait until the task has ended, and return its exit code. The test fails if this takes
        more than `within_s` seconds, as measured by a Stopwatch.
        """
        process = self.processes[task]
        try:
            wait_for(lambda: process.poll() is not None, within_s, f"{task} has ended")
            return process.returncode
        except AssertionError:
            pytest.fail(f"{task} has not ended within {within_s} s:\n{self.log(task)[-3000:]}")

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def start_cluster(tmp_path):
    """Return a function start_cluster(mode, ps=1, workers=2) -> Cluster.

    The tasks of all clusters are killed at the end of the test.
    """
    clusters = []

    def start(mode, *, ps=1, workers=2):
        clusters.append(Cluster(tmp_path, mode, ps, workers))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def fake_tensorflow(tmp_path):
    """Return a function that writes the files of a fake TensorFlow. The function returns the folder
    that must be added to the import path.

    A call is fake_tensorflow({"tensorflow/python/x.py": "code"}).
    """

    def make(files):
        folder = tmp_path / "packages"
        for name, code in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            for parent in path.relative_to(folder).parents:
                if parent != Path():
                    (folder / parent / "__init__.py").touch()
        return folder

    return make


@pytest.fixture
def broken_runtime(tmp_path):
    """Return a copy of tfdeploy's runtime that raises an error when a task starts."""
    folder = tmp_path / "runtime"
    shutil.copytree(SITE.parent, folder)
    (folder / "hooks.py").write_text("raise ValueError('broken for the test')")
    return folder
