"""Test whether a process can draw a dashboard on its terminal."""

from __future__ import annotations

import os
import sys

import pytest

from support.pseudo_terminal import Terminal

# Starts the child in its own process group (in the background) if there is a second argument.
SHELL = """import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
command = [sys.executable, "-c", sys.argv[1]]
child = subprocess.Popen(command, preexec_fn=os.setpgrp if sys.argv[2:] else None)
sys.exit(child.wait())
"""
CHILD = "from tfdeploy.ui.terminal import can_draw_dashboard; print(can_draw_dashboard())"


@pytest.mark.parametrize(("words", "can"), [([], "True"), (["&"], "False")])
def test_only_process_in_foreground_draws_dashboard(words: list[str], can: str) -> None:
    terminal = Terminal([sys.executable, "-c", SHELL, CHILD, *words], os.environ)
    try:
        terminal.until(can)
    finally:
        terminal.close()
