"""Test which tasks each mode has, and which programs and settings a mode refuses.

Tables list the expected tasks for given numbers of hosts and GPUs. Other tests check how tfdeploy
finds uses of Keras and of servers in a program's syntax tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import ConfigError, Refused
from tfdeploy.model.facts import Gpu, HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import MODES, Job, RoleRule
from tfdeploy.model.modes import RULES
from tfdeploy.model.plan import Plan
from tfdeploy.planning.checks import check_roles as check_roles
from tfdeploy.planning.cluster import gpus, ranks
from tfdeploy.planning.cluster.placement import place_tasks
from tfdeploy.planning.cluster.role_requests import role_requests
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.program import servers
from tfdeploy.planning.source import source
from tfdeploy.planning.versions import legacy_keras

PS = {"ps": "n1", "worker": "n2 n3"}
CHIEF = {**PS, "chief": "n2"}

COUNTS: list[
    tuple[str, dict[str, str], dict[str, int], dict[str, RoleRule], dict[str, int], str]
] = [
    # (mode, roles, GPUs by host, rules of the job, options, expected tasks). "w0@n2[0,1]" is
    # worker:0 on n2, with the GPUs 0 and 1.
    ("mirrored", PS, {}, {}, {}, "w0@n2 w1@n3"),
    ("mirrored", PS, {"n2": 2, "n3": 2}, {}, {}, "w0@n2[0,1] w1@n3[0,1]"),
    ("mirrored", PS, {"n2": 2, "n3": 2}, {"worker": RoleRule(gpus=1)}, {}, "w0@n2[0] w1@n3[0]"),
    ("mirrored", PS, {"n2": 4, "n3": 4}, {"worker": RoleRule(per_host=2)}, {},
        "w0@n2[0,1] w1@n3[0,1] "
        "w2@n2[2,3] w3@n3[2,3]"),
    ("mirrored", PS, {"n2": 5, "n3": 4}, {"worker": RoleRule(per_host=2)}, {},
        "w0@n2[0,1] w1@n3[0,1] "
        "w2@n2[2,3] w3@n3[2,3]"),
    ("mirrored", PS, {"n2": 2, "n3": 2}, {}, {"workers": 1}, "w0@n2[0,1]"),
    ("mirrored", PS, {"n2": 2, "n3": 2}, {}, {"workers": 4}, "w0@n2[0] w1@n3[0] w2@n2[1] w3@n3[1]"),
    ("mirrored", PS, {}, {}, {"workers": 3}, "w0@n2 w1@n3 w2@n2"),
    ("mirrored", CHIEF, {"n2": 2, "n3": 2}, {}, {}, "c0@n2[0,1] w0@n3[0,1]"),
    ("mirrored", {"chief": "n1", "worker": "n1"}, {}, {}, {}, "c0@n1"),
    ("async", {"worker": "n1 n2"}, {}, {"ps": RoleRule(count=0)}, {}, "w0@n1 w1@n2"),
    ("async", {"worker": "n1 n2"}, {}, {}, {"ps": 0}, "w0@n1 w1@n2"),
    ("coordinator", PS, {"n2": 2, "n3": 2}, {}, {},
        "p0@n1 c0@n2 w0@n2[0] w1@n3[0] "
        "w2@n2[1] w3@n3[1]"),
    ("coordinator", {**PS, "chief": "n1"}, {"n1": 1}, {}, {}, "p0@n1 c0@n1 w0@n2 w1@n3"),
    ("coordinator", PS, {"n2": 2}, {"chief": RoleRule(gpus=1)}, {},
        "p0@n1 c0@n2[0] "
        "w0@n2[1] w1@n3"),
    ("coordinator", PS, {}, {}, {"ps": 2, "workers": 1}, "p0@n1 p1@n1 c0@n2 w0@n2"),
    ("ingraph", PS, {"n2": 1}, {}, {}, "p0@n1 c0@n2 w0@n2[0] w1@n3"),
    ("ingraph", {"worker": "n2"}, {}, {}, {}, "c0@n2 w0@n2"),
    ("local", PS, {"n2": 2}, {}, {}, "w0@n2[0,1]"),
    ("plain", PS, {}, {}, {}, "w0@n2 w1@n3"),
    ("plain", CHIEF, {"n2": 2, "n3": 1}, {}, {}, "w0@n2[0] w1@n2[1] w2@n3[0]"),
    ("plain", PS, {"n2": 2}, {}, {}, "w0@n2[0] w1@n2[1] w2@n3"),
    ("plain", PS, {}, {"worker": RoleRule(per_host=2)}, {}, "w0@n2 w1@n2 w2@n3 w3@n3"),
    ("plain", PS, {"n2": 4}, {"worker": RoleRule(gpus=2)}, {"workers": 2}, "w0@n2[0,1] w1@n2[2,3]"),
    ("plain", PS, {}, {}, {"workers": 5}, "w0@n2 w1@n2 w2@n2 w3@n3 w4@n3"),
    ("local", CHIEF, {}, {"worker": RoleRule(gpus=0)}, {"workers": 1}, "w0@n2"),
]  # fmt: skip


def job_with(mode: str, rules: dict[str, RoleRule] | None = None) -> Job:
    return Job(name="j", mode=mode, command=("python", "t.py"), code="/code", roles=rules or {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "roles", "gpus_by_host", "rules", "options", "expected"), COUNTS)
def test_tasks_of_mode(
    mode: str,
    roles: Any,
    gpus_by_host: Any,
    rules: Any,
    options: Any,
    expected: str,
    inventory: Any,
    facts_of: Any,
) -> None:
    hosts: Inventory = inventory(**roles)
    job, cli_options = job_with(mode, rules), Options(**options)
    wished = role_requests(hosts, job, cli_options)
    check_roles(hosts, job, cli_options, wished)
    facts = {host.name: facts_of(host, gpus_by_host.get(host.name, 0)) for host in hosts.hosts}
    placed = place_tasks(wished, {host.name: host for host in hosts.hosts}, facts, {})
    seats = [
        f"{s.role[0]}{s.index}@{s.host}" + (f"[{','.join(map(str, s.gpus))}]" if s.gpus else "")
        for s in placed
    ]
    assert " ".join(seats) == expected


CONTRADICTIONS: list[tuple[str, dict[str, str], dict[str, RoleRule], dict[str, int], str]] = [
    ("mirrored", PS, {}, {"ps": 1}, "mode mirrored has no role ps"),
    ("mirrored", PS, {"ps": RoleRule(count=1)}, {}, "mode mirrored has no role ps"),
    ("mirrored", {"ps": "n1"}, {}, {}, "needs at least one worker"),
    ("mirrored", {**PS, "chief": "n1 n2"}, {}, {}, "only one chief, but 2 are requested"),
    ("coordinator", {"worker": "n2"}, {}, {}, "needs at least one ps"),
    ("coordinator", {"worker": "n2"}, {"ps": RoleRule(count=0)}, {}, "needs at least one ps"),
    ("async", {"worker": "n2"}, {"ps": RoleRule(command=("python", "ps.py"))}, {},
        "needs at least one ps"),
    ("coordinator", PS, {"chief": RoleRule(count=2)}, {},
        "a cluster has only one chief, but 2 are requested"),
    ("ingraph", PS, {"evaluator": RoleRule(count=1)}, {}, "mode ingraph has no role evaluator"),
    ("ingraph", {"ps": "n1"}, {}, {}, "needs at least one worker"),
    ("local", PS, {"chief": RoleRule(count=1)}, {}, "mode local has no role chief"),
    ("coordinator", PS, {"chief": RoleRule(called="master")}, {},
        "mode coordinator fixes the name of the role chief"),
    ("ingraph", PS, {"chief": RoleRule(called="master")}, {},
        "mode ingraph fixes the name of the role chief"),
    ("plain", PS, {}, {"ps": 1}, "mode plain has no role ps (its roles: worker)"),
    ("plain", PS, {"chief": RoleRule(count=1)}, {}, "mode plain has no role chief"),
    ("plain", {"ps": "n1"}, {}, {}, "needs at least one worker"),
    ("local", PS, {"worker": RoleRule(per_host=2)}, {},
        "one worker, but `roles: worker` "
        "of the job asks for 2"),
    ("local", PS, {}, {"workers": 3}, "one worker, but --workers 3 asks for 3"),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "roles", "rules", "options", "message"), CONTRADICTIONS)
def test_mode_that_contradicts_roles_is_refused(
    mode: str, roles: Any, rules: Any, options: Any, message: str, inventory: Any
) -> None:
    hosts, job, cli_options = inventory(**roles), job_with(mode, rules), Options(**options)
    with pytest.raises(ConfigError) as refused:
        check_roles(hosts, job, cli_options, role_requests(hosts, job, cli_options))
    assert message in refused.value.what
    assert refused.value.next and refused.value.where


OF_TENSORFLOW: list[tuple[dict[str, Any], str]] = [
    ({"flags": "auto"}, "`flags: auto` is a setting of TensorFlow clusters"),
    ({"flags": "classic"}, "`flags: classic` is a setting of TensorFlow clusters"),
    ({"compat": "v1"}, "`compat: v1` is a setting of TensorFlow clusters"),
    ({"cluster": "program"}, "`cluster: program` is a setting of TensorFlow clusters"),
    *(({"env": {name: "1"}}, f"{name} is set by tfdeploy") for name in ranks.VARIABLES),
    ({"secrets": ("MASTER_ADDR",)}, "MASTER_ADDR is set by tfdeploy"),
]


@pytest.mark.parametrize(("keys", "message"), OF_TENSORFLOW)
def test_plain_refuses_tensorflow_settings_and_reserved_variables(
    keys: dict[str, Any], message: str, inventory: Any
) -> None:
    hosts = inventory(**PS)
    for mode, refuses in (("plain", True), ("async", False)):
        job = replace(job_with(mode), **keys)
        with pytest.raises(ConfigError, match=re.escape(message)) if refuses else nullcontext():
            check_roles(hosts, job, Options(), role_requests(hosts, job, Options()))
    for quiet in (
        {"flags": "none"},
        {"compat": "auto"},
        {"compat": "none"},
        {"env": {"NCCL_DEBUG": "INFO"}},
    ):
        job = replace(job_with("plain"), **quiet)
        check_roles(hosts, job, Options(), role_requests(hosts, job, Options()))


def test_every_mode_has_rules() -> None:
    assert set(RULES) == set(MODES)
    for rules in RULES.values():
        assert set(rules.required_roles) | set(rules.serving_roles) | set(rules.portless_roles) - {
            "evaluator"
        } <= set(rules.usable_roles)
        assert rules.lead_role is None or rules.lead_role not in rules.serving_roles


# --- GPUs that other processes use


@pytest.mark.parametrize(
    ("inventory_gpus", "used", "expected"),
    [
        ("auto", [0, 1024, 1025], (0, 1)),
        (2, [5000, 0, 0], (1, 2)),
        (1, [0, 0], (0,)),
        ((0, 2), [5000, 0, 5000], (0, 2)),
        ("none", [0], ()),
        (
            2,
            [5000, 0],
            "2 GPUs, but it has only 1 free: "
            "GPU 0 (H200) uses 4.9 GiB of 140 GiB (a GPU with more than 1 GiB",
        ),
        (3, [0, 0], "nvidia-smi there finds: 0 (H200), 1 (H200)"),
        ((3,), [0], "GPU 3"),
    ],
)
def test_gpus_used_by_other_processes(
    inventory_gpus: Any,
    used: list[int],
    expected: Any,
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
) -> None:
    host = replace(inventory(worker="n1").hosts[0], gpus=inventory_gpus)
    gpus_of_host = tuple(
        Gpu(index=index, name="H200", memory_mib=140 * 1024, used_mib=used_mib)
        for index, used_mib in enumerate(used)
    )
    facts = replace(facts_of(host), gpus=gpus_of_host)
    if isinstance(expected, tuple):
        assert gpus.usable_gpus(host, facts) == expected
        return
    with pytest.raises(Refused) as refused:
        gpus.usable_gpus(host, facts)
    assert expected in refused.value.what


def test_gpu_of_unknown_memory_is_named_without_memory(
    facts_of: Callable[..., HostFacts], inventory: Any
) -> None:
    facts = replace(
        facts_of(inventory(worker="n1").hosts[0]),
        gpus=(
            Gpu(index=0, name="Quadro K2000", memory_mib=0, used_mib=0),
            Gpu(index=1, name="H200", memory_mib=2048, used_mib=0),
        ),
    )
    assert gpus.gpus_text(facts, (0, 1)) == "GPUs 0 and 1 (Quadro K2000; H200, 2 GiB)"


# --- Keras

TF, FIT = "import tensorflow as tf", "tf.keras.Model().fit(x)"
MIRRORED = "s = tf.distribute.MultiWorkerMirroredStrategy()"
EXPERIMENTAL = "s = tf.distribute.experimental.MultiWorkerMirroredStrategy()"
HAS_TF_KERAS: dict[str, Any] = {"tf_keras": "2.21.0"}
ON = {"TF_USE_LEGACY_KERAS": "1"}
PIP = "pip install 'tf_keras~=2.21.0'"
KERAS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, str] | str]] = {
    # (lines of the program, facts of the host, and either the expected variables of the tasks or a
    # part of the error with which the plan is refused)
    "fit": ((TF, MIRRORED, FIT), HAS_TF_KERAS, ON),
    "from": (
        (TF, "from tensorflow import keras", MIRRORED, "keras.Model().fit(x)"),
        HAS_TF_KERAS,
        ON,
    ),
    "experimental": ((TF, EXPERIMENTAL, FIT), HAS_TF_KERAS, ON),
    "missing": ((TF, MIRRORED, FIT), {}, PIP),
    "missing, of a TensorFlow whose version is not known": (
        (TF, MIRRORED, FIT),
        {"tensorflow": "unknown"},
        "install tf_keras",
    ),
    "tf_keras by name": (
        (TF, "import tf_keras", MIRRORED, "tf_keras.Model().fit(x)"),
        HAS_TF_KERAS,
        {},
    ),
    "tf_keras by name, missing": (
        (TF, "from tf_keras import Model", MIRRORED, "Model().fit(x)"),
        {},
        PIP,
    ),
    "own loop": ((TF, MIRRORED, "tf.keras.Model()"), {}, {}),
    "another strategy": ((TF, "s = tf.distribute.MirroredStrategy()", FIT), {}, {}),
    "before Keras 3": ((TF, MIRRORED, FIT), {"tensorflow": "2.15.1"}, {}),
    "fit of something else": ((TF, MIRRORED, "LinearRegression().fit(x)"), {}, {}),
}


@pytest.mark.parametrize(("lines", "host_facts", "expected"), KERAS.values(), ids=KERAS)
def test_keras_on_several_workers(
    lines: tuple[str, ...],
    host_facts: Any,
    expected: Any,
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
) -> None:
    job, collected = (
        job_with("mirrored"),
        source.read_program(("python", "t.py"), {"t.py": "\n".join(lines)}),
    )
    facts = {host.name: facts_of(host, **host_facts) for host in inventory(worker="n1 n2").hosts}
    if isinstance(expected, dict):
        choice = legacy_keras.decide_keras_version(job, collected, facts)
        assert choice.variables == expected
        assert bool(choice.notes) == bool(expected)
        return
    with pytest.raises(Refused) as refused:
        legacy_keras.decide_keras_version(job, collected, facts)
    assert expected in (refused.value.next or "")
    assert "t.py:" in refused.value.what and refused.value.what.endswith("missing on n[1-2]")


def test_keras_setting_of_job_is_kept(
    facts_of: Callable[..., HostFacts], inventory: Callable[..., Inventory]
) -> None:
    program = source.read_program(("python", "t.py"), {"t.py": "\n".join((TF, MIRRORED, FIT))})
    facts = {host.name: facts_of(host) for host in inventory(worker="n1").hosts}
    job = replace(job_with("mirrored"), env={"TF_USE_LEGACY_KERAS": "0"})
    assert legacy_keras.decide_keras_version(job, program, facts).variables == {}


def test_import_of_keras_3_gives_note() -> None:
    program = source.read_program(
        ("python", "t.py"),
        {"t.py": f"import keras\nimport tensorflow as tf\n{MIRRORED}\nkeras.Model().fit(x)"},
    )
    assert (
        "from tensorflow import keras"
        in legacy_keras.decide_keras_version(job_with("mirrored"), program, {}).notes[0]
    )


# --- servers


@pytest.mark.parametrize(
    ("mode", "lines", "by_us"),
    [
        (
            "coordinator",
            ("import tensorflow as tf", "tf.distribute.ParameterServerStrategy(r)"),
            True,
        ),
        (
            "coordinator",
            ("import tensorflow as tf", "tf.distribute.Server(c, job_name='ps').join()"),
            False,
        ),
        ("coordinator", ("import tensorflow as tf", "tf.compat.v1.train.Server(c).join()"), False),
        (
            "coordinator",
            ("from tensorflow.compat.v1.train import Server", "Server(c).join()"),
            False,
        ),
        ("coordinator", ("import tensorflow as tf", "import served"), False),
        ("coordinator", ("from http import Server", "Server(c)"), True),
        ("ingraph", ("import tensorflow as tf", "tf.compat.v1.train.Server(c)"), True),
        ("mirrored", ("import tensorflow as tf",), False),
        ("async", ("import tensorflow as tf",), False),
    ],
)
def test_who_starts_servers(mode: str, lines: tuple[str, ...], by_us: bool) -> None:
    served = "import tensorflow\ntensorflow.distribute.Server(c)"
    program = source.read_program(
        ("python", "t.py"), {"t.py": "\n".join(lines), "served.py": served}
    )
    decision = servers.decide_server_roles(job_with(mode), program, ("ps", "worker"))
    assert bool(decision.roles) is by_us
    assert (decision.note is None) == (mode in ("mirrored", "async"))


def test_unreadable_program_starts_its_own_servers() -> None:
    decision = servers.decide_server_roles(
        job_with("coordinator"), source.read_program(("bash", "t.sh"), {}), ("ps", "worker")
    )
    assert not decision.roles and "must serve ps and worker itself" in str(decision.note)


@pytest.mark.parametrize(
    ("lines", "job"),
    [
        (('tf.device("/job:local/task:1")',), "local"),
        (
            (
                'tf.train.ClusterSpec({"cluster": ["pc-1:2222", "pc-2:2222"]})',
                'tf.device("/job:ps/task:0")',
            ),
            "cluster",
        ),
        (('tf.device("/job:worker/task:%d" % i)', 'tf.device("/job:local/task:1")'), ""),
        (('tf.device("/job:left/task:0")', 'tf.device("/job:right/task:0")'), ""),
        (('tf.Session("grpc://" + hosts[0])',), ""),
        (
            ('tf.device("/job:work/task:1")', 'tf.train.Server(c, job_name="host", task_index=0)'),
            "work",
        ),
        (
            (
                'tf.device("/job:local/task:1")',
                'tf.train.Server(c, job_name="local", task_index=0)',
            ),
            "local",
        ),
    ],
)
def test_servers_belong_to_job_named_by_client(
    lines: tuple[str, ...], job: str, facts_of: Callable[..., HostFacts]
) -> None:
    program = source.read_program(("python", "t.py"), {"t.py": "\n".join((TF, *lines))})
    decision = servers.decide_server_roles(job_with("ingraph"), program, ("worker",))
    assert decision.worker_job == job
    assert (f"called {job}," in (decision.note or "")) == bool(job)
    facts = facts_of(Host(name="n1", address="192.0.2.1"))
    assert servers.server_command("python3", facts, decision)[1:] == (
        "-m",
        "tfdeploy_server",
        *([job] if job else []),
    )


OWN_SERVER = """import tensorflow as tf
cluster = json.load(open("config.json"))
server = tf.train.Server(cluster, {job}, task_index=0)
with tf.device("/job:worker/task:1"): pass
"""


def test_client_with_own_server_is_in_cluster(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts]
) -> None:
    hosts = inventory(ps="n1", worker="n2 n3")
    facts = {host.name: facts_of(host) for host in hosts.hosts}
    stamp = {"release": "c", "run": "r", "now": 1.0, "operator": "me", "options": Options()}

    def plan_of(text: str) -> Plan:
        return make_plan(hosts, job_with("ingraph"), facts, sources={"t.py": text}, **stamp)  # type: ignore[arg-type]

    plan = plan_of(OWN_SERVER.format(job='job_name="host"'))
    client = next(task for task in plan.tasks if task.task == "chief:0")
    assert client.port is not None
    for task in plan.tasks:
        tf_config = json.loads(task.env["TF_CONFIG"])
        assert tf_config["cluster"]["host"] == [client.address]
        assert tf_config["task"]["type"] == ("host" if task is client else task.role)
    assert "the program's own server has the job name host" in "\n".join(plan.notes)
    for job in ('"host"', 'job_name="worker"', "FLAGS.job"):
        other = next(
            task for task in plan_of(OWN_SERVER.format(job=job)).tasks if task.task == "chief:0"
        )
        assert (other.port is not None) == (job == '"host"')


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("tf.app.flags.DEFINE_integer('task_index', 0, '')", "flag --task_index"),
        ("tf.train.Server(c, 'local', int(sys.argv[1]))", "argument sys.argv[1]"),
    ],
)
def test_client_with_index_flag_gives_note(line: str, what: str) -> None:
    text = f"import sys, tensorflow as tf\n{line}"
    decision = servers.decide_server_roles(
        job_with("ingraph"), source.read_program(("python", "t.py"), {"t.py": text}), ("worker",)
    )
    assert f"The program has the {what} (t.py:2), so it may expect to be started once" in str(
        decision.note
    )
