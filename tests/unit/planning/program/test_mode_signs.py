"""Test how tfdeploy recognises the mode for which a program is written, and its message if the
program is launched in another mode.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job, Mode
from tfdeploy.planning.program.mode_signs import find_signs, likely_mode, refuse_or_note_mode
from tfdeploy.planning.source import source
from tfdeploy.planning.source.source import Program

FLAGS = """
import tensorflow.compat.v1 as tf
tf.app.flags.DEFINE_string("ps_hosts", "", "")
tf.app.flags.DEFINE_string("worker_hosts", "", "")
FLAGS = tf.app.flags.FLAGS
"""
SERVER = """
def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(",")})
    server = tf.train.Server(cluster)
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        optimizer = tf.train.AdamOptimizer()
        OPTIMIZER
tf.app.run(main)
"""
BY_FLAG = "if FLAGS.issync: optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2)"
ALWAYS = "optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2)"
TF2 = "import tensorflow as tf\n"
MIRRORED = TF2 + "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
EITHER = """
import argparse
import tensorflow as tf
args = argparse.ArgumentParser().parse_args()
if args.several:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
"""
SYNC_ON = "tf.app.flags.DEFINE_boolean('issync', True, '')\n"
SYNC_OFF = SYNC_ON.replace("True", "False")
BY_SETTING = BY_FLAG.replace("FLAGS.issync", "open('conf').read()")
TUTORIAL = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec()).join()
else:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
"""
BY_NAME = """
import tensorflow as tf
from absl import flags
flags.DEFINE_string("worker_hosts", "", "")
FLAGS = flags.FLAGS
def strategy(name):
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    if name == "multi":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.ParameterServerStrategy(None)
strategy(FLAGS.worker_hosts)
"""
SPAWN = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
def train(rank, ranks):
    os.environ["MASTER_ADDR"] = "localhost"
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
mp.spawn(train, args=(2,), nprocs=2)
"""
LIGHTNING = "import torch\nimport pytorch_lightning as pl\npl.Trainer(max_epochs=1).fit(None)"
CONFIG = """
import json, os
import tensorflow as tf
config = json.loads(os.environ.get("TF_CONFIG", "{}"))
workers = len(config.get("cluster", {}).get("worker", []))
if workers > 1:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.MirroredStrategy()
"""
OWN_SERVERS = """
import tensorflow.compat.v1 as tf
server = tf.train.Server(cluster, "worker", task)
if task:
    server.join()
for worker in range(2):
    with tf.device("/job:worker/task:%d" % worker): pass
"""
ESTIMATOR = "\ntf.estimator.train_and_evaluate(e, t, v)"
# A whole cluster on one machine: by processes that the program forks, and in one process.
FORKED = """
import multiprocessing as mp
import tensorflow.compat.v1 as tf
def ps():
    tf.train.Server(cluster, job_name="ps", task_index=0).join()
def worker(index):
    server = tf.train.Server(cluster, job_name="worker", task_index=index)
mp.Process(target=ps).start()
mp.Process(target=worker, args=(0,)).start()
"""
IN_PROCESS = """
import tensorflow as tf
def make_cluster(workers):
    for i in range(workers):
        tf.distribute.Server(spec, job_name="worker", task_index=i)
    tf.distribute.Server(spec, "ps", 0)
make_cluster(2)
strategy = tf.distribute.ParameterServerStrategy(resolver)
"""
BRANCHES = """
import sys
import tensorflow.compat.v1 as tf
if sys.argv[1] == "ps":
    tf.train.Server(cluster, "ps", 0).join()
else:
    tf.train.Server(cluster, "worker", int(sys.argv[2]))
"""
RETRIED = """
import os
import tensorflow.compat.v1 as tf
role = os.environ["ROLE"]
for attempt in range(3):
    if role == "ps":
        tf.train.Server(cluster, job_name="ps", task_index=0).join()
    else:
        tf.train.Server(cluster, job_name="worker", task_index=0)
