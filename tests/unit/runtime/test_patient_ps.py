"""Test a ps whose program ends once the workers are done: the process stays until tfdeploy tells it
to end.

A ps that fails still ends at once, and so does any task that is not a ps.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

TENSORFLOW = {
    "tensorflow/python/training/server_lib.py": "class Server:\n    target = 'grpc://x'\n",
    "tensorflow/python/client/session.py": "class BaseSession:\n    def "
    "__init__(self, *args):\n        pass\n",
}
STARTS = "from tensorflow.python.training.server_lib import Server\nServer()\n"
SERVES = STARTS + "from tensorflow.python.client.session import BaseSession\nBaseSession()\n"
WAITS = "tfdeploy: this ps is done; it waits for the end of the run\n"


def test_ps_waits_until_told_to_end(task_environment, fake_tensorflow):
    env = task_environment("ps:0", "sync", paths=[fake_tensorflow(TENSORFLOW)])
    started = subprocess.Popen(
        [sys.executable, "-c", SERVES + "import sys; sys.exit()"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        assert started.stderr.readline() == WAITS
        assert started.poll() is None
        started.terminate()
        assert started.wait(120) == -15


@pytest.mark.parametrize(
    ("task", "mode", "code", "exit_code"),
    [
        ("ps:0", "sync", SERVES + "raise ValueError('x')", 1),
        ("ps:0", "async", SERVES + "import sys; sys.exit(3)", 3),
        ("ps:0", "async", "from tensorflow.python.training import server_lib", 0),
        ("ps:0", "async", STARTS, 0),
        ("ps:0", "coordinator", SERVES, 0),
        ("worker:1", "async", SERVES, 0),
    ],
)
def test_tasks_that_end_immediately(run_python, fake_tensorflow, task, mode, code, exit_code):
    done = run_python(code, task=task, mode=mode, paths=[fake_tensorflow(TENSORFLOW)])
    assert done.returncode == exit_code
    assert WAITS not in done.stderr


def test_child_of_ps_ends(task_environment, fake_tensorflow):
    forks = "import os, sys\nif not os.fork(): sys.exit()\n"
    forks += "print(os.waitstatus_to_exitcode(os.wait()[1]), file=sys.stderr); os._exit(0)"
    env = task_environment("ps:0", "sync", paths=[fake_tensorflow(TENSORFLOW)])
    done = subprocess.run(
        [sys.executable, "-c", SERVES + forks], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "0\n"
