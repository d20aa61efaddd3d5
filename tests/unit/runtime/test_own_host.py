"""Test the host name that Python reports in a task.

The program's own files get the host that its lists have for this task. All other code gets the real
name.
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
    """Return a function asked(written), where `written` is the host that the program's lists have
    for the task.

    It returns the host that train.py sees, the host that other code sees, and stderr.
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


def test_an_address_or_a_name(asked):
    real = socket.gethostname()
    told, others, said = asked("10.1.0.6")
    assert (told[0], told[1], others) == (real, "10.1.0.6", real)
    assert said == "tfdeploy: the program is told that its host is 10.1.0.6, as in its own lists\n"
    told, others, _ = asked("pc-02")
    assert (told[0], told[1], told[2], others) == ("pc-02", address_of(real), "pc-02", real)


def test_nothing_where_the_plan_says_nothing_or_the_programs_cluster_stands(asked):
    assert asked("")[0][0] == socket.gethostname()
    assert asked("pc-02", "program")[0][0] == socket.gethostname()
