"""A file that somebody else may change is warned of, with the line that mends it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from support.needs import can
from tfdeploy.cli import context
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.main import main
from tfdeploy.config import ownership_warning


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my hosts.yaml"
    path.write_text("hosts:\n  n1: {address: 127.0.0.1, port: 1}\n")
    path.chmod(0o664)
    return path


def test_one_s_own_file_is_trusted_and_so_is_root_s(file: Path) -> None:
    assert ownership_warning(file, file.stat().st_uid) is None
    assert ownership_warning(Path("/etc/passwd"), 12345) is None
    assert ownership_warning(file.parent / "none", 0) is None


def test_a_file_that_everybody_may_write_is_named_with_the_chmod_line(file: Path) -> None:
    file.chmod(0o666)
    said = ownership_warning(file, file.stat().st_uid)
    assert said is not None and said.endswith(f"chmod o-w '{file}'")


def test_another_user_s_file_is_named(file: Path) -> None:
    owner = pwd.getpwuid(file.stat().st_uid).pw_name
    said = _given_away(file) if can("other accounts") else ownership_warning(file, file.stat().st_uid + 12345)
    assert said is not None and "belongs to user" in said and (owner in said)


def _given_away(file: Path) -> str | None:
    os.chown(file, 65534, -1)
    return ownership_warning(file, 0)


def test_a_verb_warns_once_and_goes_on(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file.chmod(0o666)
    assert main(["exec", "-i", str(file), "--", "true"]) == 4
    assert capsys.readouterr().err.count("chmod o-w") == 1


def test_a_job_file_that_others_may_write_to_is_warned_of_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "tfdeploy.yaml"
    job.write_text("name: j\nmode: async\ncommand: [python, train.py]\n")
    job.chmod(0o666)
    for _ in range(2):
        assert context.load_job(CommonFlags()).name == "j"
    assert capsys.readouterr().err.count("chmod o-w") == 1
