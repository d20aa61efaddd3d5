"""Test that the program of a command must be executable, and must be found on the task's PATH or in
the code of the job.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.serve.run import prepare as run_prepare
from tfdeploy.model.answers.failures import format_advice


@pytest.fixture
def wrong(tmp_path: Path) -> Callable[..., str | None]:
    """Return a function wrong(word, ..., NAME=value).

    It checks the command `word ...` with the environment variables NAME=value. It returns a text
    that describes the problem, or None. The folder bin/ contains only the program `there`, and the
    folder env/bin/ only the program `python`.
    """
    for path in ("bin/there", "env/bin/python", "code/run.sh", "code/bin/train"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("#!/bin/sh\n")
        (tmp_path / path).chmod(0o644 if path == "code/run.sh" else 0o755)
    (tmp_path / "code/train.py").touch()

    def problem_text(*argv: str, **env: str) -> str | None:
        spec = wire.TaskSpec(
            task="worker:0",
            role="worker",
            index=0,
            argv=list(argv),
            env=env,
            path_prepend=[str(tmp_path / "env/bin")],
        )
        problem = run_prepare.find_program_problem(
            spec, str(tmp_path / "code"), {"PATH": str(tmp_path / "bin")}
        )
        return None if problem is None else f"{problem[0]}: {format_advice('n1', *problem[1:])}"

    return problem_text


@pytest.mark.parametrize(
    "argv",
    ["there", "python train.py", "./bin/train", "bin/train", "/bin/sh run.sh", "there -m gone.py"],
)
def test_a_program_that_is_there(wrong: Callable[..., str | None], argv: str) -> None:
    assert wrong(*argv.split()) is None


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("pyton train.py", "there is no program pyton on PATH"),
        ("pyton train.py", "did you mean python?"),
        ("horovod", "./horovod if it is in the code"),
        ("./gone", "./gone is not in the code"),
        ("there -u gone.py", "gone.py is not in the code"),
        ("/bin/sh gone.py", "gone.py is not in the code"),
        ("./run.sh", "the file ./run.sh is not executable: `chmod +x ./run.sh`"),
    ],
)
def test_a_program_that_is_not(wrong: Callable[..., str | None], argv: str, told: str) -> None:
    assert told in str(wrong(*argv.split()))


def test_script_with_windows_line_ends(wrong: Callable[..., str | None], tmp_path: Path) -> None:
    script = tmp_path / "code/bin/windows.sh"
    script.write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    script.chmod(0o755)
    assert (
        "ends in a carriage return (Windows line ends): `sed -i 's/\\r$//' ./bin/windows.sh`"
        in (str(wrong("./bin/windows.sh")))
    )


def test_the_jobs_own_path_counts(wrong: Callable[..., str | None], tmp_path: Path) -> None:
    assert f"{tmp_path}/env/bin{os.pathsep}/nowhere)" in str(wrong("there", PATH="/nowhere"))
    assert wrong("python", PATH="/nowhere") is None
