"""Test which flags tfdeploy finds in a program, and which values the tasks get for these flags. The
programs define flags in the forms that public programs use.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.flags import appended_flags, flags
from tfdeploy.planning.flags.flag_definitions import Flag
from tfdeploy.planning.program import task_identity
from tfdeploy.planning.source import source

ALL = ("ps_hosts", "worker_hosts", "job_name", "task_index", "issync")
CLASSIC = ALL[:4]


def find_flags(text: str, **others: str) -> tuple[Flag, ...]:
    sources = {"train.py": text, **{f"{name}.py": body for name, body in others.items()}}
    return flags.cluster_flags(source.read_program(("python", "train.py"), sources)).flags


def chosen_arguments(text: str, *, sync: bool = False) -> tuple[str, ...]:
    given = {
        "ps_hosts": "a:1,b:2",
        "worker_hosts": "c:3",
        "job_name": "ps",
        "task_index": "0",
        "issync": str(int(sync)),
    }
    return tuple(word for flag in find_flags(text) for word in flag.arguments(given))


PROGRAMS = {
    "argparse in a loop": (
        """
parser = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts"):
    parser.add_argument("--" + name, default="")
for option, words in [("job_name", "its role"), ("task_index", "its number")]:
    parser.add_argument(f"--{option}", help=words)
""",
        CLASSIC,
    ),
    "absl in a loop": (
        """
for name in ["ps_hosts", "worker_hosts", "job_name"]:
    flags.DEFINE_string(name, None, "")
flags.DEFINE_integer("task_index", 0, "")
""",
        CLASSIC,
    ),
    "tf.app.flags, the distributed tutorial of TensorFlow 1": (
        """
import tensorflow as tf
tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
FLAGS = tf.app.flags.FLAGS
""",
        CLASSIC,
    ),
    "flags = tf.app.flags, with issync": (
        """
flags = tf.app.flags
flags.DEFINE_string('job_name', 'worker', '')
flags.DEFINE_integer('task_index', None, '')
flags.DEFINE_integer('issync', 0, '')
""",
        ("job_name", "task_index", "issync"),
    ),
    "tf.compat.v1 and a boolean": (
        "import tensorflow.compat.v1 as tf\ntf.compat.v1.app.flags.DEFINE_boolean('issync', "
        "False, 'x')\n"
        "tf.flags.DEFINE_bool('unrelated', True, '')",
        ("issync",),
    ),
    "absl": (
        "from absl import app, flags\nflags.DEFINE_list('ps_hosts', [], '')\n"
        "flags.DEFINE_enum('job_name', None, ['ps', 'worker'], '')\n"
        "_I = flags.DEFINE_integer(name='task_index', default=0, help='')",
        ("ps_hosts", "job_name", "task_index"),
    ),
    "absl, names imported": (
        "from absl.flags import DEFINE_string\nDEFINE_string('job_name', '', '')",
        ("job_name",),
    ),
    "argparse with parse_known_args, the guide of 2017": (
        """
import argparse
if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.register("type", "bool", lambda v: v.lower() == "true")
  parser.add_argument("--ps_hosts", type=str, default="", help="x")
  parser.add_argument("--worker_hosts", type=str, default="", help="x")
  parser.add_argument("--job_name", type=str, default="", help="x")
  parser.add_argument("--task_index", type=int, default=0, help="x")
  FLAGS, unparsed = parser.parse_known_args()
