"""Test secrets that the job takes from the environment, from files and from commands: which secrets
are read, and which are refused.

No error shows the value of a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.stopwatch import Stopwatch
from tfdeploy.config import load_job, read_secrets, refuse_shown_secrets, secret_values
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.job import Job, Secret, SecretSource

SECRET_VALUE = "c4nary-0f-a-secret"
Load = Callable[[str], Job]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function load(text).

    The function writes the text to tfdeploy.yaml in the folder `job`. Then it reads this file while
    another folder is the current folder.
    """
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path)

    def load(text: str) -> Job:
        Path("job/tfdeploy.yaml").write_text(text)
        return load_job(Path("job/tfdeploy.yaml"), environ={"HOME": str(tmp_path)})

    return load


def reveal_secrets(job: Job, **environ: str) -> dict[str, str]:
    return {
        name: secret.reveal()
        for name, secret in read_secrets(job, {**os.environ, **environ}).items()
    }


BOTH_FORMS = (
    "secrets: [A, {B: {environment: OTHER}}, {C: {file: c.txt}, D: {file: ~/d.txt}}, {E: "
    "{command: [./say, a b, '*']}}]\n",
    "secrets: {A: env, B: {environment: OTHER}, C: {file: c.txt}, D: {file: ~/d.txt}, E: "
    "{command: [./say, a b, '*']}}\n",
)


@pytest.mark.parametrize("text", BOTH_FORMS)
def test_value_of_each_source_loses_one_final_newline(
    load: Load, tmp_path: Path, text: str
) -> None:
    job = load(text)
    (tmp_path / "job/c.txt").write_bytes(b"two\nlines\n\n")
    (tmp_path / "d.txt").write_bytes(b"of windows \xff\r\n")
    (tmp_path / "job/say").write_text('#!/bin/sh\nprintf "%s|" "$@"; echo aside >&2; pwd\n')
    (tmp_path / "job/say").chmod(0o700)
    secrets = reveal_secrets(job, A="from here\n", OTHER="another")
    output = f"a b|*|{tmp_path / 'job'}"
    assert secrets == {
        "A": "from here\n",
        "B": "another",
        "C": "two\nlines\n",
        "D": "of windows \udcff",
        "E": output,
    }
    assert job.secrets == ("A", "B", "C", "D", "E") and secrets["C"] not in repr(
        read_secrets(replace(job, secrets=("C",)), {})
    )


def test_all_unset_variables_are_named(load: Load) -> None:
    with pytest.raises(UsageError, match="NOT_A, OTHER") as caught:
        read_secrets(load("secrets: [NOT_A, {B: {environment: OTHER}}]"), {})
    assert str(caught.value.next).startswith("`export NOT_A=")


WRONG_SOURCES = {
    "a value in a list": f"[A={SECRET_VALUE}]",
    "a value in a mapping": f"{{A: {SECRET_VALUE}}}",
    "a value in a list's mapping": f"[{{A: {SECRET_VALUE}}}]",
    "a number": "{A: 12345678}",
    "nothing": "{A: }",
    "no source": "{A: {}}",
    "two sources": "{A: {file: a, environment: B}}",
    "an unknown source": "{A: {vault: b}}",
    "a command as one text": "{A: {command: pass show a}}",
    "a command of no words": "{A: {command: []}}",
    "a name that is reserved": "{TF_CONFIG: env}",
    "a name twice": "[A, {A: {file: a}}]",
    "no name": "{a-b: env}",
}


@pytest.mark.parametrize("text", WRONG_SOURCES.values(), ids=WRONG_SOURCES)
def test_wrong_source_is_named_by_line_and_not_shown(load: Load, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"# a comment\nsecrets: {text}\n")
    error = caught.value
    assert str(error.where).startswith("job/tfdeploy.yaml:2:secrets") and error.next
    assert SECRET_VALUE not in f"{error.what} {error.next}" and "12345678" not in error.what


WRONG_VALUES = {
    "an empty file": ("{file: empty}", "is empty"),
    "a newline alone": ("{file: newline}", "is empty"),
    "a NUL": ("{file: nul}", "NUL"),
    "too long": ("{file: long}", "longer than"),
    "no such file": ("{file: nowhere}", "nowhere: No such file"),
    "a folder": ("{file: .}", "Is a directory"),
    "no such command": (
        "{command: [no-such-command-here]}",
        "does not start: no-such-command-here",
    ),
    "a command that fails": (
        f"{{command: [sh, -c, 'echo {SECRET_VALUE}; echo locked >&2; exit 3']}}",
        "exit code 3; it said: locked",
    ),
    "a command that is killed": ("{command: [sh, -c, 'kill -9 $$']}", "signal 9"),
    "a command that says nothing": ("{command: [true]}", "is empty"),
    "a command without end": (
        "{command: [yes, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]}",
        "longer than",
    ),
    "a command that waits": ("{command: [sleep, '99']}", "did not end within"),
    "a command that closes its output and waits": (
        "{command: [sh, -c, 'exec >&- 2>&-; sleep 99']}",
        "did not end within",
    ),
}


