"""Test what a plan says about a program that uses names which TensorFlow no longer has.

If every run of the program reaches such a name, the launch is refused. Other such names lead to a
note. Nothing is said about a name for which the program has a fallback.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.planning.program import compat
from tfdeploy.planning.source import source

JOB = Job(name="digits", mode="async", command=("python", "train.py"), code="/code")
TF = "import tensorflow as tf\ntf.app\n"
GONE = "tf.contrib.crf.crf_log_likelihood()"
BUILD = f"def build():\n    {GONE}\n"
MAIN = "if __name__ == '__main__':\n    "


def decide(text, job=JOB, **others):
    sources = {"train.py": text, **{f"{name}.py": body for name, body in others.items()}}
    read = source.read_program(job.command, sources)
    return compat.decide_compat(job, read), read


def outcome(text, job=JOB, **others):
    """Return how the plan treats the name in the program: "refused", "noted", or "" for neither."""
    decision, _ = decide(text, job, **others)
    return (
        "refused"
        if decision.refusals
        else "noted"
        if any("crf" in note for note in decision.notes)
        else ""
    )


@pytest.mark.parametrize(
    "text",
    [
        GONE,
        f"with tf.Graph().as_default():\n    {GONE}",
        f"for _ in range(3):\n    {GONE}",
        f"while not sv.should_stop():\n    {GONE}",
        f"x = [a for a in {GONE}]",
        f"def build(x={GONE}):\n    pass",
        f"@{GONE}\ndef build():\n    pass",
        "class Cell(tf.contrib.crf.CrfForwardRnnCell):\n    pass",
        f"class Model:\n    loss = {GONE}",
        BUILD + "build()",
        BUILD + "def main(_):\n    build()\n" + MAIN + "tf.app.run()",
        BUILD + "def main(_):\n    build()\n" + MAIN + "tf.app.run(main=main, argv=[])",
        BUILD + "from absl import app\n" + MAIN + "app.run(build)",
        BUILD + "import threading\nts = [1]\nt = threading.Thread(target=build)\nt.start()",
        BUILD + "sess.run(build(), feed_dict={})",
        BUILD + "print(max(1, build()))",
        f"def outer():\n    def inner():\n        {GONE}\n    return inner()\nouter()",
        "class Model:\n    def __init__(self):\n        self.build()\n    def build(self):\n    "
        f"    {GONE}\nModel()",
        f"class Base:\n    def build(self):\n        {GONE}\nclass Model(Base):\n    pass\nm = "
        "Model()\nm.build()",
        f"class Model(object):\n    @staticmethod\n    def build():\n        {GONE}\nModel.build()",
        f"try:\n    {GONE}\nexcept KeyboardInterrupt:\n    pass",
        f"try:\n    {GONE}\nexcept tf.errors.OutOfRangeError:\n    pass\nfinally:\n    pass",
        f"try:\n    {GONE}\nexcept Exception:\n    print('no')\n    raise",
        "if FLAGS.job_name == 'ps':\n    server.join()\nelif FLAGS.job_name == 'worker':\n    "
        f"{GONE}",
        f"if FLAGS.job_name == 'ps':\n    server.join()\nelse:\n    {GONE}",
        "def main():\n    if 'ps' == job:\n        server.join()\n        return\n    "
        f"{GONE}\nmain()",
        f"is_chief = index == 0\nif is_chief:\n    {GONE}",
        f"if FLAGS.task_index == 0:\n    {GONE}",
        f"import sys\nif FLAGS.download_only:\n    sys.exit(0)\n{GONE}",
        f"if not FLAGS.data_dir:\n    raise ValueError('no data')\n{GONE}",
        f"import sys\nif sys.version_info[0] < 3:\n    import cPickle\nelse:\n    {GONE}",
        "from tensorflow.contrib import crf\ncrf.crf_log_likelihood()",
        "from tensorflow.contrib.crf import crf_log_likelihood\ncrf_log_likelihood()",
        "crf = tf.contrib.crf\ncrf.crf_log_likelihood()",
        "framework = tf.contrib.framework\nframework.crf_absent()",
        "from tensorflow.contrib import crf as one\ncrf = one\ncrf.crf_log_likelihood()",
        "import model",
        "from model import build",
        "import helper\nhelper.build()",
        "import helper as h\nh.build()",
        "from helper import build\nbuild()",
        "from helper import build as b\nb()",
        "from again import build\nbuild()",
    ],
)
def test_name_on_main_path_is_refused(text):
    assert (
        outcome(TF + text, model=TF + GONE, helper=TF + BUILD, again="from helper import build")
        == "refused"
    )


@pytest.mark.parametrize(
    "text",
    [
        BUILD,
        "from tensorflow.contrib import crf",
        "from tensorflow.contrib.crf import crf_log_likelihood",
        "import tensorflow.contrib.crf as crf\ndef build():\n    crf.crf_log_likelihood()",
        "crf = tf.contrib.crf",
        "from tensorflow.contrib import crf as one\ncrf = one",
        "from tensorflow.contrib.crf import crf_decode as one\ncrf = one",
        "from tensorflow.contrib import crf\nnames = crf.__dict__.keys()",
        f"loss = lambda: {GONE}",
        f"def main():\n    if FLAGS.crf:\n        {GONE}\nmain()",
        f"x = FLAGS.crf and {GONE}",
        f"x = {GONE} if FLAGS.crf else None",
        f"for grad in grads:\n    {GONE}",
        f"x = [{GONE} for a in names]",
        f"if FLAGS.mode == 'train':\n    train()\n    exit()\n{GONE}",
        "def main():\n    if FLAGS.evaluate:\n        evaluate()\n        return\n    "
        f"{GONE}\nmain()",
        f"def main():\n    return\n    {GONE}\nmain()",
        f"import sys\nsys.exit(main())\n{GONE}",
        f"if FLAGS.job_name == 'evaluator':\n    {GONE}",
        f"def batches():\n    yield {GONE}\nbatches()",
        BUILD + "dataset.map(build)",
        BUILD + "def build():\n    pass\nbuild()",
        BUILD + "def main(build):\n    build()\nmain(print)",
        f"class Model:\n    def build(self):\n        {GONE}\nModel()",
        f"if __name__ != '__main__':\n    {GONE}",
        "def train():\n    import model",
        "if FLAGS.crf:\n    import model",
        "import helper",
    ],
)
def test_name_that_may_not_be_reached_gives_note(text):
    assert outcome(TF + text, model=TF + GONE, helper=TF + BUILD + MAIN + "build()") == "noted"


@pytest.mark.parametrize(
    "text",
    [
        f"try:\n    {GONE}\nexcept AttributeError:\n    pass",
        f"try:\n    {GONE}\nexcept Exception:\n    pass",
        f"try:\n    {GONE}\nexcept:\n    pass",
        "try:\n    from tensorflow.contrib import crf\nexcept ImportError:\n    crf = "
        "None\ncrf.crf_log_likelihood()",
        "try:\n    from tensorflow.contrib import crf\nexcept ImportError:\n    raise "
        "ValueError('TensorFlow 1 only')\ncrf.x()",
        "try:\n    import tensorflow.contrib\n    HAS = True\nexcept ImportError:\n    HAS = "
        f"False\nif HAS:\n    {GONE}",
        "import helper\nif helper.HAS_CRF:\n    import model",
        "from helper import HAS_CRF\ndef build():\n    if HAS_CRF:\n        from model import "
        "x\nbuild()",
        f"if tf.__version__ < '1':\n    {GONE}",
        "from distutils.version import LooseVersion\nnew = LooseVersion(tf.VERSION) >= "
        f"'1.0'\nif not new:\n    {GONE}",
        f"def is_old():\n    return tf.__version__.startswith('0.')\nif is_old():\n    {GONE}",
        f"if hasattr(tf, 'contrib'):\n    {GONE}",
        f"x = {GONE} if hasattr(tf, 'contrib') else None",
        f"import sys\nif sys.version_info[0] < 3:\n    {GONE}",
        f"import sys\nif sys.version_info >= (3, 0):\n    pass\nelse:\n    {GONE}",
        f"import six\nif six.PY2:\n    {GONE}",
        f"if False:\n    {GONE}",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {GONE}",
        f"import contextlib\nwith contextlib.suppress(AttributeError):\n    {GONE}",
        "try:\n    import model\nexcept ImportError:\n    pass",
    ],
)
def test_name_with_fallback_in_program_is_not_mentioned(text):
    helper = (
        "try:\n    from tensorflow.contrib import crf\n    HAS_CRF = True\nexcept ImportError:\n "
        "   HAS_CRF = False\n"
    )
    assert outcome(TF + text, model=TF + GONE, helper=helper) == ""


def test_branch_on_role_is_followed_only_if_workers_run_program():
    text = f"{TF}if FLAGS.job_name == 'worker':\n    {GONE}"
    assert [
        outcome(text, replace(JOB, mode=mode)) for mode in ("async", "mirrored", "local", "ingraph")
    ] == [
        "refused",
        "refused",
        "noted",
        "noted",
    ]


def test_program_of_each_role_is_followed():
    job = replace(JOB, command=("python", "{job_name}.py"))
    read = source.read_program(job.command, {"ps.py": TF, "worker.py": TF + GONE})
    assert len(compat.decide_compat(job, read).refusals) == 1


def test_unreached_name_does_not_select_version_1_for_migrated_program():
    decision, _ = decide(
        "import tensorflow.compat.v1 as tf\nimport old\ntf.placeholder\n",
        old=f"import tensorflow as tf\n{BUILD}",
    )
    assert (decision.choice, decision.refusals, decision.notes) == ("none", (), ())


@pytest.mark.parametrize(
    ("text", "refused", "noted"),
    [
        ("import old", True, False),
        ("def f():\n    import old", False, True),
        ("if FLAGS.old:\n    import old", False, True),
        ("try:\n    import old\nexcept (ImportError, SyntaxError):\n    pass", False, True),
        ("", False, False),
    ],
)
def test_python_2_module_is_refused_if_import_is_certain(text, refused, noted):
    decision, _ = decide(text, old="x = 1\nprint 'old'\n")
    assert (
        bool(decision.refusals),
        any("old.py:2 is Python 2" in note for note in decision.notes),
    ) == (
        refused,
        noted,
    )


def test_many_names_are_one_sentence():
    names = [f"tf.contrib.{part}.f{number}" for part in ("crf", "tpu") for number in range(7)]
    decision, read = decide(TF + "\n".join(names))
    with pytest.raises(Refused) as refused:
        compat.refuse_incompatible(decision, read)
    assert refused.value.what == (
        "train.py cannot run as it is: tf.contrib.crf.f0, tf.contrib.crf.f1 (train.py:4), "
        "tf.contrib.crf.f2 (train.py:5), "
        "tf.contrib.crf.f3 (train.py:6) and 3 more are not in TensorFlow 2; also train.py:10: "
        "tf.contrib.tpu.f0, "
        "tf.contrib.tpu.f1 (train.py:11), tf.contrib.tpu.f2 (train.py:12), tf.contrib.tpu.f3 "
        "(train.py:13) and 3 more "
        "are not in TensorFlow 2 (in its place: tf.tpu and tf.distribute.TPUStrategy)"
    )


@pytest.mark.parametrize(
    ("text", "named"), [("if hasattr(tf, 'Session'):\n    tf.Session()\n", True), ("", False)]
)
def test_refusal_suggests_compat_none_if_program_has_fallback(text, named):
    decision, read = decide(TF + text + GONE)
    with pytest.raises(Refused) as refused:
        compat.refuse_incompatible(decision, read)
    assert ("`compat: none`" in str(refused.value.next)) is named
