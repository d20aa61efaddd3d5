"""Test which processes belong to a lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tfdeploy.lab.processes import MARK, find_marked


def test_processes_of_hosts_and_of_similarly_named_labs_do_not_bear_the_mark_of_the_lab(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "lab")
    code = "print(flush=True); input()"
    children = {
        mark: subprocess.Popen(
            [sys.executable, "-c", code],
            env={MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for mark in (root, f"{root}/n1", f"{root}2")
    }
    try:
        for child in children.values():
            assert child.stdout is not None
            child.stdout.readline()
        assert find_marked(root, include_nested=False) == {children[root].pid}
        assert find_marked(root) == {children[root].pid, children[f"{root}/n1"].pid}
    finally:
        for child in children.values():
            child.communicate()
