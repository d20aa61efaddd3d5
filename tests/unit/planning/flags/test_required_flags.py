"""Test flags that a program requires.

If tfdeploy knows a value for such a flag, the task gets this value. Otherwise the launch is
refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import DataSource, Job
from tfdeploy.planning.flags import appended_flags, command_arguments
from tfdeploy.planning.source import source

ARGS = "import argparse, sys\np = argparse.ArgumentParser()\n"
ABSL = (
    "import tensorflow as tf\nF = tf.app.flags\n{}\nFLAGS = F.FLAGS\ndef main(_):\n  {}\n  "
    "train()\ntf.app.run()\n"
)
KEEP: dict[str, Any] = {"keep": ("train",)}
DATA: dict[str, Any] = {"data": {"images": DataSource(path="/data/images")}}


def supply_required_flags(
    job: Job, text: str, *words: str, **fields: Any
) -> command_arguments.SuppliedFlags:
    job = replace(job, **{"command": ("python", "train.py", *words), **fields})
    program = source.read_program(job.command, {"train.py": text})
    assert not program.unread_reason
    added = appended_flags.choose_flags(job, program)
    return command_arguments.supply_required_flags(job, program, added.given)


WRITTEN = {
    "argparse": ARGS + "p.add_argument('--train_dir', required=True)\np.parse_args()",
    "argparse in a function": (
        "import argparse\ndef read():\n  p = argparse.ArgumentParser()\n  p.add_argument('-t', "
        "'--train_dir', required=True)\n"
        "  return p.parse_args()\nif __name__ == '__main__':\n  args = read()"
    ),
    "absl, marked": ABSL.format(
        "F.DEFINE_string('train_dir', None, "
        "'')\nF.mark_flag_as_required('train_dir')", "pass"),
    "absl, several": ABSL.format(
        "F.DEFINE_string('train_dir', None, "
        "'')\nF.mark_flags_as_required(['train_dir'])", "pass"),
    "click": (
        "import click\n@click.command()\n@click.option('--train_dir', required=True)\ndef "
        "main(train_dir): ...\nmain()"
    ),
    "raised": ABSL.format(
        "F.DEFINE_string('train_dir', "
        "'', '')", "if not FLAGS.train_dir: raise ValueError('--train_dir')"),
    "raised where it is None": ABSL.format(
        "F.DEFINE_string('train_dir', None, '')",
            "if FLAGS.train_dir is None or "
            "FLAGS.train_dir == '': raise ValueError()"
    ),
    "said, and left": ABSL.format(
        "F.DEFINE_string('train_dir', None, '')",
            "if not FLAGS.train_dir:\n    "
            "print('usage')\n    import sys; sys.exit(1)"
    ),
    "asserted": ABSL.format(
        "F.DEFINE_string('train_dir', "
        "None, '')", "assert FLAGS.train_dir, 'needed'"),
    "required, and made absolute": (
        ARGS + "import os\np.add_argument('--train_dir', required=True)\n"
        "a = p.parse_args()\na.train_dir = os.path.abspath(a.train_dir)"
    ),
    "parser.error": ARGS +
        "p.add_argument('--train_dir')\nargs = p.parse_args()\nif not args.train_dir:\n  "
        "p.error('needed')",
}  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_required_folder_flag(job: Job, text: str) -> None:
    flags = supply_required_flags(job, text, **KEEP)
    assert [(flag.spelling, flag.template) for flag in flags.flags] == [
        ("--train_dir", "{keep.train}")
    ]
    assert "--train_dir={keep.train}" in flags.notes[0] and "train.py:" in flags.notes[0]
    with pytest.raises(Refused, match="the command does not contain --train_dir") as refused:
        supply_required_flags(job, text)
    assert "`keep: [train]`" in str(refused.value.next) and "--train_dir={keep.train}" in str(
        refused.value.next
    )
    assert str(refused.value.where)
    for words in (("--train_dir=/x",), ("--train_dir", "/x"), ("--train=/x",)):
        assert supply_required_flags(job, text, *words) == command_arguments.SuppliedFlags()
    assert supply_required_flags(job, text, flags="none") == command_arguments.SuppliedFlags()


@pytest.mark.parametrize(
    ("spelling", "template"),
    [
        ("--data_dir", "{data.images}"),
        ("--dataset-dir", "{data.images}"),
        ("--logdir", "{keep.train}"),
        ("--model_dir", "{keep.train}"),
    ],
)
def test_meaning_by_name_of_flag(job: Job, spelling: str, template: str) -> None:
    text = ARGS + f"p.add_argument('{spelling}', required=True)\np.parse_args()"
    assert supply_required_flags(job, text, **KEEP, **DATA).flags[0].template == template


def test_flag_for_training_images_gets_data(job: Job) -> None:
    text = (
        ARGS + "p.add_argument('--train_dir', required=True, help='folder of training "
        "images')\np.parse_args()"
    )
    assert supply_required_flags(job, text, **KEEP, **DATA).flags[0].template == "{data.images}"


@pytest.mark.parametrize(
    ("text", "fields", "recipe"),
    [
        (
            ARGS + "p.add_argument('--data_dir', required=True)\np.parse_args()",
            {},
            "`data: {NAME: PATH}`",
        ),
        (
            ARGS + "p.add_argument('--depth', type=int, required=True)\np.parse_args()",
            KEEP,
            "--depth=VALUE",
        ),
        (
            ARGS + "p.add_argument('--log_dir', required=True)\np.add_argument('--model_dir', "
            "required=True)\np.parse_args()",
            KEEP,
            "--log_dir={keep.train}",
        ),
        (
            ARGS + "p.add_argument('--log_dir', required=True)\np.parse_args()",
            {"keep": ("a", "b")},
            "--log_dir={keep.a}",
        ),
    ],
)
def test_unknown_required_flag_is_refused_with_suggestion(
    job: Job, text: str, fields: Any, recipe: str
) -> None:
    with pytest.raises(Refused) as refused:
        supply_required_flags(job, text, **fields)
    assert recipe in str(refused.value.next)


NOT_SURE = {
    "a default": ABSL.format(
        "F.DEFINE_string('train_dir', "
        "'out', '')", "if not FLAGS.train_dir: raise ValueError()"),
    "a value that the program gives itself": ABSL.format(
        "F.DEFINE_string('train_dir', None, '')",
        "if FLAGS.train_dir is None: FLAGS.train_dir = '/tmp'\n  if not FLAGS.train_dir: raise "
        "ValueError()",
    ),
    "a branch of another flag": ABSL.format(
        "F.DEFINE_string('train_dir', None, '')\nF.DEFINE_bool('eval', False, '')",
        "if FLAGS.eval:\n    if not FLAGS.train_dir: raise ValueError()",
    ),
    "a function that nobody calls": ARGS +
        "p.parse_args()\ndef f():\n  "
        "p.add_argument('--train_dir', required=True)",
    "subcommands": ARGS +
        "q = "
        "p.add_subparsers()\np.add_argument('--train_dir', required=True)\np.parse_args()",
    "a list of its own": ARGS +
        "p.add_argument('--train_dir', "
        "required=True)\np.parse_args(['--train_dir', 'x'])",
    "a usual way on": ABSL.format(
        "F.DEFINE_string('train_dir', "
        "None, '')", "if not FLAGS.train_dir: print('not saved')"),
}  # fmt: skip


@pytest.mark.parametrize("text", NOT_SURE.values(), ids=NOT_SURE)
def test_flag_that_may_be_optional_is_not_refused(job: Job, text: str) -> None:
    assert supply_required_flags(job, text) == command_arguments.SuppliedFlags()


def test_checkpoints_outside_keep_are_noted(job: Job) -> None:
    text = ABSL.format("F.DEFINE_string('train_dir', '/tmp/train_logs', '')", "pass")
    (note,) = supply_required_flags(job, text).notes
    assert note.startswith("--train_dir is /tmp/train_logs by default (train.py:3), so what")
    assert supply_required_flags(job, text, "--train_dir=/data/out").notes == ()


def test_required_index_flag_gets_value(job: Job) -> None:
    """Test in mode mirrored that a required flag for the index gets a value.

    The program gets no other flags, because it reads everything else from TF_CONFIG.
    """
    text = (
        ARGS + "import tensorflow as tf\np.add_argument('--task_index', type=int, "
        "required=True)\np.parse_args()"
    )
    flags = supply_required_flags(job, text, mode="mirrored")
    assert flags.flags[0].arguments({"task_index": "2"}) == ("--task_index=2",)
    assert supply_required_flags(job, text, mode="async").flags == ()