@pytest.mark.parametrize(("source", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_unusable_value_is_refused_with_line(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.setattr(secret_values, "COMMAND_S", 2.0)
    job = load(f"name: x\nsecrets:\n  GOOD: {{file: good}}\n  A: {source}\n")
    contents = {
        "good": SECRET_VALUE.encode(),
        "empty": b"",
        "newline": b"\n",
        "nul": b"a\0b",
        "long": b"x" * (128 << 10),
    }
    for name, content in contents.items():
        (tmp_path / "job" / name).write_bytes(content)
    watch = Stopwatch()
    with pytest.raises(ConfigError) as caught:
        read_secrets(job, {})
    error = caught.value
    assert (
        message in error.what
        and str(error.where).startswith("job/tfdeploy.yaml:4:secrets.A")
        and error.next
    )
    assert SECRET_VALUE not in f"{error.what} {error.next} {error.where}" and watch.seconds < 10


def test_longest_value_is_accepted(load: Load, tmp_path: Path) -> None:
    job = load("secrets: {A: {file: long}}\n")
    longest = (128 << 10) - len("A=") - 1
    (tmp_path / "job/long").write_bytes(b"x" * longest + b"\n")
    assert len(reveal_secrets(job)["A"]) == longest


SHOWN = f"""
command: [python, train.py, "--token={SECRET_VALUE}"]
env:
  FINE: text
"""


def test_value_shown_by_command_env_or_flag_is_refused_with_line(
    load: Load,
) -> None:
    secrets = {"TOKEN": Secret(SECRET_VALUE), "SHORT": Secret("train")}
    in_command = load(SHOWN)
    in_env = load(f"env:\n  FINE: text\n  URL: https://x:{SECRET_VALUE}@host\n")
    behind = replace(
        in_command,
        command=("python", SECRET_VALUE),
        places={"command": "the command line, behind --"},
    )
    for job, flags, where, place in (
        (in_command, {}, "job/tfdeploy.yaml:2:command", "command[2]"),
        (in_env, {}, "job/tfdeploy.yaml:3:env.URL", "env.URL"),
        (behind, {}, "the command line, behind --", "command[1]"),
        (load("name: x\n"), {"--name": f"run-{SECRET_VALUE}"}, "--name", "--name"),
        (
            load(f"name: x\ndata:\n  digits: /a/{SECRET_VALUE}\n"),
            {},
            "job/tfdeploy.yaml:3:data.digits",
            "data.digits",
        ),
        (load(f"keep: [ckpt, a/{SECRET_VALUE}]\n"), {}, "job/tfdeploy.yaml:1:keep", "keep[1]"),
        (
            load(f"metrics: {{step: '{SECRET_VALUE} (.*)'}}\n"),
            {},
            "job/tfdeploy.yaml:1:metrics.step",
            "metrics.step",
        ),
    ):
        with pytest.raises(UsageError, match="TOKEN") as caught:
            refuse_shown_secrets(job, secrets, flags)
        assert (caught.value.where, caught.value.what.startswith(place)) == (where, True), (
            caught.value.where
        )
        assert SECRET_VALUE not in f"{caught.value.what} {caught.value.next}"
    refuse_shown_secrets(load("command: [python, train.py]\n"), secrets, {})


def test_secret_with_name_in_env_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match="TOKEN is both in env and in secrets") as caught:
        load("secrets: {TOKEN: {file: x}}\nenv:\n  TOKEN: y\n")
    assert caught.value.where == "job/tfdeploy.yaml:3:env.TOKEN"


def test_plain_name_is_read_from_environment(load: Load) -> None:
    assert load("secrets: [A]\n").secret_sources == {}
    assert reveal_secrets(replace(load("name: x\n"), secrets=("A",)), A="1") == {"A": "1"}
    assert load("secrets: {A: env}\n").secret_sources["A"] == SecretSource(
        variable="A", where="job/tfdeploy.yaml:1:secrets.A"
    )
