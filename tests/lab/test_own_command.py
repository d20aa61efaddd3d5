"""Test that the keys of the dashboard start commands of tfdeploy, and that these import no module
from the current folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.pseudo_terminal import Terminal
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
# The installed command has the folder of its script on sys.path, not the current folder.
INSTALLED = "from tfdeploy.cli.main import program\nprogram()\n"


def test_the_stop_key_works_in_a_folder_with_files_named_like_modules(
    pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(pair)
    write_job(operator, "planted", "quick.py", "--steps=100000")
    operator.run("launch", "--detach", "--name", "planted-1", exit_code=0)
    folder = operator.home / "folder"
    folder.mkdir()
    planted = (
        f"import os\nos.close(os.open({str(operator.home / 'ran')!r}, os.O_CREAT))\nos._exit(99)\n"
    )
    for name in sys.stdlib_module_names:
        (folder / f"{name}.py").write_text(planted)
    script = operator.home / "tfdeploy"
    script.write_text(INSTALLED)
    operator.program = [str(script)]
    terminal = Terminal(
        operator.argv("status", "planted-1", "--watch"),
        operator.env,
        cwd=folder,
        columns=120,
        rows=30,
    )
    try:
        terminal.until("2/2 running", within_s=60)
        terminal.type(b"x")
        terminal.until("stop planted-1 on all its hosts?")
        terminal.type(b"y")
        terminal.until("Enter goes back", within_s=60)
        terminal.type(b"\r")
        terminal.until("stopped", within_s=60)
    finally:
        terminal.close()
    assert not (operator.home / "ran").exists()
    operator.program = ["-m", "tfdeploy"]
    assert operator.state("planted-1") == "stopped"
