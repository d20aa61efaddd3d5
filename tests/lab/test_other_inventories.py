"""Test a run whose hosts, roles and slots come from an inventory file of another tool."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    """Return an operator who has no inventory in tfdeploy's own format. The operator's
    ~/.ssh/config has the user and the key for the lab's hosts.
    """
    made = tfdeploy(pair)
    del made.env["TFDEPLOY_INVENTORY"]
    made.env["TFDEPLOY_YES"] = "1"
    settings = yaml.safe_load(pair.inventory.read_text())["defaults"]
    (made.home / ".ssh").mkdir(mode=0o700)
    (made.home / ".ssh/config").write_text(
        f"Host *\n  User {settings['user']}\n  IdentityFile {settings['identity_file']}\n"
    )
    return made


FORMATS = {
    "list": ("async", "{0},{1}", "", {"ps:0": 0, "worker:0": 1}),
    "hostfile": (
        "plain",
        "hostfile",
        "{0} slots=1\n{1} slots=2\n",
        {"worker:0": 0, "worker:1": 1, "worker:2": 1},
    ),
    "ansible": (
        "async",
        "hosts.ini",
        "[worker]\nfirst ansible_host={0}\n[ps]\nsecond ansible_host={1}\n"
        "[all:vars]\nansible_python_interpreter={python}\n",
        {"ps:0": 1, "worker:0": 0},
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_on_hosts_that_another_tool_names(operator: Tfdeploy, name: str) -> None:
    mode, source, text, expected = FORMATS[name]
    settings = yaml.safe_load(operator.lab.inventory.read_text())
    addresses = [host["address"] for host in settings["hosts"].values()]
    source = source.format(*addresses)
    if text:
        content = text.format(*addresses, python=settings["defaults"]["python"])
        (operator.cwd / source).write_text(content)
    write_job(operator, f"from-{name}", "quick.py", mode=mode, flags="none")
    operator.run("trust", "-i", source, exit_code=0)
    operator.run("launch", "-i", source, "--detach", "--name", f"from-{name}-1", exit_code=0)
    tasks = operator.json("status", "-i", source, f"from-{name}-1")["tasks"]
    hosts = {"first": addresses[0], "second": addresses[1]}
    placed = {row["task"]: hosts.get(row["host"], row["host"]) for row in tasks}
    assert placed == {task: addresses[at] for task, at in expected.items()}
    operator.run("stop", "-i", source, f"from-{name}-1", exit_code=0)
