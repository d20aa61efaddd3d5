"""Test how tfdeploy decides whether a program gets the TensorFlow 1 API, and for which names in the
program it refuses the launch.

If a cluster is hard-coded in the program, the plan has a note about it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.planning.program import compat
from tfdeploy.planning.source import source

TF = "import tensorflow as tf\n"
JOB = Job(name="digits", mode="async", command=("python", "train.py"), code="/code")


def decide(text, job=JOB, hosts=None, **others):
    sources = {"train.py": text, **{f"{name}.py": body for name, body in others.items()}}
    return compat.decide_compat(job, source.read_program(job.command, sources), hosts)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (TF + "x = tf.placeholder(tf.float32)", "tf.placeholder (train.py:2)"),
        ("import tensorflow\ns = tensorflow.Session()", "tf.Session (train.py:2)"),
        ("from tensorflow import flags\nflags.DEFINE_string('a', '', '')", "tf.flags (train.py:1)"),
        ("from tensorflow import app as a", "tf.app (train.py:1)"),
        (TF + "tf.train.MonitoredTrainingSession()", "tf.train.MonitoredTrainingSession"),
        (
            TF + "step = tf.contrib.framework.get_or_create_global_step()",
            "tf.contrib.framework.get_or_create_global_step",
        ),
        (
            "from tensorflow.contrib.framework import get_global_step",
            "tf.contrib.framework.get_global_step (train.py:1)",
        ),
        (
            "from tensorflow.examples.tutorials.mnist import input_data",
            "tf.examples.tutorials.mnist.input_data (train.py:1)",
        ),
        ("import model", "tf.get_variable (model.py:2) of TensorFlow 1"),
    ],
)
def test_name_that_only_tensorflow_1_has_selects_version_1(text, because):
    decision = decide(text, model=TF + "v = tf.get_variable('v', [])\n")
    assert (decision.choice, decision.refusals) == ("v1", ())
    assert because in decision.why


@pytest.mark.parametrize(
    "text",
    [
        "print('nothing of it')",
        TF + "d = "
        "tf.data.Dataset.range(3)\ntf.distribute.Server\ntf.train.ClusterSpec\ntf.summary.scalar",
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\ntf.placeholder(tf.float32)",
        "from tensorflow.compat import v1 as tf\ntf.placeholder(tf.float32)",
        TF + "tf.compat.v1.disable_v2_behavior()\ntf.compat.v1.placeholder",
        TF + "tf = tf.compat.v1\ntf.placeholder",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow "
        "as tf\ntf.placeholder",
        TF + "if tf.__version__.startswith('1'):\n    tf.enable_eager_execution()",
        TF + "try:\n    tf.logging.set_verbosity(0)\nexcept AttributeError:\n    pass",
        TF + "loss = tf.losses.mean_squared_error\ntf.metrics.Mean()",
        "import numpy as tf\ntf.placeholder",
    ],
)
def test_program_for_tensorflow_2_or_with_own_fallback_is_unchanged(text):
    assert decide(text).choice == "none"
    assert decide(text).refusals == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "import tensorflow.compat.v1 as "
            "tf\ntf.nn.rnn_cell.BasicLSTMCell(8)", "uses tensorflow.compat.v1 itself"),
        (
            "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import "
            "tensorflow as tf\n"
         "tf.placeholder", "uses tensorflow.compat.v1 itself"),
        (TF + "tf.Variable(1)", "uses no name that only TensorFlow 1 has"),
    ],
)  # fmt: skip
def test_plan_gives_reason_for_unchanged_program(text, reason):
    assert decide(text).why == f"train.py {reason}"


def test_names_of_both_versions_change_nothing():
    decision = decide(TF + "tf.placeholder\ntf.optimizers.Adam()")
    assert decision.choice == "none"
    assert "tf.placeholder (train.py:2)" in decision.why
    assert "tf.optimizers.Adam (train.py:3)" in decision.why
    assert "compat: v1" in decision.why


def test_job_may_set_compat():
    assert decide("import tensorflow", replace(JOB, compat="v1")).choice == "v1"
    assert decide(TF + "tf.placeholder", replace(JOB, compat="none")).choice == "none"
    unread = compat.decide_compat(JOB, source.read_program(("bash", "train.sh"), {}), None)
    assert unread.choice == "none"
    assert "compat: v1" in unread.why


@pytest.mark.parametrize(
    ("text", "where", "instead"),
    [
        (TF + "\nnet = tf.contrib.slim.conv2d(x, 3, 3)", "train.py:3", "tf_slim"),
        ("import tensorflow.contrib.slim as slim\nslim.conv2d(x, 3, 3)", "train.py:2", "tf_slim"),
        ("from tensorflow.contrib import slim\n\nslim.conv2d(x, 3, 3)", "train.py:3", "tf_slim"),
        ("from tensorflow.contrib import tpu\ntpu.TPUEstimator()", "train.py:2", "tf.tpu"),
        (TF + "tf.contrib.learn.RunConfig()", "train.py:2", "tf.keras"),
        (TF + "tf.contrib.layers.optimize_loss", "train.py:2", "tf_slim"),
        (TF + "tf.contrib.layers.real_valued_column('x')", "train.py:2", "tf.feature_column"),
        ("from tensorflow.contrib import layers\nlayers.bias_add(x)", "train.py:2", "tf_slim"),
        (TF + "tf.nn.seq2seq.rnn_decoder()", "train.py:2", "tfa.seq2seq"),
        (
            "from tensorflow.examples.tutorials.estimators import abalone\nabalone.main()",
            "train.py:2",
            "input_data",
        ),
        ("print 'hello'", "train.py:1", "2to3 -w train.py"),
        (
            "a = 1\ntry:\n    pass\nexcept ValueError, e:\n    pass",
            "train.py:4",
            "2to3 -w train.py",
        ),
        ("raise ValueError, 'no'", "train.py:1", "2to3 -w train.py"),
        ("if 1 <> 2:\n    pass", "train.py:1", "2to3 -w train.py"),
        ("import model\n", "model.py:1", "2to3 -w model.py"),
        ("if 1:\n        a = 1\n\tb = 2\n", "train.py:3", "`expand -i train.py > expanded.py && "),
    ],
)
def test_unavailable_name_is_refused_with_line_and_replacement(text, where, instead):
    sources = {"train.py": text, "model.py": "print 'old'\n"}
    read = source.read_program(JOB.command, sources)
    with pytest.raises(Refused) as refused:
        compat.refuse_incompatible(compat.decide_compat(JOB, read), read)
    assert refused.value.where == where
    assert instead in str(refused.value.next)


SLIM = "import tensorflow.contrib.slim as slim\nslim.conv2d(x, 3, 3)\nslim.flatten(x)\n"
INSTALL = "`tfdeploy exec --limit n2 -- /usr/bin/python3 -m pip install tf_slim`"


@pytest.mark.parametrize(
    ("requirements", "brings"),
    [
        (None, f"{INSTALL}; or `setup: {{requirements: FILE}}` with a line tf_slim in FILE"),
        ("/code/needs.txt", "write a line tf_slim into needs.txt, then run `tfdeploy setup`"),
    ],
)
def test_missing_package_is_refused_with_line_that_installs_it(
    requirements, brings, facts_of, inventory
):
    hosts = {
        host.name: facts_of(host, modules={"tf_slim": host.name == "n1"})
        for host in inventory(worker="n1 n2").hosts
    }
    ((where, message, instead),) = decide(
        SLIM, replace(JOB, setup_requirements=requirements), hosts
    ).refusals
    assert (where, instead) == ("train.py:2", brings)
    assert (
        message
        == "tf.contrib.slim.conv2d, tf.contrib.slim.flatten (train.py:3) are not in TensorFlow 2"
    )
    (note,) = decide(
        SLIM.replace("slim.conv", "def f(): slim.conv", 1).rsplit("\n", 2)[0], hosts=hosts
    ).notes
    assert (
        f"only if it reaches one of them): tf.contrib.slim.conv2d (train.py:2): {INSTALL}; or "
        "`setup:" in note
    )


def test_installed_package_supplies_names(facts_of, inventory):
    hosts = {
        host.name: facts_of(host, modules={"tf_slim": True})
        for host in inventory(worker="n1 n2").hosts
    }
    decision = decide(SLIM, hosts=hosts)
    assert (decision.choice, decision.refusals) == ("v1", ())
    (note,) = decision.notes
    assert note.startswith(
        "the package tf_slim supplies tf.contrib.slim.conv2d (train.py:2), tf.contrib.slim.flatten"
    )


def test_supplied_names_of_first_versions_give_note():
    decision = decide(
        TF
        + "\n".join(
            [
                "tf.mul(a, b)",
                "tf.pack([a])",
                "tf.mul(b, c)",
                "tf.sub(a, b)",
                "tf.neg(a)",
                "tf.inv(a)",
            ]
        )
    )
    assert (decision.choice, decision.refusals) == ("v1", ())
    assert decision.notes == (
        "names of TensorFlow 0.x, which tfdeploy supplies: tf.mul (train.py:2), tf.pack "
        "(train.py:3), tf.sub (train.py:5), "
        "tf.neg (train.py:6) and 1 more",
    )


def test_all_unavailable_names_are_in_one_error():
    text = TF + "tf.contrib.crf\ntf.nn.seq2seq\ntf.contrib.crf\ntf.contrib.slim"
    read = source.read_program(JOB.command, {"train.py": text})
    with pytest.raises(Refused) as refused:
        compat.refuse_incompatible(compat.decide_compat(JOB, read), read)
    assert refused.value.what.count("is not in TensorFlow 2") == 3
    assert "train.py:5: tf.contrib.slim" in refused.value.what


def test_supplied_names_of_0_x_and_contrib_select_version_1():
    for text in (
        "tf.mul(tf.pack([a]), b)\ntf.train.SummaryWriter('/tmp')\ntf.merge_all_summaries()",
        "tf.contrib.rnn.LSTMCell(3)\ntf.contrib.metrics.streaming_auc(p, "
        "l)\ntf.contrib.lookup.index_to_string(i, m)",
        "from tensorflow.contrib.layers.python.layers import layers\nlayers.conv2d(x)",
        "from tensorflow.contrib.tensorboard.plugins import projector\nprojector.ProjectorConfig()",
        "from tensorflow.examples.tutorials.mnist import mnist\nmnist.inference(x, 1, 2)",
    ):
        decision = decide(TF + text)
        assert (decision.choice, decision.refusals) == ("v1", ())


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from tensorflow.contrib import slim\nexcept ImportError:\n    import tf_slim "
        "as slim",
        "def broken(:\n",
        TF + "tf.contrib.framework.arg_scope\ntf.contrib.layers.conv2d\n"
        "tf.contrib.learn.datasets.mnist.read_data_sets",
    ],
)
def test_caught_supplied_and_unparsable_names_are_not_refused(text):
    assert decide(text).refusals == ()


def test_hosts_with_tensorflow_1_or_python_2_need_no_change(facts_of, inventory):
    host = inventory(worker="n1").hosts[0]
    old = {"n1": facts_of(host, tensorflow="1.15.5", python_version="2.7.18")}
    decision = decide(TF + "tf.contrib.slim\n", hosts=old)
    assert (decision.choice, decision.refusals) == ("none", ())
    assert decide("print 'x'", hosts=old).refusals == ()


def test_layers_need_keras_2_and_estimator_needs_older_tensorflow(facts_of, inventory):
    host = inventory(worker="n1").hosts[0]
    text = TF + "tf.layers.dense(x, 3)\ntf.estimator.RunConfig()"
    bare = decide(text, hosts={"n1": facts_of(host, tensorflow="2.21.0")})
    assert [row[0] for row in bare.refusals] == ["train.py:3", "train.py:2"]
    assert "pip install 'tf_keras~=2.21.0'" in bare.refusals[1][2]
    unused = decide(
        TF + "def f():\n    tf.layers.dense(x, 3)",
        hosts={"n1": facts_of(host, tensorflow="2.21.0")},
    )
    assert unused.refusals == ()
    assert decide(text, hosts={"n1": facts_of(host, tensorflow="2.15.0")}).refusals == ()
    whole = decide(
        TF + "tf.layers.dense(x, 3)",
        hosts={"n1": facts_of(host, tensorflow="2.21.0", tf_keras="2.21.0")},
    )
    assert whole.refusals == ()


@pytest.mark.parametrize("name", ["estimator.RunConfig", "compat.v1.estimator.Estimator"])
def test_estimator_in_tensorflow_2_program_is_refused(name, facts_of, inventory):
    host = inventory(worker="n1").hosts[0]
    text = f"{TF}s = tf.distribute.MultiWorkerMirroredStrategy()\ntf.{name}(s)\n"
    ((where, message, instead),) = decide(
        text, hosts={"n1": facts_of(host, tensorflow="2.21.0")}
    ).refusals
    assert (where, message) == ("train.py:3", f"tf.{name} is not in TensorFlow 2.16 and later")
    assert "TensorFlow 2.15 or older" in instead
    assert decide(text, hosts={"n1": facts_of(host, tensorflow="2.15.0")}).refusals == ()
    assert (
        decide(
            text, replace(JOB, compat="none"), hosts={"n1": facts_of(host, tensorflow="2.21.0")}
        ).refusals
        == ()
    )


def test_python_2_builtins_give_note_unless_program_defines_them():
    assert "xrange at train.py:1 is Python 2" in decide("for i in xrange(3): pass").notes[0]
    assert decide("from six.moves import xrange\nfor i in xrange(3): pass").notes == ()
    assert decide("try:\n    xrange\nexcept NameError:\n    xrange = range\nxrange(3)").notes == ()


PLAN = {"ps": ("192.0.2.1:2222",), "worker": ("192.0.2.2:2222", "192.0.2.3:2222")}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "tf.train.ClusterSpec({'ps': ['localhost:2222'], 'worker': ['localhost:2223', "
            "'localhost:2224']})",
            "the plan's",
        ),
        (
            "tf.train.ClusterSpec({'ps': ['pc-01:2222'], 'worker': ['pc-02:2222']})",
            "worker tasks: 1 in the program, 2 in the plan",
        ),
        (
            "p = ['pc-01:2222']\nw = ('pc-02:1', 'pc-03:1', 'pc-04:1')\nc = {'ps': p, 'worker': w}",
            "worker tasks: 3 in the program, 2 in the plan",
        ),
        (
            "c = {'ps': 'a:1'.split(','), 'worker': 'b:1,c:1,d:1'.split(',')}",
            "worker tasks: 3 in the program, 2 in the plan",
        ),
        ("c = {'worker': ['a:1', 'b:1']}", "it has no ps, so write `roles: {ps: {count: 0}}`"),
        (
            "c = {'local': ['localhost:2222', 'localhost:2223']}",
            "the program's job local means the role worker",
        ),
        (
            "c = {'master': ['a:1'], 'ps': ['a:2'], 'worker': ['a:3', 'a:4']}",
            "the plan has no tasks for the program's job master",
        ),
    ],
)
def test_hard_coded_cluster_is_replaced_and_differences_are_noted(text, note):
    (cluster_note,) = [
        line for line in compat.notes(JOB, decide(TF + text), PLAN) if "the cluster written" in line
    ]
    assert (
        cluster_note.startswith("the cluster written at train.py:") or "is replaced" in cluster_note
    )
    assert note in cluster_note


@pytest.mark.parametrize(
    "text",
    [
        "tf.train.ClusterSpec({'ps': FLAGS.ps_hosts.split(','), 'worker': "
        "FLAGS.worker_hosts.split(',')})",
        "tf.train.Server({'localhost': ['localhost:0']})",
        "times = {'a': ['12:30']}['a']\nx = {1: ['a:1']}\ny = {'a': []}\nz = {'a': ['text']}",
    ],
)
def test_other_values_are_not_taken_for_cluster(text):
    assert [
        w for w in decide(TF + text).hardcoded if "12" not in w.where and "a" not in w.count_by_job
    ] == []


def test_kept_cluster_gives_note_and_uses_no_planned_ports():
    job = replace(JOB, cluster="program")
    decision = decide(TF + "c = {'ps': ['a:1'], 'worker': ['b:1']}")
    assert "is used (`cluster: program`)" in compat.notes(job, decision, PLAN)[-1]
    assert compat.keeps_written_addresses(job, decision)
    assert not compat.keeps_written_addresses(JOB, decision)
