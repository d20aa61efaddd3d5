"""Test the environment variables with which other launchers tell a program its cluster.

A task gets such a variable if the program reads it and nothing else sets it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.program import env_variables
from tfdeploy.planning.source import source

CLUSTER = {"ps": ("a:1",), "worker": ("b:1", "c:1")}
YARN = """
cluster = json.loads(os.environ["CLUSTER_SPEC"])
workers = int(os.environ["WORKER_CNT"])
job_name = os.environ["JOB_NAME"]
index = int(os.environ["TASK_ID"])
"""


def decide(text: str, job: Job) -> env_variables.ClusterVariables:
    return env_variables.decide_cluster_variables(
        job, source.read_program(("python", "train.py"), {"train.py": text})
    )


def values(text: str, job: Job) -> dict[str, str]:
    return decide(text, job).values(CLUSTER, "worker", 1)


def test_program_written_for_yarn(job: Job) -> None:
    spec = '{"ps":["a:1"],"worker":["b:1","c:1"]}'
    assert values(YARN, job) == {
        "CLUSTER_SPEC": spec,
        "WORKER_CNT": "2",
        "JOB_NAME": "worker",
        "TASK_ID": "1",
    }
    assert (
        "CLUSTER_SPEC (train.py:2), WORKER_CNT (train.py:3), JOB_NAME (train.py:4)"
        in decide(YARN, job).notes[0]
    )


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('os.environ.get("PS_HOSTS", "").split(",")', {"PS_HOSTS": "a:1"}),
        ('getenv("WORKER_HOSTS")', {"WORKER_HOSTS": "b:1,c:1"}),
        ('json.loads(os.environ["WORKER_HOSTS"])', {"WORKER_HOSTS": '["b:1", "c:1"]'}),
        ('if "TASK_INDEX" in os.environ: pass', {"TASK_INDEX": "1"}),
        (
            'os.environ["task_type"], environ["task_index"]',
            {"task_type": "worker", "task_index": "1"},
        ),
        ('os.getenv("JOB_NAME"), os.getenv("JOB_INDEX")', {"JOB_NAME": "worker", "JOB_INDEX": "1"}),
        (
            'os.environ["MASTER_HOSTS"], os.environ["PS_HOSTS"]',
            {"MASTER_HOSTS": "", "PS_HOSTS": "a:1"},
        ),
        # The program reads only this variable of the launcher, so the variable may mean anything.
        ('os.environ.get("JOB_NAME", "mnist")', {}),
        ('os.environ["TASK_ID"]', {}),
        ('os.environ["NUM_WORKERS"]', {}),
        # The program itself sets the variable first, and then reads it.
        ('os.environ["CLUSTER_SPEC"] = spec\njson.loads(os.environ["CLUSTER_SPEC"])', {}),
        ('os.environ.setdefault("TASK_INDEX", "0")\nint(os.environ["TASK_INDEX"])', {}),
        # These names look like environment variables, but the program looks them up in a dictionary
        # of its own.
        ('settings["CLUSTER_SPEC"], settings.get("TASK_INDEX")', {}),
    ],
)
def test_supplied_variables(job: Job, text: str, given: dict[str, str]) -> None:
    assert values(text, job) == given


def test_google_format_has_task_next_to_cluster(job: Job) -> None:
    text = 'spec = json.loads(os.environ.get("CLUSTER_SPEC", "{}"))\ncluster = spec["cluster"]'
    whole = '{"cluster":{"ps":["a:1"],"worker":["b:1","c:1"]},"task":{"type":"worker","index":1}}'
    assert values(text, job) == {"CLUSTER_SPEC": whole}
    text_with_tf_config = text + '\nconfig = json.loads(os.environ["TF_CONFIG"])["cluster"]'
    assert values(text_with_tf_config, job) == {
        "CLUSTER_SPEC": '{"ps":["a:1"],"worker":["b:1","c:1"]}'
    }


def test_variables_set_in_job_file_are_kept(job: Job) -> None:
    assert set(values(YARN, replace(job, env={"CLUSTER_SPEC": "x"}, secrets=("TASK_ID",)))) == {
        "WORKER_CNT",
        "JOB_NAME",
    }
    assert (
        values(YARN, replace(job, mode="local")) == values(YARN, replace(job, mode="plain")) == {}
    )


def test_variables_of_old_platform_give_note(job: Job) -> None:
    text = 'name, index, _ = os.environ.get("POD_NAME").split("-")'
    (note,) = decide(text, job).notes
    assert "the program reads POD_NAME (train.py:1)" in note and "`env: {POD_NAME: ...}`" in note
    assert decide(text, replace(job, env={"POD_NAME": "{job_name}-{task_index}"})).notes == ()
