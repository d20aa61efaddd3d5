"""Test the host name that Python reports in a task, for programs with hard-coded lists of hosts.

The program's own files see the host name that the program's lists have for this task. All other
code sees the real host name.
"""

from __future__ import annotations

import socket

import pytest

ASK = """
import socket
name = socket.gethostname()
try:
    address = socket.gethostbyname(name)
except OSError:  # not every machine resolves its own name
    address = "none"
print(name, address, socket.getfqdn())
"""
START = (
    "import runpy, socket; runpy.run_path('train.py', run_name='__main__'); "
    "print(socket.gethostname())"
)


@pytest.fixture
def asked(run_python, tmp_path):
    """Return a function asked(written). `written` is the task's host in the program's hard-coded
    list of hosts.

    The function runs train.py. It returns the host name and address that train.py gets, the host
    name that other code gets, and stderr.
    """
    (tmp_path / "train.py").write_text(ASK)

    def run(written, cluster="planned"):
        done = run_python(START, TFDEPLOY_TASK_CLUSTER=cluster, TFDEPLOY_TASK_WRITTEN_HOST=written)
        program, others = done.stdout.splitlines()
        return program.split(), others, done.stderr

    return run


def address_of(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "none"


def test_host_given_as_address_or_name(asked):
    real = socket.gethostname()
    host_in_program, host_elsewhere, message = asked("10.1.0.6")
    assert (host_in_program[0], host_in_program[1], host_elsewhere) == (real, "10.1.0.6", real)
    assert (
        message == "tfdeploy: the program is told that its host is 10.1.0.6, which is in the "
        "program's list of hosts\n"
    )
    host_in_program, host_elsewhere, _ = asked("pc-02")
    assert (host_in_program[0], host_in_program[1], host_in_program[2], host_elsewhere) == (
        "pc-02",
        address_of(real),
        "pc-02",
        real,
    )


def test_host_name_is_unchanged_without_plan_or_with_cluster_of_program(asked):
    assert asked("")[0][0] == socket.gethostname()
    assert asked("pc-02", "program")[0][0] == socket.gethostname()
