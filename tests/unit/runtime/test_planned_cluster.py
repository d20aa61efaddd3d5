"""Test that the cluster from the plan replaces a cluster that is hard-coded in a program.

The tests use a fake of TensorFlow's module server_lib, and one process with the real TensorFlow.
"""

from __future__ import annotations

import importlib.util
import json
import socket

import pytest

CLUSTER = {"ps": ["10.0.0.1:2300"], "worker": ["10.0.0.2:2300", "10.0.0.3:2300"]}
SERVER_LIB = "tensorflow/python/training/server_lib.py"
FAKE_SERVER_LIB = """
class ClusterSpec:
    def __init__(self, cluster):
        self.cluster = cluster.cluster if isinstance(cluster, ClusterSpec) else cluster
    def as_dict(self):
        return dict(self.cluster)
class Server:
    def __init__(self, cluster, job_name=None, task_index=None, protocol=None):
        self.task = (job_name, task_index, protocol)
        self.target = b"grpc://localhost:2222"
"""
SESSION = "tensorflow/python/client/session.py"
FAKE_SESSION = """
class BaseSession:
    def __init__(self, target="", graph=None, config=None):
        self.target = target
"""
MAKE = (
    "import json, tensorflow.python.training.server_lib as s; "
    "print(json.dumps(s.ClusterSpec({0!r}).as_dict(), sort_keys=True))"
)


