"""Test the first five commands of README.md. The test types them as a new user would, with the
addresses of a lab.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable

import pytest
import yaml

from support.lab.commandline import REPOSITORY, Tfdeploy
from support.lab.jobs import PROGRAMS
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
README = REPOSITORY / "README.md"


@pytest.fixture
def newcomer(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    """Return an operator with a program and an SSH key, but without inventory, job file or known
    hosts.
    """
    operator = tfdeploy(pair)
    shutil.copy(PROGRAMS / "quick.py", operator.cwd / "train.py")
    key = yaml.safe_load(pair.inventory.read_text())["defaults"]["identity_file"]
    (operator.home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    (operator.home / ".ssh/config").write_text(f"Host *\n  IdentityFile {key}\n")
    del operator.env["TFDEPLOY_INVENTORY"]
    return operator


def first_commands() -> list[list[str]]:
    section = README.read_text().partition("## First run")[2]
    block = re.search(r"(?:^    tfdeploy .*\n)+", section, re.MULTILINE)
    assert block is not None
    return [shlex.split(line, comments=True)[1:] for line in block[0].splitlines()]


def test_the_first_five_commands(newcomer: Tfdeploy) -> None:
    init, *others = first_commands()
    assert init[:2] == ["init", "--hosts"] and len(others) == 4
    hosts = yaml.safe_load(newcomer.lab.inventory.read_text())
    addresses = [
        f"{hosts['defaults']['user']}@{host['address']}" for host in hosts["hosts"].values()
    ]
    newcomer.run("init", "--hosts", ",".join(addresses), exit_code=0)
    inventory = newcomer.cwd / "inventories/hosts.yaml"
    python = hosts["defaults"]["python"]
    inventory.write_text(f"defaults: {{python: {python}}}\n{inventory.read_text()}")
    # There is no terminal on which the user could answer a question with yes.
    newcomer.env["TFDEPLOY_YES"] = "1"
    for words in others:
        newcomer.run(*words, exit_code=0)
    newcomer.run("stop", exit_code=0)
    newcomer.run("clean", "--all", exit_code=0)
