"""Test that TF_CONFIG and flags use the program's own names for the roles, such as "master" for the
chief.

These names come from the job file or from the text of the program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.model.plan import Plan
from tfdeploy.planning.flags.role_programs import group_by_program
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.program import job_names
from tfdeploy.planning.source import source

CLOUD = """
import json, os
import tensorflow as tf
env = json.loads(os.environ.get("TF_CONFIG", "{}"))
kind, index = env["task"]["type"], env["task"]["index"]
server = tf.train.Server(env["cluster"], job_name=kind, task_index=index)
if kind == "ps":
    server.join()
sv = tf.train.Supervisor(is_chief=(kind == "master"))
"""
WITHOUT_CHIEF = {"ps": "n1", "worker": "n2 n3"}
WITH_CHIEF = {"ps": "n1", "chief": "n2", "worker": "n3"}


@pytest.fixture
def make(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> Callable[..., Plan]:
    """Return a function make(text of train.py, {role: hosts}, ...), which returns a plan. Keyword
    arguments set fields of the job.
    """

    def made(text: str, named: dict[str, str] | None = None, /, **fields: Any) -> Plan:
        hosts = inventory(**(named or WITHOUT_CHIEF))
        facts = {host.name: facts_of(host) for host in hosts.hosts}
        stamp = {
            "release": "c0ffee",
            "run": "digits-1",
            "now": 1.0,
            "operator": "ml@desk",
            "options": Options(any_mode=True),
        }
        return make_plan(hosts, replace(job, **fields), facts, sources={"train.py": text}, **stamp)  # type: ignore[arg-type]

    return made


def tf_configs(plan: Plan) -> dict[str, Any]:
    return {task.task: json.loads(task.env["TF_CONFIG"]) for task in plan.tasks}


def places(plan: Plan) -> dict[str, str]:
    return {
        task: "{type}:{index}".format(**tf_config["task"])
        for task, tf_config in tf_configs(plan).items()
    }


def test_first_worker_is_master_if_program_needs_master(
    make: Callable[..., Plan],
) -> None:
    plan = make(CLOUD)
    assert places(plan) == {"ps:0": "ps:0", "worker:0": "master:0", "worker:1": "worker:0"}
    addresses = {task.task: task.address for task in plan.tasks}
    expected = {"ps": ["ps:0"], "master": ["worker:0"], "worker": ["worker:1"]}
    for tf_config in tf_configs(plan).values():
        assert tf_config["cluster"] == {
            job: [addresses[task] for task in tasks] for job, tasks in expected.items()
        }
    assert "in TF_CONFIG, worker:0 is master:0" in "\n".join(plan.notes)
    assert plan.deciding == ("worker:0",)
    assert plan.cluster == {
        "ps": (addresses["ps:0"],),
        "worker": (addresses["worker:0"], addresses["worker:1"]),
    }


def test_chief_of_plan_is_called_master(make: Callable[..., Plan]) -> None:
    plan = make(CLOUD, WITH_CHIEF)
    assert places(plan) == {"ps:0": "ps:0", "chief:0": "master:0", "worker:0": "worker:0"}
    assert set(tf_configs(plan)["ps:0"]["cluster"]) == {"ps", "master", "worker"}
    assert "the chief is called master in TF_CONFIG: train.py:9 looks for" in "\n".join(plan.notes)


def test_first_worker_of_estimator_is_chief(job: Job) -> None:
    text = "import tensorflow as tf\ntf.estimator.train_and_evaluate(e, t, v)\n"
    program = source.read_program(("python", "train.py"), {"train.py": text})
    planned = {"ps": ("n1:1",), "worker": ("n2:1", "n3:1")}
    names = job_names.decide_job_names(job, program, planned)
    assert names.cluster(planned) == {"ps": ("n1:1",), "chief": ("n2:1",), "worker": ("n3:1",)}
    assert "tf.estimator.train_and_evaluate needs a chief (train.py:2)" in names.notes[0]
    planned["chief"] = ("n4:1",)
    assert job_names.decide_job_names(job, program, planned).cluster(planned) == planned


@pytest.mark.parametrize(
    "asks",
    [
        'if kind in ("worker", "master"): pass',
        'MASTER = "master"\nif kind == MASTER: pass',
        'hosts = env["cluster"]["master"]',
        'hosts = env["cluster"].get("master")',
        'chief = "master" == kind and not index',
        'chief = kind == "master" and index == 0',
    ],
)
def test_ways_of_asking_for_master(make: Callable[..., Plan], asks: str) -> None:
    text = CLOUD.replace('kind == "master"', "asked") + asks
    assert places(make(text))["worker:0"] == "master:0"


@pytest.mark.parametrize(
    "text",
    [
        CLOUD.replace('kind == "master"', 'kind in ("chief", "master")'),
        CLOUD.replace("TF_CONFIG", "OWN_CONFIG"),
        CLOUD.replace('kind == "master"', 'kind == "master" or index == 0'),
        CLOUD.replace(
            'kind == "master"',
            'kind == "master" or kind == "worker" and not int(env["task"]["index"])',
        ),
        CLOUD.replace('kind == "master"', "index == 0"),
        CLOUD.replace('kind == "master"', "index == 0")
        + 'flags.DEFINE_string("master", "", "address")',
    ],
    ids=[
        "knows a chief",
        "reads no TF_CONFIG",
        "or worker 0",
        "or a worker without an index",
        "never asks",
        "a flag of it",
    ],
)
def test_other_programs_get_names_of_plan(make: Callable[..., Plan], text: str) -> None:
    assert all(place == task for task, place in places(make(text)).items())


def test_chief_is_renamed_only_in_between_graph_modes(make: Callable[..., Plan]) -> None:
    plan = make(CLOUD, {"worker": "n2 n3"}, mode="mirrored")
    assert places(plan) == {"worker:0": "worker:0", "worker:1": "worker:1"}


def test_job_file_names_roles(make: Callable[..., Plan]) -> None:
    roles = {"chief": RoleRule(called="host"), "worker": RoleRule(called="work")}
    plan = make("import tensorflow", WITH_CHIEF, roles=roles)
    assert places(plan) == {"ps:0": "ps:0", "chief:0": "host:0", "worker:0": "work:0"}
    assert set(tf_configs(plan)["ps:0"]["cluster"]) == {"ps", "host", "work"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('tf.train.ClusterSpec({"ps": ["a:1"], "work": ["a:2", "a:3"]})', {"worker": "work"}),
        ('tf.train.ClusterSpec({"ps": FLAGS.ps.split(","), "work": hosts})', {"worker": "work"}),
        ('tf.train.Server(cluster={"ps": ps_hosts, "trainer": hosts})', {"worker": "trainer"}),
        (
            'tf.train.ClusterSpec({"param_server": a, "slave": b})',
            {"ps": "param_server", "worker": "slave"},
        ),
        ('tf.train.ClusterSpec({"ps": a, "master": b, "worker": c})', {"chief": "master"}),
        ('tf.train.ClusterSpec({"local": ["a:1", "a:2"]})', {"worker": "local"}),
        ('tf.train.ClusterSpec({"ps": a, "worker": b, "evaluator": c})', {}),
        ('tf.train.ClusterSpec({"worker": a, "host": b})', {}),
        (
            'tf.train.ClusterSpec({"work": a, "ps": b}); tf.train.ClusterSpec({"ps": a, '
            '"worker": b})',
            {},
        ),
        ('json.dumps({"ps": a, "work": b})', {}),
    ],
)
def test_names_in_clusters_of_program(job: Job, text: str, names: dict[str, str]) -> None:
    program = source.read_program(("python", "train.py"), {"train.py": text})
    assert job_names.role_names(job, program) == names
    given = replace(job, roles={"worker": RoleRule(called="mine")})
    assert job_names.role_names(given, program) == {**names, "worker": "mine"}


def test_chief_that_only_cluster_of_program_has_gives_note(
    make: Callable[..., Plan],
) -> None:
    text = (
        'import tensorflow as tf\ntf.train.ClusterSpec({"ps": ps_hosts, "master": masters, '
        '"worker": hosts})'
    )
    wanted = "the program's cluster has a job master (train.py:2), but the plan has no chief"
    assert wanted in "\n".join(make(text).notes)
    assert wanted not in "\n".join(make(text, WITH_CHIEF).notes)
    asks = make(CLOUD.replace('kind == "master"', 'kind in ("chief", "master")'))
    assert (
        "the program looks for the job master in TF_CONFIG (train.py:9), but the plan has no chief"
        in "\n".join(asks.notes)
    )
    assert "has no chief" not in "\n".join(
        make(CLOUD.replace('kind == "master"', 'kind == "chief" or index == 0')).notes
    )


def serving(name: str) -> str:
    return f"import tensorflow as tf\ntf.train.Server(cluster, job_name={name}, task_index=0)"


@pytest.mark.parametrize(
    ("train", "own", "is_refused"),
    [
        (serving('"ps"'), {}, True),
        ('cluster = {"ps": a, "worker": b}\n' + serving('"worker"'), {}, True),
        (serving('"worker"'), {}, False),
        (serving('"worker"'), {"ps": "ps.py"}, False),
        (serving('"worker"'), {"ps": "ps.py", "worker": "ps.py"}, True),
        (serving("FLAGS.job_name"), {}, False),
        (serving('"ps"') + "\n" + serving('"worker"').split("\n")[1], {}, False),
        # The worker may need no server, and tf.estimator starts its own.
        (serving('"ps"').replace("\n", "\nif kind == 'ps': "), {}, False),
        (serving('"ps"').replace("\n", "\ndef never_called(): "), {}, False),
        (serving('"parameters"'), {"worker": "worker.py"}, False),
        (serving('"variables"'), {"worker": "worker.py"}, False),
    ],
)
def test_role_whose_program_serves_only_another_job_is_refused(
    job: Job, train: str, own: dict[str, str], is_refused: bool
) -> None:
    roles = {role: RoleRule(command=("python", path)) for role, path in own.items()}
    job = replace(job, command=("python", "train.py"), roles=roles)
    sources = {"train.py": train, "ps.py": serving('"ps"'), "worker.py": serving('"worker"')}
    program = source.read_program(job.command, sources)
    groups = group_by_program(job, program, ("ps", "worker"), sources)
    with pytest.raises(Refused, match="every server") if is_refused else nullcontext():
        for each in groups:
            job_names.refuse_fixed_job(job, each, {})
