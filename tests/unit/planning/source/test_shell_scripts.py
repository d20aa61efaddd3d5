"""Test which command of a shell script starts the program."""

from __future__ import annotations

import pytest

from tfdeploy.planning.source import source
from tfdeploy.planning.source.shell_scripts import find_script_line

SOURCES = {"train.py": "import argparse", "src/run.py": "", "start.sh": ""}


@pytest.mark.parametrize(
    ("text", "path", "passes"),
    [
        ("exec python train.py --steps=50\n", "train.py", False),
        ('python3 -u train.py "$@"', "train.py", True),
        (
            "#!/bin/sh\n# python old.py\nexport A=1\nB=2 time python train.py \\\n  $*",
            "train.py",
            True,
        ),
        ('cd "$(dirname "$0")" || exit\npython -m src.run', "src/run.py", False),
        ('cd "$(dirname "${BASH_SOURCE[0]}")"\npython train.py', "train.py", False),
        ("cd $(dirname -- $0) || exit\npython train.py", "train.py", False),
        ("source conf/env.sh\n. ./env.sh\npython train.py", "train.py", False),
        ("source /opt/setup.sh\npython train.py", None, False),
        ("source activate.sh\npython train.py", None, False),
        ("cd src\npython run.py", None, False),
        ("python train.py\npython src/run.py", None, False),
        ("source venv/bin/activate\npython train.py", None, False),
        (". venv/bin/activate\npython train.py", None, False),
        ("module load cuda\npython train.py", None, False),
        ("export PATH=/opt/bin:$PATH\npython train.py", None, False),
        ("/opt/bin/python train.py", None, False),
        ("for i in 1 2; do python train.py; done", None, False),
        ("python gone.py", None, False),
        ("echo 'two\nlines'; python train.py", None, False),
        ("", None, False),
    ],
)
@pytest.mark.parametrize("command", [("bash", "start.sh"), ("./start.sh",)])
def test_program_of_script(
    command: tuple[str, ...], text: str, path: str | None, passes: bool
) -> None:
    program = source.read_program(command, {**SOURCES, "start.sh": text})
    assert (program.path, program.script) == (path, "start.sh")
    assert bool(program.unread_reason) == (path is None)
    line = program.script_line
    assert (line is not None and line.passes_arguments) == passes


def test_arguments_of_script_stand_where_it_passes_them_on() -> None:
    line = find_script_line("a/start.sh", 'python train.py "$@" --last', "a")
    assert line is not None and line.where == "a/start.sh:1"
    assert line.with_arguments(("bash", "a/start.sh", "--x", "1")) == (
        "python",
        "train.py",
        "--x",
        "1",
        "--last",
    )