"""
PROGRAMS: dict[str, tuple[str, Mode | None]] = {
    "between graphs": (FLAGS + SERVER.replace("OPTIMIZER", ""), "async"),
    "synchronous by a flag": (FLAGS + SYNC_OFF + SERVER.replace("OPTIMIZER", BY_FLAG), "async"),
    "synchronous by a setting": (FLAGS + SERVER.replace("OPTIMIZER", BY_SETTING), "sync"),
    "synchronous": (FLAGS + SERVER.replace("OPTIMIZER", ALWAYS), "sync"),
    "flags alone": (FLAGS, "async"),
    "synchronous by a flag that is on": (
        FLAGS + SYNC_ON + SERVER.replace("OPTIMIZER", BY_FLAG), "sync"
    ),
    "coordinator, whose servers the program starts": (TUTORIAL, "coordinator"),
    "strategies by name, and a flag for addresses": (BY_NAME, None),
    "estimator": (TF2 + ESTIMATOR, "async"),
    "estimator with a strategy": (MIRRORED + ESTIMATOR, "mirrored"),
    "estimator on several GPUs": (TF2 + "tf.distribute.MirroredStrategy()" + ESTIMATOR, "local"),
    "estimator with devices": (TF2 + "filters = ['/job:ps']" + ESTIMATOR, "async"),
    "estimator with another strategy to evaluate": (
        MIRRORED + "tf.distribute.MirroredStrategy()" + ESTIMATOR, None
    ),
    "server of TensorFlow 1 by TF_CONFIG": (
        "import json, os\nimport tensorflow.compat.v1 as tf\n"
        "c = json.loads(os.environ['TF_CONFIG'])\ntf.train.Server(c)", "async"
    ),
    "strategy by TF_CONFIG": (CONFIG, "mirrored"),
    "strategy by a setting": (CONFIG.replace("TF_CONFIG", "SETTINGS"), None),
    "mirrored, with a flag for its workers": (
        "import tensorflow as tf\n" + FLAGS.replace("ps_hosts", "job_name") + MIRRORED, "mirrored"
    ),
    "in-graph, whose tasks start their servers": (OWN_SERVERS, "async"),
    "servers and devices": (OWN_SERVERS.replace("for", "if"), "async"),
    "ranks that another program starts": (SPAWN.replace("mp.spawn", "start"), None),
    "servers of several jobs in processes": (FORKED, "local"),
    "servers of several jobs in one process": (IN_PROCESS, "local"),
    "servers of several jobs, by a flag": (FLAGS + FORKED, "async"),
    "servers of several jobs, in branches": (BRANCHES, "async"),
    "servers of several jobs, in branches of a loop": (RETRIED, "async"),
    "ray": ("import ray, horovod.ray", None),
    "ranks that the program starts": (SPAWN, "local"),
    "ranks that meet at an unknown host": (SPAWN.replace("localhost", "192.0.2.1"), None),
    "horovod": ("import horovod.tensorflow as hvd\nhvd.init()", "plain"),
    "lightning": (LIGHTNING, "local"),
    "lightning on several machines": (LIGHTNING.replace("max_epochs=1", "num_nodes=2"), "plain"),
    "lightning with unknown settings": (LIGHTNING.replace("max_epochs=1", "**open('conf')"), None),
    "lightning that a library starts": (LIGHTNING.replace("pl.Trainer", "make"), None),
    "accelerate": ("from accelerate import Accelerator\nAccelerator()", "plain"),
    "trainer of transformers": ("from transformers import AutoModel, Trainer\nTrainer()", "plain"),
    "transformers without a trainer": ("from transformers import AutoModel\nAutoModel()", None),
    "mirrored": (MIRRORED, "mirrored"),
    "coordinator": (
        TF2 + "s = tf.distribute.experimental.ParameterServerStrategy(r)", "coordinator"
    ),
    "a sentence about devices": (TF2 + "'Each operation is on /job:worker'", None),
    "several GPUs": (TF2 + "with tf.distribute.MirroredStrategy().scope(): pass", "local"),
    "in-graph": (
        TF2 + 'for w in range(2):\n  with tf.device("/job:worker/task:%d" % w): pass', "ingraph"
    ),
    "PyTorch": ("import torch.distributed as dist\ndist.init_process_group('gloo')", "plain"),
    "JAX": ("import jax\njax.distributed.initialize()", "plain"),
    "ranks": ("import os\nrank = int(os.environ['RANK'])", "plain"),
    "one or the other": (EITHER, None),
    "another Server": ("from http import Server\nServer()", None),
    "nothing": (TF2, None),
}  # fmt: skip


def read(text: str, **files: str) -> Program:
    sources = {"train.py": text, **{f"{name}.py": content for name, content in files.items()}}
    return source.read_program(("python", "train.py"), sources)


def check_launch(text: str, mode: Mode, *, force: bool = False, **job: Any) -> str | None:
    command = job.pop("command", ("python", "train.py"))
    launched_job = Job(name="j", mode=mode, command=command, code="/code", **job)
    return refuse_or_note_mode(launched_job, read(text), force=force)


def test_a_launcher_on_one_machine_gives_the_ranks_in_mode_local() -> None:
    text = 'import torch\ntorch.distributed.init_process_group("gloo")\n'
    with pytest.raises(Refused, match="init_process_group"):
        check_launch(text, "local")
    assert check_launch(text, "local", command=("torchrun", "--standalone", "train.py")) is None


@pytest.mark.parametrize(("text", "mode"), PROGRAMS.values(), ids=PROGRAMS)
def test_mode_of_program(text: str, mode: Mode | None) -> None:
    assert likely_mode(find_signs(read(text))) == mode


SERVING = (
    TF2
    + """r = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if r.task_type in ("worker", "ps"):
    tf.distribute.Server(r.cluster_spec()).join()
else:
    strategy = tf.distribute.ParameterServerStrategy(r)
