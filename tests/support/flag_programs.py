"""Programs that define flags about their cluster, and the flags that tfdeploy appends for them."""

from __future__ import annotations

from dataclasses import replace

from tfdeploy.model.job import Job, Mode
from tfdeploy.planning.flags import appended_flags
from tfdeploy.planning.program import flag_conflicts
from tfdeploy.planning.source import source

GIVEN = {
    "ps_hosts": "a:1,b:2",
    "worker_hosts": "c:3,d:4",
    "chief_hosts": "",
    "cluster": '{"ps":["a:1","b:2"],"worker":["c:3","d:4"]}',
    "job_name": "worker",
    "task_index": "1",
    "issync": "1",
    "num_workers": "2",
    "num_ps": "1",
}
HEAD = "import argparse, ast, json, sys\nimport tensorflow as tf\n"
ARGS = "p = argparse.ArgumentParser()\n"
CLUSTER = (
    'cluster = tf.train.ClusterSpec({"ps": ["localhost:1"], "worker": ["localhost:2", '
    '"localhost:3"]})\n'
)


def choose_flags(
    job: Job, text: str, mode: Mode = "async", given_words: tuple[str, ...] = (), **others: str
) -> appended_flags.AppendedFlags:
    job = replace(job, mode=mode, command=("python", "train.py", *given_words))
    sources = {
        "train.py": HEAD + text,
        **{f"{name}.py": HEAD + body for name, body in others.items()},
    }
    program = source.read_program(job.command, sources)
    assert not program.unread_reason
    appended = appended_flags.choose_flags(job, program)
    flag_conflicts.refuse_unaccepted_values(job, program, appended, {"worker:1": GIVEN})
    return appended


def chosen_arguments(
    job: Job, text: str, given: dict[str, str] = GIVEN, **others: str
) -> tuple[str, ...]:
    return tuple(
        word for flag in choose_flags(job, text, **others).flags for word in flag.arguments(given)
    )


def gathering_program(definition: str, test: str) -> str:
    return (
        f"{ARGS}{definition}\np.add_argument('--job_name')\np.add_argument('--task_index', "
        "type=int)\n"
        f"FLAGS = p.parse_args()\n{CLUSTER}"
        f"opt = tf.train.GradientDescentOptimizer(0.1)\nif {test}:\n  opt = "
        "tf.train.SyncReplicasOptimizer(opt)\n"
        "s = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)"
    )
