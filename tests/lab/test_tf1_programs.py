"""Test that programs for TensorFlow 1 run unchanged on TensorFlow 2 if tfdeploy launches them.

The programs are as their authors wrote them. They use `import tensorflow as tf`, tf.app.flags or
argparse, contrib, input_data, and cluster specs with the addresses of other machines.

If the suite is run by hand, it tests a few programs that together use most features. In CI, or with
`TFDEPLOY_TEST_ALL=1`, it tests all programs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.files import idx
from support.lab.commandline import Tfdeploy
from support.waiting import every
from tfdeploy.lab import Lab

PROGRAMS = Path(__file__).parent / "programs" / "tf1"
ROLES = {"ps": ["n1"], "worker": ["n2", "n3"]}
# The roles for programs that are tested with only one worker, because a second worker would show
# nothing new.
ONE_WORKER = {"ps": ["n1"], "worker": ["n2"]}


@dataclass(frozen=True)
class Program:
    """One program for TensorFlow 1.

    `said` is {task: a pattern that its log must contain}. `notes` are notes about the program that
    the plan must contain.
    """

    name: str
    mode: str
    said: dict[str, str]
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    roles: dict[str, list[str]] = field(default_factory=lambda: ROLES)


HARDWIRED = Program(
    name="hardwired",
    mode="async",
    said={"worker:0": r"Test-Accuracy: \d", "worker:1": r"Variables initialized"},
    notes=(
        "hardwired.py:22 is replaced by the plan's cluster; worker tasks: 3 in the program, 2 in "
        "the plan",
    ),
)
MONITORED = Program(
    name="trainer_monitored",
    mode="async",
    said={"worker:0": r"step \d+ loss"},
    keep=("checkpoints",),
    roles=ONE_WORKER,
)
QUEUES = Program(
    name="sync_queue_runners",
    mode="sync",
    said={"worker:0": r"worker 0: last step \d+, loss", "worker:1": "loss"},
    flags=("--steps=60",),
    keep=("train",),
)
ISSYNC = Program(
    name="mnist_issync",
    mode="sync",
    said={"worker:0": r"step: \d+, loss: \d", "worker:1": r"finished"},
)
HOGWILD = Program(
    name="hogwild",
    mode="async",
    said={"worker:0": r"worker 0 of 2: .*loss", "worker:1": r"worker 1: accuracy 0\.\d"},
)
OWN_WORDS = Program(
    name="own_words",
    mode="sync",
    said={"worker:0": r"worker 0: sync step \d+ loss", "worker:1": r"worker 1: sync step \d+ loss"},
    notes=(
        "--job as {job_name}:{task_index} (own_words.py:31)",
        "--update as {issync} (own_words.py:46)",
        "--log_dir={keep.train}",
        "--data_dir={data.mnist}",
    ),
    keep=("train",),
)
OTHERS = (
    OWN_WORDS,
    Program(
        name="mnist_softmax_supervisor",
        mode="async",
        said={"worker:0": r"Test accuracy = 0\.\d"},
        flags=("--data_dir={data.mnist}",),
        roles=ONE_WORKER,
    ),
    Program(
        name="summaries_of_2016",
        mode="async",
        said={
            "worker:0": r"done at step \d+: loss 0\.[0-5]\d*, right (1\.0|0\.[89])",
            "worker:1": r"summaries_of_2016.py:\d+: .* order is taken to be \(logits, labels\)",
        },
    ),
    Program(
        name="mnist_issync", mode="async", said={"worker:0": r"worker 0 finished"}, roles=ONE_WORKER
    ),
    Program(
        name="downpour", mode="async", said={"worker:0": r"worker 0: final loss"}, roles=ONE_WORKER
    ),
    Program(
        name="accumulated",
        mode="async",
        said={"worker:0": r"worker 0 step \d+ loss"},
        roles=ONE_WORKER,
    ),
    Program(
        name="ingraph_sum",
        mode="ingraph",
        said={"chief:0": r"mean 49\.50"},
        notes=("ingraph_sum.py:5 is replaced",),
        roles={"worker": ["n2", "n3"]},
    ),
    Program(
        name="ingraph_local",
        mode="ingraph",
        said={"chief:0": r"mean 49\.50"},
        notes=("job is called local",),
        roles={"worker": ["n2", "n3"]},
    ),
    Program(
        name="exports_later",
        mode="local",
        said={"worker:0": r"w 3\.00, of its own accord without cudnn_rnn: True"},
        notes=(
            "tf.contrib.session_bundle.exporter.Exporter (exports_later.py:18)",
            "crf_log_likelihood (exports_later.py:28)",
        ),
        roles={"worker": ["n2"]},
    ),
    Program(
        name="ingraph_host",
        mode="ingraph",
        said={"chief:0": r"total 32\.0"},
        notes=("the program's own server has the job name host",),
        roles={"worker": ["n2", "n3"]},
    ),
    Program(
        name="cloud_master",
        mode="async",
        said={
            "worker:0": r"master:0 of 1 workers: step \d+ loss 0\.0",
            "worker:1": r"worker:0 of 1 workers",
        },
        notes=("in TF_CONFIG, worker:0 is master:0",),
    ),
    Program(
        name="yarn_variables",
        mode="async",
        said={"worker:0": r"worker 0 of 2: step \d+ loss 0\.0", "worker:1": r"worker 1 of 2"},
        notes=(
            "variables that tfdeploy sets because the program reads them: "
            "CLUSTER_SPEC (yarn_variables.py:8)",
        ),
    ),
    Program(
        name="own_host",
        mode="async",
        said={"worker:0": r"worker 0: step \d+ loss 0\.0", "worker:1": r"worker 1: step"},
        notes=(
            "finds its task by the name of its host (own_host.py:10)",
            "worker:1 is 10.100.68.183",
        ),
    ),
    Program(
        name="hello_local_job",
        mode="async",
        said={"worker:0": r"the sum of squares is 25\.0"},
        notes=("the program's job local means the role worker",),
    ),
)


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnist")
    idx.write(folder)
    return folder


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy], mnist: Path) -> Tfdeploy:
    """Return an operator whose folder contains the programs and their data."""
    made = tfdeploy(few_hosts)
    shutil.copytree(mnist, made.cwd / "MNIST_data")
    return made


def write_job(operator: Tfdeploy, program: Program, **keys: object) -> None:
    text = operator.lab.inventory.read_text()
    inventory = operator.home / "inventory.yaml"
    inventory.write_text(text[: text.index("roles:")] + f"roles: {json.dumps(program.roles)}\n")
    operator.env["TFDEPLOY_INVENTORY"] = str(inventory)
    shutil.copy(PROGRAMS / f"{program.name}.py", operator.cwd)
    job = {
        "name": f"{program.name}-{program.mode}".replace("_", "-"),
        "mode": program.mode,
        "data": {"mnist": "MNIST_data"},
        # A server that only calls `join` never ends without a signal.
        "finish": {"grace": "10s"},
        "keep": list(program.keep),
        "command": ["python", f"{program.name}.py", *program.flags],
        **keys,
    }
    (operator.cwd / "tfdeploy.yaml").write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in job.items())
    )


def lines_of(operator: Tfdeploy, run: str) -> dict[str, str]:
    results: dict[str, list[str]] = {}
    for text in operator.run("logs", run, "--output", "json", exit_code=0).stdout.splitlines():
        row = json.loads(text)
        results.setdefault(row["task"], []).append(row["line"])
    return {task: "\n".join(lines) for task, lines in results.items()}


def assert_said(program: Program, said: dict[str, str]) -> None:
    for task, pattern in program.said.items():
        assert re.search(pattern, said[task]), said[task][-2000:]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "program",
    [
        HARDWIRED,
        MONITORED,
        QUEUES,
        *(pytest.param(each, marks=every) for each in (ISSYNC, *OTHERS)),
    ],
    ids=lambda each: f"{each.name}-{each.mode}",
)
def test_it_trains_without_an_edit(operator: Tfdeploy, program: Program) -> None:
    write_job(operator, program)
    notes = "\n".join(operator.json("launch", "--dry-run")["notes"])
    assert "compat v1: the program uses tf." in notes
    for note in program.notes:
        assert note in notes

    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines_by_task = lines_of(operator, run)
    assert_said(program, lines_by_task)
    if program == HARDWIRED:
        assert lines_by_task["worker:0"].count("is replaced by the plan's cluster") == 1
    for host in operator.lab.hosts:
        assert operator.marked(host, run) == []


@every
@pytest.mark.tensorflow
def test_workers_that_serve_one_of_them_need_no_ps(operator: Tfdeploy) -> None:
    program = Program(
        name="ingraph_own_servers",
        mode="async",
        said={"worker:0": r"finished at step \d+ with loss 0\.0", "worker:2": "serving task 2"},
        keep=("model",),
        roles={"ps": ["n1"], "worker": ["n1", "n2", "n3"]},
    )
    write_job(operator, program)
    notes = "\n".join(operator.json("launch", "--dry-run")["notes"])
    assert "it has no ps, so write `roles: {ps: {count: 0}}`" in notes
    write_job(operator, program, roles={"ps": {"count": 0}})
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    assert_said(program, lines_of(operator, run))


@every
@pytest.mark.tensorflow
def test_a_shell_script_may_start_it_once_the_job_says_what_it_is(operator: Tfdeploy) -> None:
    command = ["bash", "train.sh", "{job_name}", "{task_index}"]
    write_job(operator, HOGWILD, command=command, compat="v1", name="in-a-shell")
    (operator.cwd / "train.sh").write_text(
        "set -e\npython hogwild.py --job_name=$1 --task_index=$2\n"
    )
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines_by_task = lines_of(operator, run)
    assert "is replaced by the plan's cluster" in lines_by_task["worker:0"]
    assert_said(HOGWILD, lines_by_task)


@every
@pytest.mark.tensorflow
def test_a_shell_script_that_passes_its_arguments_on_needs_no_setting(operator: Tfdeploy) -> None:
    write_job(operator, HOGWILD, command=["bash", "train.sh"], name="by-a-script")
    (operator.cwd / "train.sh").write_text('export KIND=lab\nexec python hogwild.py "$@"\n')
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines_by_task = lines_of(operator, run)
    assert "is replaced by the plan's cluster" in lines_by_task["worker:0"]
    assert_said(HOGWILD, lines_by_task)


@every
@pytest.mark.tensorflow
def test_a_cluster_that_the_job_lets_stand_is_used(operator: Tfdeploy) -> None:
    write_job(operator, HOGWILD, cluster="program", name="stands")
    text = (operator.cwd / "hogwild.py").read_text()
    addresses = [row["address"] for row in operator.lab.status()]
    for old, new in zip(
        ("localhost:2222", "localhost:2223", "localhost:2224"), addresses, strict=False
    ):
        text = text.replace(old, f"{new}:4321")
    (operator.cwd / "hogwild.py").write_text(text)
    plan = operator.json("launch", "--dry-run")
    assert any(re.search(r"hogwild.py:\d+ is used", note) for note in plan["notes"])
    assert {task["port"] for task in plan["tasks"]} == {None}
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines_by_task = lines_of(operator, run)
    assert "tfdeploy:" not in lines_by_task["worker:0"]
    assert_said(HOGWILD, lines_by_task)


@every
@pytest.mark.tensorflow
@pytest.mark.parametrize("compat", ["auto", "none"])
def test_a_migrated_program_gets_the_keras_that_it_was_written_for(
    operator: Tfdeploy, compat: str
) -> None:
    program = Program(
        name="migrated/train", mode="async", said={"worker:0": r"step \d+ loss"}, roles=ONE_WORKER
    )
    shutil.copy(PROGRAMS / "migrated" / "common.py", operator.cwd)
    write_job(operator, program, name="migrated", command=["python", "train.py"], compat=compat)
    notes = "\n".join(operator.json("launch", "--dry-run")["notes"])
    assert "TF_USE_LEGACY_KERAS=1: tf.compat.v1.nn.rnn_cell.BasicLSTMCell (train.py:" in notes
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    assert_said(program, lines_of(operator, run))


def test_what_cannot_be_supplied_is_refused_before_anything_runs(operator: Tfdeploy) -> None:
    slim = (
        "import tensorflow as tf\nfrom tensorflow.contrib import slim\n\nnet = slim.conv2d\ns = "
        "tf.contrib.crf.crf_decode\n"
    )
    write_job(operator, HARDWIRED)
    (operator.cwd / "hardwired.py").write_text(slim)
    refused = operator.run("launch", "--wait", exit_code=3)
    assert "hardwired.py:4" in refused.stderr
    assert "pip install tf_slim" in refused.stderr
    assert "hardwired.py:5: tf.contrib.crf.crf_decode" in refused.stderr

    (operator.cwd / "hardwired.py").write_text("import tensorflow as tf\nprint tf.__version__\n")
    refused = operator.run("launch", "--wait", exit_code=3)
    assert "hardwired.py:2" in refused.stderr
    assert "2to3 -w hardwired.py" in refused.stderr
