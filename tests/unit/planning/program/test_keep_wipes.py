"""Programs that delete or rename a `keep` folder, as they are written in the wild, and what is none of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.program import keep_wipes
from tfdeploy.planning.source import source as program_source

FLAGS = 'tf.app.flags.DEFINE_string("train_dir", "/tmp/cifar", "Where")\n'
ARGS = 'p.add_argument("--log-dir", default="logs")\nargs = p.parse_args()\n'
WIPES = {
    "cifar10_train": FLAGS + "if tf.gfile.Exists(FLAGS.train_dir):\n  tf.gfile.DeleteRecursively(FLAGS.train_dir)",
    "by argparse": ARGS + "shutil.rmtree(args.log_dir, ignore_errors=True)",
    "a name": 'LOGS = "./logs/"\ndef main():\n  shutil.rmtree(LOGS)',
    "a name of a flag": ARGS + "where = args.log_dir\nos.rename(where, where + '.old')",
    "joined": "from shutil import rmtree\nroot = 'out'\nrmtree(os.path.join(root, 'ckpt'))",
    "the folder above": "shutil.rmtree('out')",
    "a shell": "os.system('rm -rf logs && mkdir logs')",
    "a shell, put together": ARGS + "subprocess.call(['rm', '-rf', args.log_dir])",
    "a format": ARGS + "os.system('rm -rf %s' % args.log_dir)",
    "pathlib": "pathlib.Path('logs').rename('old')",
    "tf.io": "tf.io.gfile.rmtree(path='logs')",
}
FINE = {
    "another folder": "shutil.rmtree('plots')",
    "below it": "os.remove('logs/old.txt')",
    "a text's replace": "line = line.replace('logs', 'x')",
    "unknown": "shutil.rmtree(sys.argv[1])",
    "a list's remove": "names.remove('logs')",
    "a shell that lists": "os.system('ls logs')",
    "a name of itself": "logs = os.path.join(logs, 'x')\nshutil.rmtree(logs)",
}


@pytest.fixture
def notes(job: Job) -> Callable[..., tuple[str, ...]]:
    def read(source: str, *words: str) -> tuple[str, ...]:
        command = ("python", "train.py", *words)
        wanted = replace(job, command=command, keep=("logs", "out/ckpt"))
        return keep_wipes.notes(wanted, program_source.read(command, {"train.py": source}))

    return read


@pytest.mark.parametrize("source", WIPES.values(), ids=WIPES)
def test_what_deletes_or_renames_a_keep_folder_is_noted(notes: Callable[..., tuple[str, ...]], source: str) -> None:
    (said,) = notes(source, "--train_dir=logs")
    where = f"train.py:{len(source.splitlines())} deletes or renames the `keep` folder "
    assert said.startswith((f"{where}logs: what the program", f"{where}out/ckpt: what the program"))


@pytest.mark.parametrize("source", FINE.values(), ids=FINE)
def test_what_does_not_is_not(notes: Callable[..., tuple[str, ...]], source: str) -> None:
    assert notes(source) == ()


def test_the_command_counts_before_the_default(notes: Callable[..., tuple[str, ...]]) -> None:
    assert notes(WIPES["by argparse"], "--log-dir", "plots") == ()
    assert notes(WIPES["cifar10_train"]) == ()
    assert notes("shutil.rmtree('/')", "--train_dir=logs") == ()


def test_without_keep_nothing_is_said(job: Job) -> None:
    assert keep_wipes.notes(job, program_source.read(job.command, {"train.py": "shutil.rmtree('logs')"})) == ()
