"""Check with mypy --strict that the types of the Python API reach a user's script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/api.md"
WRONG = """
import tfdeploy

run = tfdeploy.launch(mode="asnyc")
run.status()["stat"]
run.logs(since=[])
"""


def check(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Check a script in a separate folder, as a user does who has installed the package."""
    (folder / "script.py").write_text(script)
    options = ["--strict", "--config-file=", f"--cache-dir={folder / 'cache'}"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user")


@pytest.mark.long  # Without a cache, mypy reads the whole package.
def test_example_in_docs_passes_mypy(folder: Path) -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    done = check(folder, example[1])
    assert done.returncode == 0, done.stdout


def test_mypy_finds_wrong_arguments_and_keys(folder: Path) -> None:
    done = check(folder, WRONG)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [4, 5, 6], done.stdout
