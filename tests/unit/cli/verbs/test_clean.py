"""Test what `tfdeploy clean` asks the user, and what it suggests if there is no terminal.

The test connects to no host.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tfdeploy.cli.main import main


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))


def test_suggested_command_names_same_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["clean", "--everything", "--limit", "n[1-3]", "--exclude", "n2", "-i", "lab.yaml"])
        == 2
    )
    typed = (
        "echo everything | tfdeploy clean -i lab.yaml --everything --limit 'n[1-3]' --exclude n2 -y"
    )
    assert f"next: `{typed}`, or --dry-run first" in capsys.readouterr().err


def test_suggested_command_keeps_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--all", "--everything"]) == 2
    typed = "echo everything | tfdeploy clean --all --everything -y"
    assert f"next: `{typed}`, or --dry-run first" in capsys.readouterr().err


def test_yes_suffices_without_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean"]) == 2
    assert "next: add -y, or --dry-run first" in capsys.readouterr().err
