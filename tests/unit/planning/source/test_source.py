"""Test how the program file is found in the command of a job, and how its imports are followed.

If the program cannot be read, tfdeploy gives the reason.
"""

from __future__ import annotations

import pytest

from tfdeploy.planning.source import source

CODE = {
    "train.py": "import helper",
    "helper.py": "import tensorflow as tf",
    "src/run.py": "from pkg import a\nfrom pkg.b import thing",
    "src/pkg/__init__.py": "",
    "src/pkg/a.py": "from . import c",
    "src/pkg/b.py": "",
    "src/pkg/c.py": "from ..other import x",
    "src/other.py": "",
    "mod/__main__.py": "",
    "loop.py": "import loop2",
    "loop2.py": "import loop",
}


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("python train.py --steps 3", "train.py"),
        ("python -u ./train.py", "train.py"),
        ("python -W ignore.py train.py", "train.py"),
        ("python3.11 -O src/run.py", "src/run.py"),
        ("python -m mod", "mod/__main__.py"),
        ("python -m src.run", "src/run.py"),
        ("numactl -N0 python train.py other.py", "train.py"),
        ("./train.py", "train.py"),
        ("bash train.sh", None),
        ("/bin/sh run.sh train.py", None),
        ("python -c pass train.py", None),
        ("true", None),
    ],
)
def test_path_of_program(command: str, path: str | None) -> None:
    assert source.read_program(tuple(command.split()), CODE).path == path


@pytest.mark.parametrize(
    ("command", "path", "files"),
    [
        ("python run.py", "src/run.py", 6),
        ("python ./pkg/a.py", "src/pkg/a.py", 3),
        ("python ../loop.py", "loop.py", 2),
        ("python -m pkg.a", "src/pkg/a.py", 3),
        ("bash ../train.sh", None, 0),
    ],
)
def test_command_that_starts_in_folder_of_code(command: str, path: str | None, files: int) -> None:
    program = source.read_program(tuple(command.split()), CODE, "src")
    assert (program.path, len(program.modules)) == (path, files)
    assert program.script == ("train.sh" if path is None else None)


def test_imports_are_followed_below_packages_and_around_loops() -> None:
    assert len(source.read_program(("python", "src/run.py"), CODE).modules) == 6
    assert len(source.read_program(("python", "loop.py"), CODE).modules) == 2


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("import helper", True),
        ("import tensorflow.compat.v1 as tf", True),
        ("from tensorflow.python.framework import ops", True),
        ("def main():\n    import tensorflow", True),
        (
            "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import "
            "tensorflow as tf",
            True,
        ),
        ("try:\n    import tensorflow\nexcept ImportError:\n    tensorflow = None", False),
        ("import tensorflow_datasets, numpy", False),
        ("from .tensorflow import x", False),
    ],
)
def test_whether_program_imports_tensorflow(text: str, does: bool) -> None:
    assert (
        source.read_program(("python", "x.py"), {**CODE, "x.py": text}).imports_tensorflow is does
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\nprint 'hello'\n", "p.py:2 cannot be read (a Python 2 program?"),
        (
            "try:\n  pass\nexcept ValueError, e:\n  pass\n",
            "p.py:3 cannot be read (a Python 2 program?",
        ),
        ("def f(:\n", "p.py:1 cannot be read ("),
        ("a\0b", "p.py"),
    ],
)
def test_unreadable_program_has_reason_with_line(text: str, reason: str) -> None:
    program = source.read_program(("python", "p.py"), {"p.py": text})
    assert program.unread_reason is not None
    assert program.unread_reason.startswith(reason)
    assert program.modules == ()


def test_broken_module_does_not_hide_program() -> None:
    program = source.read_program(("python", "p.py"), {"p.py": "import old", "old.py": "print 'x'"})
    assert program.unread_reason is None
    assert len(program.modules) == 1


def test_separate_program_for_each_role() -> None:
    sources = {
        "a/ps0.py": "import x",
        "a/worker1.py": "import tensorflow",
        "a/x.py": "",
        "a/b/ps0.py": "",
        "worker1.py": "",
    }
    program = source.read_program(("python", "a/{job_name}{task_index}.py"), sources)
    assert (program.path, tuple(program.by_path)) == (
        "a/{job_name}{task_index}.py",
        ("a/ps0.py", "a/x.py", "a/worker1.py"),
    )
    assert program.imports_tensorflow
    assert "is not among" in (
        source.read_program(("python", "{job_name}-main.py"), sources).unread_reason or ""
    )