"""
)


def test_servers_in_a_file_for_each_role_are_no_whole_cluster() -> None:
    text = "import tensorflow as tf\ntf.train.Server(cluster, job_name='{}', task_index=0)\n"
    sources = {f"{role}.py": text.format(role) for role in ("ps", "worker")}
    program = source.read_program(("python", "{job_name}.py"), sources)
    assert likely_mode(find_signs(program)) == "async"


def test_mode_is_found_in_imported_module() -> None:
    module = f"{TF2}def build():\n    tf.distribute.MultiWorkerMirroredStrategy()\n"
    program = read("import model\nmodel.build()", model=module)
    assert [str(sign) for sign in find_signs(program)] == [
        "model.py:3 uses tf.distribute.MultiWorkerMirroredStrategy"
    ]


@pytest.mark.parametrize(
    ("text", "mode", "message", "next"),
    [
        (PROGRAMS["between graphs"][0], "mirrored",
         "train.py:3 defines --ps_hosts", "--mode async"),
        (PROGRAMS["between graphs"][0], "plain", "train.py:3 defines --ps_hosts", "--mode async"),
        (MIRRORED, "async", "train.py:2 uses tf.distribute.MultiWorkerMirrored", "--mode mirrored"),
        (PROGRAMS["PyTorch"][0], "sync",
         "train.py:2 calls dist.init_process_group", "--mode plain"),
        (PROGRAMS["between graphs"][0], "coordinator", "defines --ps_hosts", "--mode async"),
        (SERVING, "sync", "train.py:6 uses tf.distribute.ParameterServer", "--mode coordinator"),
        (SERVING, "async", "train.py:6 uses tf.distribute.ParameterServer", "--mode coordinator"),
        (PROGRAMS["several GPUs"][0], "coordinator", "MirroredStrategy", "--mode local"),
        (IN_PROCESS, "coordinator",
         "train.py:5 starts the servers of worker and ps itself", "--mode local"),
    ],
)  # fmt: skip
def test_other_mode_is_refused(text: str, mode: Mode, message: str, next: str) -> None:
    with pytest.raises(Refused, match=message) as refused:
        check_launch(text, mode)
    assert next in str(refused.value.next) and refused.value.exit_code == 3
    assert message in str(check_launch(text, mode, force=True))


@pytest.mark.parametrize(
    ("word", "is_refused"), [("--data_dir={data.d}", True), ("--job_name={job_name}", False)]
)
def test_only_placeholders_of_the_cluster_show_that_the_operator_writes_its_flags(
    word: str, is_refused: bool
) -> None:
    command, text = ("python", "train.py", word), PROGRAMS["between graphs"][0]
    if is_refused:
        with pytest.raises(Refused, match="defines --ps_hosts"):
            check_launch(text, "plain", command=command)
    else:
        assert check_launch(text, "plain", command=command)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (PROGRAMS["synchronous by a flag"][0], "sync"),
        (PROGRAMS["synchronous"][0], "async"),
        (MIRRORED, "local"),
        (FORKED, "local"),
        (SERVING, "coordinator"),
        (TF2 + "tf.distribute.Server(None).join()", "coordinator"),
        (EITHER, "mirrored"),
        (TF2, "async"),
        (FLAGS, "local"),
    ],
)
def test_suitable_mode_is_accepted_silently(text: str, mode: Mode) -> None:
    assert check_launch(text, mode) is None


def test_construct_in_branch_gives_only_note() -> None:
    note = check_launch(EITHER, "async")
    assert note and note.startswith("train.py:6 uses tf.distribute.MultiWorkerMirroredStrategy")


def test_command_that_passes_cluster_gives_only_note() -> None:
    words = ("python", "train.py", "--hosts={worker_hosts}")
    assert "defines --ps_hosts" in str(check_launch(FLAGS, "plain", command=words))
    assert "defines --ps_hosts" in str(check_launch(FLAGS, "plain", flags="none"))


def test_required_variable_is_refused_and_optional_one_gives_note() -> None:
    needed = "import os\nrank = int(os.environ['RANK'])\n"
    with pytest.raises(Refused, match=r"train\.py:2 reads the variable RANK") as refused:
        check_launch(needed, "async")
    assert "`tfdeploy launch --mode plain`" in str(refused.value.next)
    optional = "import os\nrank = int(os.environ.get('RANK', 0))\n"
    assert "reads the variable RANK" in str(check_launch(optional, "async"))
    other = "import json\nrank = json.load(open('cluster.json'))['RANK']\n"
    assert "reads the variable RANK" in str(check_launch(other, "async"))


def test_a_program_that_needs_the_cluster_as_json_is_refused_where_a_mode_does_not_set_it() -> None:
    needed = "import json, os\ncluster = json.loads(os.environ['TF_CONFIG'])\n"
    with pytest.raises(Refused, match=r"train\.py:2 reads the variable TF_CONFIG") as refused:
        check_launch(needed, "plain")
    assert "`tfdeploy launch --mode mirrored`" in str(refused.value.next)
    assert check_launch("import os\nos.environ['TF_CONFIG'] = '{}'\n", "plain") is None
    assert check_launch("import os\nprint(os.environ.get('TF_CONFIG'))\n", "plain") is None
