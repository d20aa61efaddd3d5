"""Test programs that find out which task they are by searching their own lists of hosts for the
host on which they run.

In each task, such a program sees the host that its lists have for this task, as if it ran on that
host.
"""

from __future__ import annotations

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.program import own_hosts
from tfdeploy.planning.source import source

PLANNED = {"ps": ("a:1",), "worker": ("b:1", "c:1")}
BY_ADDRESS = """
ps_hosts = ["10.1.0.5"]
worker_hosts = ["10.1.0.6", "10.1.0.7"]
worker_ports = ["2222", "2222"]
ip = socket.gethostbyname(socket.gethostname())
if ip in ps_hosts: job_name, task_index = "ps", ps_hosts.index(ip)
tf.train.Server(tf.train.ClusterSpec({"ps": ps_list, "worker": worker_list}), job_name, task_index)
"""
BY_NAME = """
cluster = {"ps": ["pc-01:2222"], "worker": ["pc-02:2222", "pc-03:2222"]}
me = socket.gethostname()
tf.train.Server(tf.train.ClusterSpec(cluster), job_name="worker", task_index=index)
"""
AS_TEXT = """
PS_NODES = "pc-01".split(",")
WORKER_NODES = "pc-02,pc-03".split(",")
cluster = tf.train.ClusterSpec(made(PS_NODES, WORKER_NODES))
tf.train.Server(cluster, kind, WORKER_NODES.index(socket.getfqdn()))
"""


def hosts(text: str, job: Job, *, knows_role: bool = False) -> own_hosts.HostAliases:
    return own_hosts.decide_host_aliases(
        job,
        source.read_program(("python", "train.py"), {"train.py": text}),
        PLANNED,
        knows_role=knows_role,
    )


@pytest.mark.parametrize(
    ("text", "own_hosts"),
    [
        (BY_ADDRESS, {"ps:0": "10.1.0.5", "worker:0": "10.1.0.6", "worker:1": "10.1.0.7"}),
        (BY_NAME, {"ps:0": "pc-01", "worker:0": "pc-02", "worker:1": "pc-03"}),
        (AS_TEXT, {"ps:0": "pc-01", "worker:0": "pc-02", "worker:1": "pc-03"}),
        (BY_ADDRESS.replace(', "10.1.0.7"', ""), {"ps:0": "10.1.0.5", "worker:0": "10.1.0.6"}),
        # A host is listed twice, so the name of the host does not tell the program which of the two
        # tasks it is.
        (BY_ADDRESS.replace("10.1.0.7", "10.1.0.5"), {}),
        (BY_NAME.replace("pc-03", "pc-02"), {}),
        (BY_ADDRESS.replace("ps_hosts", "others"), {}),
        (BY_NAME.replace("socket.gethostname()", "name()"), {}),
        ("ps_hosts = ['a']\nworker_hosts = ['b', 'c']\nprint(socket.gethostname())", {}),
    ],
)
def test_host_in_lists_of_program_for_each_task(
    job: Job, text: str, own_hosts: dict[str, str]
) -> None:
    assert hosts(text, job).alias_by_task == own_hosts
    assert bool(hosts(text, job).notes) == bool(own_hosts)
    assert hosts(text, job, knows_role=True).alias_by_task == {}


def test_note_names_task_missing_from_lists(job: Job) -> None:
    (note,) = hosts(BY_ADDRESS.replace(', "10.1.0.7"', ""), job).notes
    assert "by the name of its host (train.py:5)" in note and "worker:0 is 10.1.0.6" in note
    assert "no host for worker:1" in note
