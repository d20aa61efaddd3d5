"""Test programs that use the name of a cluster flag, such as --job_name, for a flag of their own.

If such a flag cannot hold the value that tfdeploy would pass, the launch is refused. The error
names the position of the flag in the code.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.planning.flags import appended_flags
from tfdeploy.planning.program import flag_conflicts
from tfdeploy.planning.source import entry_point, source

TASKS = {
    "ps:0": {
        "ps_hosts": "a:1",
        "worker_hosts": "b:1,c:1",
        "job_name": "ps",
        "task_index": "0",
        "issync": "0",
    },
    "worker:0": {
        "ps_hosts": "a:1",
        "worker_hosts": "b:1,c:1",
        "job_name": "worker",
        "task_index": "0",
        "issync": "0",
    },
    "worker:1": {
        "ps_hosts": "a:1",
        "worker_hosts": "b:1,c:1",
        "job_name": "worker",
        "task_index": "1",
        "issync": "0",
    },
}
CHILD = "import argparse\np = argparse.ArgumentParser()\n{text}\np.parse_args()\n"


def choose_flags(job: Job, text: str, *words: str, **fields: str) -> appended_flags.AppendedFlags:
    """Return the flags that tfdeploy passes to a program with this text. Raises Refused if they
    conflict with the program's own flags.
    """
    job = replace(job, command=("python", "train.py", *words), **fields)
    started = source.read_program(job.command, {"train.py": text})
    appended = appended_flags.choose_flags(job, started)
    flag_conflicts.refuse_unaccepted_values(job, started, appended, TASKS)
    return appended


REFUSED = {
    "a name of something else, by number": (
        "p.add_argument('--job_name', type=int)",
        "accepts a whole number",
    ),
    "choices without the role": (
        "p.add_argument('--job_name', choices=['mnist', 'cifar'])",
        "accepts one of mnist, cifar",
    ),
    "choices without one of the roles": (
        "p.add_argument('--job_name', choices=('worker', 'master'))",
        "for ps:0",
    ),
    "an index out of the choices": (
        "p.add_argument('--task_index', type=int, choices=[0])",
        "for worker:1",
    ),
    "a switch": ("p.add_argument('--task_index', action='store_true')", "accepts no value"),
    "a switch or not": (
        "p.add_argument('--task_index', action=argparse.BooleanOptionalAction)",
        "accepts no value",
    ),
    "a count": ("p.add_argument('--issync', action='count')", "accepts no value"),
    "two words": ("p.add_argument('--ps_hosts', nargs=2)", "accepts 2 words"),
    "sync by name": (
        "p.add_argument('--issync', choices=['sync', 'async'])",
        "accepts one of sync, async",
    ),
    "defined twice in two ways": (
        "p.add_argument('--issync', type=int)\nq.add_argument('--issync', action='store_true')",
        "is defined differently at train.py:1",
    ),
}
REFUSED_ELSEWHERE = {
    "absl, a number of hosts": (
        "flags.DEFINE_integer('ps_hosts', 2, '')",
        "accepts a whole number",
    ),
    "absl, an enum": (
        "flags.DEFINE_enum('job_name', None, ['train', 'eval'], '')",
        "accepts one of train, eval",
    ),
    "absl, a boolean": (
        "tf.app.flags.DEFINE_boolean('task_index', False, '')",
        "accepts yes or no",
    ),
    "optparse": ("p.add_option('--job_name', type='int')", "accepts a whole number"),
    "click, a choice": (
        "@click.option('--job-name', type=click.Choice(['a', 'b']))\ndef main(): ...",
        "accepts one of a, b",
    ),
    "click, a flag": (
        "@click.option('--task_index', is_flag=True)\ndef main(): ...",
        "accepts no value",
    ),
}
TAKEN = {
    "the roles as choices": "p.add_argument('--job_name', choices=['ps', 'worker'])",
    "choices that are computed": "p.add_argument('--task_index', type=int, choices=range(4))",
    "a function as type": "p.add_argument('--ps_hosts', type=lambda text: text.split(','))",
    "one word as a list": "p.add_argument('--job_name', nargs=1)",
    "a switch for sync": "p.add_argument('--issync', action='store_true')",
    "the same in two branches": "p.add_argument('--job_name')\np = "
    "argparse.ArgumentParser()\np.add_argument('--job_name')",
}
# The cases in which argparse would ignore the value of the flag without an error.
QUIETLY = ("a switch", "a switch or not", "defined twice in two ways")
TAKEN_ELSEWHERE = {
    "absl": "flags.DEFINE_bool('issync', False, '')\nflags.DEFINE_list('ps_hosts', [], '')",
    "absl, an enum in any case": "flags.DEFINE_enum('job_name', None, ['PS', "
    "'WORKER'], '', case_sensitive=False)",
    "click": "@click.option('--task-index', "
    "type=click.INT)\n@click.option('--issync/--no-issync')\ndef main(): ...",
}


@pytest.mark.parametrize(
    ("text", "message"),
    {**REFUSED, **REFUSED_ELSEWHERE}.values(),
    ids=[*REFUSED, *REFUSED_ELSEWHERE],
)
def test_flag_that_cannot_hold_cluster_value_is_refused(job: Job, text: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        choose_flags(job, text)
    assert message in refused.value.what
    assert str(refused.value.where).startswith("train.py:")
    assert "`flags: none`" in str(refused.value.next)
    assert choose_flags(job, text, flags="none").flags == ()


@pytest.mark.parametrize(
    "text", {**TAKEN, **TAKEN_ELSEWHERE}.values(), ids=[*TAKEN, *TAKEN_ELSEWHERE]
)
def test_flag_that_can_hold_cluster_value_gets_it(job: Job, text: str) -> None:
    assert choose_flags(job, text).flags


@pytest.mark.parametrize("name", [name for name in (*REFUSED, *TAKEN) if name not in QUIETLY])
def test_argparse_agrees(job: Job, name: str, tmp_path: Path) -> None:
    text = REFUSED[name][0] if name in REFUSED else TAKEN[name]
    script = tmp_path / "train.py"
    script.write_text(CHILD.format(text=text))
    chosen = appended_flags.choose_flags(
        replace(job, command=("python", "train.py")),
        source.read_program(("python", "train.py"), {"train.py": text}),
    )
    argvs = [
        [word for flag in chosen.flags for word in flag.arguments(given)]
        for given in TASKS.values()
    ]
    codes = [
        subprocess.run(
            [sys.executable, str(script), *argv], capture_output=True, check=False
        ).returncode
        for argv in argvs
    ]
    assert (set(codes) == {0}) == (name in TAKEN)


def test_default_that_is_no_role_gives_note(job: Job) -> None:
    (note,) = flag_conflicts.notes(
        choose_flags(job, "p.add_argument('--job_name', default='resnet')")
    )
    assert "--job_name (train.py:1)" in note and "'resnet'" in note and "`flags: none`" in note
    assert (
        flag_conflicts.notes(choose_flags(job, "flags.DEFINE_string('job_name', 'worker', '')"))
        == ()
    )


CLASSIC = (
    "p.add_argument('--ps_hosts')\np.add_argument('--job_name')\np.add_argument('--task_index')\n"
)


@pytest.mark.parametrize(
    ("other_definition", "refused"),
    [
        ("p.add_argument('--worker_hosts_file')", True),
        ("p.add_argument('--worker_hosts_file')\np.add_argument('--worker_hosts')", False),
        ("argparse.ArgumentParser(allow_abbrev=False).add_argument('--worker_hosts_file')", False),
        ("flags.DEFINE_string('worker_hosts_file', '', '')", False),
    ],
)
def test_classic_flags_are_not_abbreviations_of_longer_flags(
    job: Job, other_definition: str, refused: bool
) -> None:
    if not refused:
        assert len(choose_flags(job, CLASSIC + other_definition, flags="classic").flags) == 4
        return
    with pytest.raises(
        Refused,
        match="the program lacks --worker_hosts: argparse would read it as --worker_hosts_file",
    ):
        choose_flags(job, CLASSIC + other_definition, flags="classic")
    assert "worker_hosts" not in [
        flag.name for flag in choose_flags(job, CLASSIC + other_definition).flags
    ]


def test_classic_flags_are_checked_against_definitions(job: Job) -> None:
    with pytest.raises(Refused, match="accepts a whole number"):
        choose_flags(job, "p.add_argument('--job_name', type=int)", flags="classic")


@pytest.mark.parametrize(
    "words", [("--task_index=1",), ("--task_index", "1"), ("--job_name=worker",)]
)
def test_same_identity_for_all_tasks_in_command_is_refused(
    job: Job, words: tuple[str, ...]
) -> None:
    with pytest.raises(Refused, match="to every task, and so to ps:0") as refused:
        choose_flags(job, CLASSIC, *words)
    assert "remove --" in str(refused.value.next)
    assert choose_flags(job, CLASSIC, *words, flags="none").flags == ()


def test_other_flags_in_command_are_kept(job: Job) -> None:
    appended = choose_flags(job, CLASSIC, "--ps_hosts=x:1")
    assert [flag.name for flag in appended.flags] == ["job_name", "task_index"]
    assert "the command already has --ps_hosts" in appended.note


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("python train.py --a -- b.txt", 3),
        ("python train.py --a", 3),
        ("numactl -N0 -- python train.py", 5),
        ("env -- python -m pkg.train -- x", 5),
        ("python -c pass -- x", 5),
    ],
)
def test_flags_are_inserted_before_double_dash_of_program(command: str, end: int) -> None:
    assert entry_point.flags_end_index(tuple(command.split())) == end


def test_words_after_double_dash_are_no_flags(job: Job) -> None:
    assert [flag.name for flag in choose_flags(job, CLASSIC, "--", "--task_index=1").flags] == [
        "ps_hosts",
        "job_name",
        "task_index",
    ]