""",
        CLASSIC,
    ),
    "argparse in a function, several option strings": (
        "def arguments():\n    p = argparse.ArgumentParser()\n    g = "
        "p.add_argument_group('cluster')\n"
        "    g.add_argument('-j', '--job_name', '--job', required=True)\n    "
        "g.add_argument('-t', '--task_index', type=int)\n"
        "    return p.parse_args()",
        ("job_name", "task_index"),
    ),
    "optparse": ("parser.add_option('--job_name', dest='job')", ("job_name",)),
    "click": (
        "@click.command()\n@click.option('--job-name', "
        "required=True)\n@click.option('--task-index', type=int)\n"
        "def main(**k): ...",
        ("job_name", "task_index"),
    ),
    "cluster in the file, sys.argv by hand": (
        "cluster = {'ps': ['localhost:2222']}\njob_name, task_index = sys.argv[1], "
        "int(sys.argv[2])",
        (),
    ),
    "positional arguments are not flags": (
        "p.add_argument('job_name')\np.add_argument('task_index', type=int)",
        (),
    ),
    "other flags": (
        "p.add_argument('--steps')\nflags.DEFINE_string('data_dir', '', '')\nprint('--job_name')",
        (),
    ),
    "a BOM and an invalid escape": (
        "\ufeffp.add_argument('--job_name', help='\\d')",
        ("job_name",),
    ),
}


@pytest.mark.parametrize(("text", "names"), PROGRAMS.values(), ids=PROGRAMS)
def test_names_of_flags(text: str, names: tuple[str, ...]) -> None:
    assert tuple(flag.name for flag in find_flags(text)) == names


@pytest.mark.parametrize(
    ("definition", "off", "on"),
    [
        ("p.add_argument('--issync', type=int)", ("--issync=0",), ("--issync=1",)),
        ("flags.DEFINE_boolean('issync', False, '')", ("--issync=0",), ("--issync=1",)),
        ("p.add_argument('--issync', action='store_true')", (), ("--issync",)),
        ("p.add_argument('--issync', action='store_false')", ("--issync",), ()),
        ("p.add_argument('--issync', type=bool, default=False)", ("--issync=",), ("--issync=1",)),
        (
            "p.add_argument('--issync', action=argparse.BooleanOptionalAction)",
            ("--no-issync",),
            ("--issync",),
        ),
        ("option('--issync', is_flag=True)", (), ("--issync",)),
        ("option('--issync/--no-issync')", ("--no-issync",), ("--issync",)),
        (
            "p.add_argument('--ps_hosts', nargs='+')",
            ("--ps_hosts", "a:1", "b:2"),
            ("--ps_hosts", "a:1", "b:2"),
        ),
        (
            "p.add_argument('--ps-hosts', '--ps_hosts')",
            ("--ps-hosts=a:1,b:2",),
            ("--ps-hosts=a:1,b:2",),
        ),
        ("p.add_argument('-job_name')", ("-job_name=ps",), ("-job_name=ps",)),
    ],
)
def test_spelling_and_form(definition: str, off: tuple[str, ...], on: tuple[str, ...]) -> None:
    assert chosen_arguments(definition) == off
    assert chosen_arguments(definition, sync=True) == on


ARGPARSE_FORMS = [
    "p.add_argument('--issync', type=int, default=7)",
    "p.add_argument('--issync', action='store_true')",
    "p.add_argument('--issync', action='store_false')",
    "p.add_argument('--issync', type=bool, default=None)",
    "p.add_argument('--issync', action=argparse.BooleanOptionalAction)",
]


@pytest.mark.parametrize("definition", ARGPARSE_FORMS)
@pytest.mark.parametrize("sync", [False, True])
def test_argparse_reads_appended_flags(definition: str, sync: bool, tmp_path: Path) -> None:
    text = (
        "import argparse\np = "
        f"argparse.ArgumentParser()\n{definition}\nprint(int(p.parse_args().issync))\n"
    )
    script = tmp_path / "train.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script), *chosen_arguments(text, sync=sync)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{int(sync)}\n"


def test_flags_of_imported_modules_are_found() -> None:
    assert [
        flag.name
        for flag in find_flags("import options", options="flags.DEFINE_string('job_name', '', '')")
    ] == ["job_name"]


def test_flags_in_main_block_of_imported_module_are_ignored() -> None:
    other = "if __name__ == '__main__':\n    p.add_argument('--job_name')"
    assert find_flags("import other", other=other) == ()


def test_flags_of_modules_that_are_not_imported_are_ignored() -> None:
    assert find_flags("import os", options="flags.DEFINE_string('job_name', '', '')") == ()


TASK_ID = (
    "tf.app.flags.DEFINE_string('job_name', '', '')\ntf.app.flags.DEFINE_integer('task_id', 0, "
    "'')\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TASK_ID, ("--job_name=ps", "--task_id=0")),
        (
            TASK_ID + "tf.app.flags.DEFINE_integer('task_index', 0, '')",
            ("--job_name=ps", "--task_index=0"),
        ),
        (
            "p.add_argument('--job-name')\np.add_argument('--task', type=int)",
            ("--job-name=ps", "--task=0"),
        ),
        (
            TASK_ID + "tf.app.flags.DEFINE_boolean('sync_replicas', False, '')",
            ("--job_name=ps", "--task_id=0", "--sync_replicas=1"),
        ),
        (
            "p.add_argument('--job_name')\np.add_argument('--sync_replicas', action='store_true')",
            ("--job_name=ps", "--sync_replicas"),
        ),
        ("p.add_argument('--task_id', type=int)\np.add_argument('--sync_replicas', type=bool)", ()),
        ("p.add_argument('--job_name')\np.add_argument('--task')", ("--job_name=ps",)),
    ],
)
def test_index_flag_with_another_name(text: str, expected: tuple[str, ...]) -> None:
    """Test flags such as --task_id, which gets the index of the task only if the program also has
    --job_name for the role.

    Without --job_name, the flag --task_id may mean something else, such as a learning task.
    """
    assert chosen_arguments(text, sync=True) == expected


def test_role_without_index_gives_note() -> None:
    job = Job(name="j", mode="async", command=("python", "train.py"), code="/code")
    program = source.read_program(
        job.command,
        {"train.py": "p.add_argument('--job_name')\np.add_argument('--number', type=int)"},
    )
    assert (
        "none of these flags is the task's index" in appended_flags.choose_flags(job, program).note
    )
    program = source.read_program(job.command, {"train.py": TASK_ID})
    assert appended_flags.choose_flags(job, program).note.endswith(
        "--job_name --task_id as {task_index}"
    )


@pytest.mark.parametrize(
    ("text", "has_note"),
    [
        ("import sys\nname, index = sys.argv[1:]", True),
        ("import os, json\njson.loads(os.environ['TF_CONFIG'])", False),
        ("r = tf.distribute.cluster_resolver.TFConfigClusterResolver()", False),
    ],
)
def test_program_that_does_not_get_its_identity_gives_note(text: str, has_note: bool) -> None:
    job = Job(name="j", mode="async", command=("python", "train.py"), code="/code")
    program = source.read_program(job.command, {"train.py": text})
    note = task_identity.isolation_note(job, program, appended_flags.choose_flags(job, program), 2)
    assert (
        note is not None and note.startswith("each of the 2 workers would train alone")
    ) == has_note