def tf_config(cluster=CLUSTER, role="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


@pytest.fixture
def run_planned(run_python, fake_tensorflow):
    folder = fake_tensorflow({SERVER_LIB: FAKE_SERVER_LIB, SESSION: FAKE_SESSION})

    def run(code, **env):
        given = {"TFDEPLOY_TASK_CLUSTER": "planned", "TF_CONFIG": tf_config(), **env}
        return run_python(
            code, paths=[folder], **{name: text for name, text in given.items() if text is not None}
        )

    return run


@pytest.mark.parametrize(
    ("written", "expected", "messages"),
    [
        (
            {"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]},
            CLUSTER,
            ["is replaced by the plan's cluster"],
        ),
        (
            {"ps": ["pc-01:2222"], "worker": ["pc-02:2222"]},
            CLUSTER,
            [
                "is replaced by the plan",
                "written for 1 tasks of the job worker, but the plan has 2",
            ],
        ),
        ({"ps": ["a:1"], "worker": {0: "a:2", 1: "a:3"}}, CLUSTER, ["is replaced by the plan"]),
        (
            {"master": ["a:0x"], "ps": ["a:1"], "worker": ["a:2", "a:3"]},
            CLUSTER,
            ["is replaced by the plan", "no role of the plan fits the job master"],
        ),
        (
            {"local": ["localhost:2222", "localhost:2223"]},
            {"ps": CLUSTER["ps"], "local": CLUSTER["worker"]},
            [
                "is replaced by the plan's cluster "
                "(ps 10.0.0.1:2300; local 10.0.0.2:2300, 10.0.0.3:2300)"
            ],
        ),
        (
            {"work": ["h:1", "h:2"], "ps": ["h:3"]},
            {"work": CLUSTER["worker"], "ps": CLUSTER["ps"]},
            [
                "is replaced by the plan's cluster "
                "(work 10.0.0.2:2300, 10.0.0.3:2300; ps 10.0.0.1:2300)"
            ],
        ),
        (
            {"parameter_server": ["h:1"], "trainer": ["h:2", "h:3"]},
            {"parameter_server": CLUSTER["ps"], "trainer": CLUSTER["worker"]},
            ["is replaced by the plan"],
        ),
        (
            {"worker": ["h:1", "h:2"], "host": ["h:3"]},
            CLUSTER,
            ["is replaced by the plan", "no role of the plan fits the job host"],
        ),
        (
            {"a": ["h:1"], "b": ["h:2"]},
            {"a": ["h:1"], "b": ["h:2"]},
            ["is kept, because its jobs do not fit those of the plan: ps, worker"],
        ),
        (CLUSTER, CLUSTER, []),
        ({"worker": CLUSTER["worker"][:1]}, {"worker": CLUSTER["worker"][:1]}, []),
        (
            {"chief": CLUSTER["worker"][:1], "ps": CLUSTER["ps"]},
            {"chief": CLUSTER["worker"][:1], "ps": CLUSTER["ps"]},
            [],
        ),
        ({"localhost": ["localhost:0"]}, {"localhost": ["localhost:0"]}, []),
        ({}, {}, []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_replacement_of_cluster(run_planned, written, expected, messages):
    done = run_planned(MAKE.format(written))
    assert json.loads(done.stdout) == expected
    assert len(done.stderr.splitlines()) == len(messages)
    assert all(
        message in done.stderr.splitlines()[number] for number, message in enumerate(messages)
    )


def test_master_is_chief_of_plan(run_planned):
    plan = {"chief": ["10.0.0.9:1"], "worker": ["10.0.0.2:1"]}
    done = run_planned(
        MAKE.format({"master": ["a:1"], "worker": ["a:2"]}), TF_CONFIG=tf_config(plan)
    )
    assert json.loads(done.stdout) == {"master": ["10.0.0.9:1"], "worker": ["10.0.0.2:1"]}


@pytest.mark.parametrize(
    "env",
    [{"TFDEPLOY_TASK_CLUSTER": "program"}, {"TFDEPLOY_TASK_CLUSTER": None}, {"TF_CONFIG": None}],
)
def test_program_with_kept_cluster_or_without_plan_is_unchanged(run_planned, env):
    done = run_planned(MAKE.format({"ps": ["localhost:1"]}), **env)
    assert (done.stdout, done.stderr) == ('{"ps": ["localhost:1"]}\n', "")


def test_message_is_printed_once_and_plan_survives_change_of_tf_config(run_planned):
    code = (
        "import os; os.environ['TF_CONFIG'] = '{}'\n"
        "import tensorflow.python.training.server_lib as s\n"
        "for _ in range(3): made = s.ClusterSpec({'ps': ['localhost:1'], 'worker': "
        "['localhost:2', 'localhost:3']})\n"
        "print(made.as_dict()['ps'], s.ClusterSpec(made).as_dict()['ps'])\n"
        'import subprocess, sys; subprocess.run([sys.executable, \'-c\', """'
        + MAKE.format({"ps": ["localhost:1"]})
        + '""" ])'
    )
    done = run_planned(code)
    assert done.stdout.splitlines()[0] == "['10.0.0.1:2300'] ['10.0.0.1:2300']"
    assert json.loads(done.stdout.splitlines()[1]) == CLUSTER
    # Each of the two processes prints this message once.
    assert done.stderr.count("is replaced by the plan") == 2


OWN_PLACE = """
import tensorflow.python.training.server_lib as s
cluster = {cluster}
made = s.Server({given})
print(*made.task)
print(*s.Server(s.ClusterSpec(cluster), "worker", 0).task)
"""
WRITTEN = {"ps": ["pc-1:1"], "worker": ["pc-2:1", "pc-3:1"]}


@pytest.mark.parametrize(
    ("given", "cluster", "task", "started", "message"),
    [
        (
            "cluster, 'worker', 0",
            WRITTEN,
            ("worker", 1),
            "worker 1 None",
            "starts the server of worker:0, but this task is worker:1:",
        ),
        (
            "cluster, job_name='worker', task_index='0'",
            WRITTEN,
            ("worker", 1),
            "worker 1 None",
            "its server is started instead",
        ),
        (
            "cluster, 'worker', 0, 'grpc'",
            WRITTEN,
            ("worker", 1),
            "worker 1 grpc",
            "its server is started instead",
        ),
        (
            "s.ClusterSpec(cluster), 'work', 0",
            {"work": ["a:1", "b:1"], "ps": ["c:1"]},
            ("worker", 1),
            "work 1 None",
            "work:0",
        ),
        (
            "cluster, 'worker', 0",
            CLUSTER,
            ("worker", 1),
            "worker 1 None",
            "its server is started instead",
        ),
        # In the next cases the server is not changed: the program already starts the planned task,
        # or the plan does not contain this server.
        ("cluster, 'worker', 1", WRITTEN, ("worker", 1), "worker 1 None", ""),
        (
            "cluster, 'worker', 0",
            WRITTEN,
            ("ps", 0),
            "worker 0 None",
            "of worker:0, but in the plan this task is ps:0",
        ),
        ("cluster, 'worker', 0", WRITTEN, ("evaluator", 0), "worker 0 None", ""),
        (
            "cluster, 'local', 0",
            {"a": ["h:1"], "local": ["h:2"]},
            ("worker", 1),
            "local 0 None",
            "",
        ),
        ("{'local': ['localhost:0']}, 'local', 0", WRITTEN, ("worker", 1), "local 0 None", ""),
        ("cluster, 'worker'", WRITTEN, ("worker", 1), "worker None None", ""),
    ],
)
def test_server_belongs_to_planned_task(run_planned, given, cluster, task, started, message):
    done = run_planned(
        OWN_PLACE.format(cluster=cluster, given=given),
        TF_CONFIG=tf_config(role=task[0], index=task[1]),
    )
    # tfdeploy does not change the second server that the program starts.
    assert done.stdout.splitlines() == [started, "worker 0 None"], done.stderr
    server_messages = [line for line in done.stderr.splitlines() if "starts the server" in line]
    assert message in "".join(server_messages) if message else not server_messages


FILTERS = """
import tensorflow.python.training.server_lib as s
from _tfdeploy_runtime import device_filters
s.Server({cluster}, {job!r}, {index})
print(device_filters.own_device_filters())
"""


@pytest.mark.parametrize(
    ("cluster", "plan", "place", "filters"),
    [
        (WRITTEN, CLUSTER, ("worker", 1), ["/job:ps", "/job:worker/task:1"]),
        (
            {"param": ["h:1"], "work": ["h:2", "h:3"]},
            CLUSTER,
            ("work", 1),
            ["/job:param", "/job:work/task:1"],
        ),
        (
            {"ps": ["a:1"], "master": ["b:1"], "worker": ["c:1"]},
            {"ps": ["a:1"], "master": ["b:1"], "worker": ["c:1"]},
            ("master", 0),
            ["/job:ps", "/job:master/task:0"],
        ),
    ],
)
def test_device_filters_have_names_of_program(run_planned, cluster, plan, place, filters):
    job, index = place
    role = {"work": "worker"}.get(job, job)
    code = FILTERS.format(cluster=cluster, job=job, index=index)
    done = run_planned(code, TF_CONFIG=tf_config(plan, role, index), task="worker:1", mode="async")
    assert done.stdout == f"{filters}\n", done.stderr


TARGETS = (
    "import tensorflow.python.training.server_lib as s, tensorflow.python.client.session as c\n"
    "s.ClusterSpec({'ps': ['localhost:2221'], 'worker': ['localhost:2222', 'localhost:2223']})\n"
    "def target(text): return c.BaseSession(text).target\n"
    "print(target('grpc://localhost:2223'), target(b'grpc://localhost:2222'), "
    "target('grpc://other:1'), repr(target('')))\n"
    "s.Server({'localhost': ['localhost:0']})\n"
    "print(target('grpc://localhost:2222'))\n"
)


def test_session_connects_to_planned_address(run_planned):
    lines = run_planned(TARGETS).stdout.splitlines()
    assert lines[0] == "grpc://10.0.0.3:2300 grpc://10.0.0.2:2300 grpc://other:1 ''"
    # The address is localhost, because the server runs in the process itself.
    assert lines[1] == "grpc://localhost:2222"


def test_client_of_ingraph_run_finds_server(run_planned):
    code = (
        "import tensorflow.python.client.session as "
        "c\nprint(c.BaseSession('grpc://localhost:2222').target)"
    )
    assert run_planned(code, TFDEPLOY_TASK_MODE="ingraph").stdout == "grpc://10.0.0.2:2300\n"
    assert run_planned(code, TFDEPLOY_TASK_MODE="async").stdout == "grpc://localhost:2222\n"


REAL = """
import json, os
import tensorflow as tf
local = tf.train.Server.create_local_server()
with tf.Session(local.target) as session:
    print(session.run(tf.constant(b"alone")).decode())
cluster = tf.train.ClusterSpec(
    {"ps": ["localhost:2222"], "worker": ["pc-02:2222", "pc-03:2222", "pc-04:2222"]}
)
print(cluster.num_tasks("worker"), cluster.task_address("ps", 0))
server = tf.train.Server(
    {"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]},
    "worker",
    task_index=0,
)
print([job.name for job in server.server_def.cluster.job], server.target.rpartition(":")[2])
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    print(tf.get_variable("v", []).device)
own = {
    "cluster": {"worker": ["localhost:1", "localhost:2"]},
    "task": {"type": "worker", "index": 1},
}
os.environ["TF_CONFIG"] = json.dumps(own)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
print(resolver.cluster_spec().as_dict()["worker"], resolver.task_id)
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_replacement_with_real_tensorflow(run_python):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plan = {"ps": ["127.0.0.1:9"], "worker": [f"127.0.0.1:{port}", "127.0.0.1:10"]}
    env = {
        "TFDEPLOY_TASK_CLUSTER": "planned",
        "TFDEPLOY_TASK_COMPAT": "v1",
        "TF_CONFIG": tf_config(plan),
    }
    done = run_python(REAL, **env)
    assert done.stdout.splitlines() == [
        "alone",
        "2 127.0.0.1:9",
        f"['ps', 'worker'] {port}",
        "/job:ps/task:0",
        f"{plan['worker']} 0",
    ], done.stderr[-3000:]
    messages = [line for line in done.stderr.splitlines() if line.startswith("tfdeploy:")]
    assert len(messages) == 4, messages
    assert "written for 3 tasks of the job worker, but the plan has 2" in messages[1]
    assert "TF_CONFIG written by the program" in messages[3]
