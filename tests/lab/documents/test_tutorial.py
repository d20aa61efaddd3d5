"""Test the commands of docs/tutorial.md. The test types them in their order, as a new user would,
and compares their output with the output that the page shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab.commandline import PATH, REPOSITORY
from tfdeploy.lab import Lab
from tfdeploy.store.places import state_root

pytestmark = pytest.mark.tensorflow
PAGE = REPOSITORY / "docs/tutorial.md"
BLOCKS = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND_S = 300
# Labs are stored in the state folder of the account that runs the tests, because its disk has space
# for them, and because labs of killed test sessions are removed from this folder. All other state
# of tfdeploy is stored in the test's own folder.
TFDEPLOY = """#!/bin/sh
[ "$1" != lab ] || export XDG_STATE_HOME={state}
exec {python} -m tfdeploy "$@"
"""
# These lines run after each command of the page. They write to the file $AFTER the working folder
# and the variable that the page sets, and exit with the exit code of the command.
REPORT = """
code=$?
{ pwd; printf '%s\\n' "${TFDEPLOY_INVENTORY:-}"; } > "$AFTER"
exit $code
"""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (command, the lines that the page shows below it)."""
    for block in BLOCKS.findall(PAGE.read_text(encoding="utf-8")):
        for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = typed.splitlines()
            yield command, shown


class User:
    """A new user with a shell. Its home has a Python with TensorFlow in venv/."""

    def __init__(self, home: Path, lab_name: str) -> None:
        self.home = home
        (home / "bin").mkdir()
        program = home / "bin/tfdeploy"
        state = state_root(os.environ).parent
        program.write_text(TFDEPLOY.format(state=state, python=sys.executable))
        program.chmod(0o755)
        self.env = {
            "HOME": str(home),
            "PATH": f"{home / 'bin'}:{PATH}",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            "TFDEPLOY_LAB_NAME": lab_name,
            # There is no terminal on which the user could answer a question with yes.
            "TFDEPLOY_YES": "1",
            "AFTER": str(home / "after"),
        }
        self.cwd = REPOSITORY

    def type(self, command: str) -> str:
        """Run the command, which must exit with code 0, and return all its output. The next command
        runs in the folder, and with the inventory, that this command has set."""
        done = subprocess.run(
            ["bash", "-c", command + REPORT],
            env=self.env,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        folder, inventory = (self.home / "after").read_text().splitlines()
        self.cwd = Path(folder)
        self.env["TFDEPLOY_INVENTORY"] = inventory
        return done.stdout


def without_figures(line: str) -> str:
    """Return the line with each number replaced by 0 and each gap by one blank."""
    return " ".join(re.sub(r"\d+([.,]\d+)*", "0", line).split())


def test_the_tutorial(new_lab: Callable[..., Lab], tmp_path: Path) -> None:
    home = tmp_path / "user"
    home.mkdir()
    (home / "venv").symlink_to(sys.prefix)
    # The test makes the lab before the tutorial does. So the fixture removes the lab even if the
    # test fails. The tutorial's `lab up` uses the lab that already exists.
    lab = new_lab("loopback", 3, python=str(home / "venv/bin/python"), gpus="none")
    user = User(home, lab.name)
    for command, shown in commands():
        printed = {without_figures(line) for line in user.type(command).splitlines()}
        missing = [line for line in shown if without_figures(line) not in printed]
        assert missing == [], f"$ {command}\n" + "\n".join(sorted(printed))
    assert not lab.root.exists()
    assert (user.home / "digits/fetched/second/keep/checkpoints/checkpoint").exists()
