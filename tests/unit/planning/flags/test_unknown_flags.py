"""Test that tfdeploy refuses a launch if the program does not define a flag of the command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Notes
from tfdeploy.planning.flags import command_arguments
from tfdeploy.planning.source import source

PROGRAM = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int)\n"
    "p.add_argument('-v', '--verbose', action=argparse.BooleanOptionalAction)\n{}\nargs = "
    "p.parse_args()\n"
)


ABSL = (
    "from absl import app, flags\nflags.DEFINE_integer('train_steps', 9, '')\n"
    "flags.DEFINE_boolean('summaries', True, '')\napp.run(print)\n"
)


def check(job: Job, text: str, *words: str, **fields: Any) -> Notes:
    job = replace(job, command=("python", "train.py", *words), **fields)
    program = source.read_program(job.command, {"train.py": text})
    assert not program.unread_reason
    return command_arguments.supply_required_flags(job, program, ()).notes


def test_an_unknown_flag_is_refused_with_the_one_that_is_meant(job: Job) -> None:
    with pytest.raises(Refused) as refused:
        check(job, PROGRAM.format(""), "--epoch-s=3")
    assert refused.value.what == "the command contains --epoch-s, which train.py does not define"
    assert refused.value.next is not None
    assert refused.value.next.startswith("did you mean --epochs?")


def test_if_no_flag_is_similar_all_are_named(job: Job) -> None:
    with pytest.raises(Refused) as refused:
        check(job, PROGRAM.format(""), "--lr", "0.1")
    assert "it defines --help --epochs --verbose --no-verbose." in str(refused.value.next)


@pytest.mark.parametrize(
    "words",
    [
        ("--epochs", "3"),
        ("--epoch=3",),  # argparse accepts an abbreviation
        ("-v",),
        ("-x",),  # may be a value, such as -1
        ("--no-verbose",),
        ("--", "--other"),
        ("--help",),
    ],
)
def test_flags_that_the_program_defines_pass(job: Job, words: tuple[str, ...]) -> None:
    check(job, PROGRAM.format(""), *words)


@pytest.mark.parametrize(
    "more",
    [
        "p.parse_known_args()",
        "import sys\nsys.argv.pop()",
        "import library\nlibrary.add_flags(p)",
        "import library\nlibrary.add_flags(parser=p)",
        "p.add_argument('rest', nargs=argparse.REMAINDER)",
        "p.add_argument('rest', nargs='...')",
        "for name in NAMES:\n  p.add_argument('--' + name)",
        "p.add_subparsers()",
        "p.parse_args(open('arguments').read().split())",
        "q = argparse.ArgumentParser(parents=[p])",
        "from absl import flags\nflags.DEFINE_string('x', '', '')",
    ],
)
def test_flags_pass_if_the_program_may_accept_others(job: Job, more: str) -> None:
    check(job, PROGRAM.format(more), "--lr=1")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--train_step=5", "--train_steps"),  # tf.app.run ignores unknown flags
        ("--trian_steps", "--train_steps"),
        ("--train_steps=5", None),
        ("--nosummaries", None),
        ("--alsologtostderr", None),  # a flag of absl itself
    ],
)
def test_a_misspelt_flag_that_the_program_may_ignore_is_noted(
    job: Job, word: str, meant: str | None
) -> None:
    notes = check(job, ABSL, word)
    assert [note for note in notes if "does not define" in note] == (
        [
            f"the command contains {word.partition('=')[0]}, which train.py does not define and "
            f"may ignore: did you mean {meant}?"
        ]
        if meant
        else []
    )


def test_a_function_of_the_program_may_add_flags(job: Job) -> None:
    more = "def add(parser):\n  parser.add_argument('--lr')\nadd(p)"
    check(job, PROGRAM.format(more), "--lr=1")
    with pytest.raises(Refused):
        check(job, PROGRAM.format(more), "--rate=1")


def test_a_command_with_flags_none_is_run_as_it_stands(job: Job) -> None:
    check(job, PROGRAM.format(""), "--lr=1", flags="none")


POSITION = PROGRAM.format("p.add_argument('data')\np.add_argument('more', nargs='?')")


def test_a_missing_argument_is_refused(job: Job) -> None:
    with pytest.raises(Refused) as refused:
        check(job, POSITION, "--epochs", "3", "-v")
    assert refused.value.what.startswith(
        "the command does not contain the program's argument data (train"
    )


@pytest.mark.parametrize(
    "words", [("--epochs", "3", "set"), ("set", "more"), ("--epoch", "3"), ("--", "set"), ("-e3",)]
)
def test_a_given_argument_passes(job: Job, words: tuple[str, ...]) -> None:
    check(job, POSITION, *words)


def test_an_argument_that_only_some_runs_define_is_not_required(job: Job) -> None:
    text = PROGRAM.format("import os\nif os.environ.get('DATA') is None:\n  p.add_argument('data')")
    check(job, text, "--epochs", "3")
