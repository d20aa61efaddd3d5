"""Test that every verb works if the path of the home folder, on the operator's machine or on a
host, is not valid UTF-8.
"""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.cli.main import main
from tfdeploy.transport.ssh import ssh_config

JOB = """
name: odd
mode: local
code: code
inventory: hosts.yaml
command: [python, train.py]
data: {d: data}
"""


@dataclass
class Output:
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    ssh_hosts: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Any:
    """Return a function that runs a tfdeploy command as an operator with one host.

    The names of the home folders of the operator and of the host are not valid UTF-8.
    """
    port = ssh_hosts.host("host\udcff").port
    home, folder = tmp_path / "operator\udcfe", tmp_path / "work"
    (home / ".ssh").mkdir(parents=True)
    ssh_hosts.key.rename(home / ".ssh/id_ed25519")
    ssh_hosts.known.rename(home / ".ssh/known_hosts")
    for name, text in (
        ("code/train.py", "print('trained')"),
        ("data/d.bin", "x" * 2_000_000),
        ("tfdeploy.yaml", JOB),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "hosts.yaml").write_text(
        f"hosts: {{n1: {{address: 127.0.0.1, port: {port}, python: {sys.executable}}}}}\nroles: "
        f"{{worker: [n1]}}\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(ssh_config, "SYSTEM_CONFIG", str(tmp_path / "none"))

    def typed(*words: str) -> Output:
        code = main(words)
        return Output(code, *capfd.readouterr())

    return typed


@pytest.mark.fault("15 homes that are not UTF-8")
def test_home_folders_may_have_names_that_are_not_utf8(run: Any) -> None:
    for words in (
        ("exec", "--", "true"),
        ("sync",),
        ("launch", "--wait", "--name", "r1"),
        ("status", "r1"),
        ("runs",),
    ):
        output = run(*words)
        assert output.code == 0, (words, output)
    assert run("logs", "r1", "--output", "raw").out == "trained\n"
    assert [run(verb, "r1").code for verb in ("stop", "fetch")] == [0, 0]
    output = run("exec", "--json", "--", "pwd; exit 3")
    assert output.code == 1 and output.err == ""


@pytest.mark.parametrize(
    "error",
    [KeyError("getpwuid(): uid not found: 12345"), OSError("No username set in the environment")],
)
def test_error_for_user_without_name_suggests_setting(
    run: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Test the error for a user without an entry in the password database. For such a user, getpass
    raises KeyError in Python before 3.13, and OSError since 3.13.
    """
    name_here = pwd.getpwuid(os.getuid()).pw_name

    def nobody() -> Any:
        raise error

    def no_entry(*_: object) -> Any:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    monkeypatch.setattr("getpass.getuser", nobody)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    output = run("exec", "--", "true")
    assert (
        output.code == 2
        and "the local user has no login name" in output.err
        and "`user:`" in output.err
    )
    text = Path("hosts.yaml").read_text()
    Path("hosts.yaml").write_text(text.replace("{address:", f"{{user: {name_here}, address:"))
    output = run("sync")
    assert output.code == 0, output.err
