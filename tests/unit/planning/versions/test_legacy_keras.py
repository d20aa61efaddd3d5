"""Test which programs get Keras 2 instead of Keras 3.

These are programs that call `fit` with parameter servers, that use names which Keras 3 has dropped,
that use layers of TensorFlow 1, or that use Keras in graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.planning.program import compat
from tfdeploy.planning.source import source
from tfdeploy.planning.versions import legacy_keras

TF, FIT = "import tensorflow as tf", "tf.keras.Model().fit(x)"
HAS_TF_KERAS: dict[str, Any] = {"tf_keras": "2.21.0"}
ON = {"TF_USE_LEGACY_KERAS": "1"}
PIP = "pip install 'tf_keras~=2.21.0'"


def job_with_mode(mode: str) -> Job:
    return Job(name="j", mode=mode, command=("python", "t.py"), code="/code")  # type: ignore[arg-type]


PARAMETER_SERVERS = "s = tf.distribute.experimental.ParameterServerStrategy(r)"


def test_fit_on_parameter_servers_needs_keras_2(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts]
) -> None:
    job, collected = (
        job_with_mode("coordinator"),
        source.read_program(("python", "t.py"), {"t.py": "\n".join((TF, PARAMETER_SERVERS, FIT))}),
    )
    facts = {host.name: facts_of(host, **HAS_TF_KERAS) for host in inventory(worker="n1").hosts}
    choice = legacy_keras.decide_keras_version(job, collected, facts)
    assert choice.variables == ON
    assert "under ParameterServerStrategy" in choice.notes[0]
    assert (
        legacy_keras.decide_keras_version(job_with_mode("local"), collected, facts).variables == {}
    )
    with pytest.raises(Refused, match=r"under ParameterServerStrategy.* tf_keras is missing on n1"):
        legacy_keras.decide_keras_version(
            job,
            collected,
            {name: replace(host_facts, tf_keras=None) for name, host_facts in facts.items()},
        )


KERAS_2 = {
    # {case: (lines after `import tensorflow as tf`, the name that needs Keras 2)}
    "name": (
        ("tf.keras.experimental.LinearModel()",),
        "tf.keras.experimental.LinearModel (t.py:2)",
    ),
    "a data set's maker": (
        ("tf.keras.utils.experimental.DatasetCreator(f)",),
        "tf.keras.utils.experimental.DatasetCreator",
    ),
    "backend": (
        ("import tensorflow.keras.backend as K", "K.in_train_phase(x, y)"),
        "tf.keras.backend.in_train_phase (t.py:3)",
    ),
    "loss": (
        ("from tensorflow.keras.losses import mean_squared_error",),
        "tf.keras.losses.mean_squared_error (t.py:2)",
    ),
    "function as a metric": (
        ("tf.keras.metrics.mean_absolute_error(x, y)",),
        "tf.keras.metrics.mean_absolute_error",
    ),
    "callback": (("tf.keras.callbacks.BaseLogger()",), "tf.keras.callbacks.BaseLogger (t.py:2)"),
    "model": (("tf.keras.applications.ResNetRS50()",), "tf.keras.applications.ResNetRS50 (t.py:2)"),
    "mesh": (
        ("tf.keras.dtensor.experimental.LayoutMap(m)",),
        "tf.keras.dtensor.experimental.LayoutMap (t.py:2)",
    ),
    "optimizer that raises": (
        ("tf.keras.optimizers.legacy.Adam(0.1)",),
        "tf.keras.optimizers.legacy.Adam (t.py:2)",
    ),
    "module": (
        ("from tensorflow.keras import layers", "layers.LocallyConnected1D(2, 2)"),
        "tf.keras.layers.LocallyConnected1D",
    ),
    "metric": (("m = tf.keras.metrics.Mean()", "m.reset_states()"), ".reset_states() (t.py:3)"),
    "argument": (
        ("from tensorflow.keras.optimizers import Adam", "Adam(lr=0.1)"),
        "Adam(lr=) (t.py:3)",
    ),
    "saved": (
        ("tf.keras.Model().save(path, save_format='tf')",),
        '.save(save_format="tf") (t.py:2)',
    ),
    "caught": (
        (
            "m = tf.keras.metrics.Mean()",
            "try: m.reset_states()",
            "except AttributeError: m.reset_state()",
        ),
        "",
    ),
    "another method": (
        (
            "m = tf.keras.Model()",
            "class A:",
            "    def reset_states(self): ...",
            "A().reset_states()",
        ),
        "",
    ),
    "no keras": (("tf.train.Checkpoint().save(path, save_format='tf')",), ""),
    "minimize": (
        ("class A: opt = tf.keras.optimizers.SGD(0.1)", "A().opt.minimize(f, [w])"),
        "minimize() of Keras' optimizers (t.py:3)",
    ),
    "minimize of another": (
        ("o = tf.compat.v1.train.AdamOptimizer()", "o.minimize(x)", "tf.keras.Sequential()"),
        "",
    ),
    "losses of both": (
        ("tf.keras.losses.MSE(x, y)", "tf.keras.losses.binary_crossentropy(x, y)"),
        "",
    ),
    "saving, of both": (("from tensorflow.keras.saving import load_model",), ""),
    "of both": (("tf.keras.optimizers.Adam(0.1)", "tf.keras.losses.Reduction.NONE"), ""),
}


@pytest.mark.parametrize(("lines", "keras_2_name"), KERAS_2.values(), ids=KERAS_2)
def test_names_dropped_by_keras_3(
    lines: tuple[str, ...],
    keras_2_name: str,
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
) -> None:
    job, collected = (
        job_with_mode("mirrored"),
        source.read_program(("python", "t.py"), {"t.py": "\n".join((TF, *lines))}),
    )
    facts_with_tf_keras = {
        host.name: facts_of(host, **HAS_TF_KERAS) for host in inventory(worker="n1").hosts
    }
    missing = {
        name: replace(host_facts, tf_keras=None) for name, host_facts in facts_with_tf_keras.items()
    }
    with_tf_keras, without = (
        legacy_keras.decide_keras_version(job, collected, facts)
        for facts in (facts_with_tf_keras, missing)
    )
    assert with_tf_keras.variables == (ON if keras_2_name else {})
    assert without.variables == {}
    for note in (*with_tf_keras.notes, *without.notes):
        assert keras_2_name and keras_2_name in note
    assert PIP in "".join(without.notes) or not keras_2_name


V1 = "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
DENSE = "tf.layers.dense(x, 2)"
LAYERS = "tf.compat.v1.layers"
# {case: (text of t.py, the name that needs Keras 2, other modules of the code)}
MIGRATED: dict[str, tuple[str, str, dict[str, str]]] = {
    "compat.v1": (V1 + DENSE, f"{LAYERS}.dense (t.py:3)", {}),
    "cells": (
        V1 + "tf.nn.rnn_cell.BasicLSTMCell(3)",
        "tf.compat.v1.nn.rnn_cell.BasicLSTMCell (t.py:3)",
        {},
    ),
    "another import": (
        "from tensorflow.compat import v1 as tf\n" + DENSE,
        f"{LAYERS}.dense (t.py:2)",
        {},
    ),
    "layers alone": (
        "from tensorflow.compat.v1 import layers\nlayers.dense(x, 2)",
        f"{LAYERS} (t.py:1)",
        {},
    ),
    "an alias": (
        TF + "\ntf1 = tf.compat.v1\ntf1.layers.dense(x, 2)",
        f"{LAYERS}.dense (t.py:3)",
        {},
    ),
    "an alias of layers": (V1 + "layers = tf.layers\nlayers.dense(x, 2)", f"{LAYERS} (t.py:3)", {}),
    "by version": (
        TF + "\nif tf.__version__ > '2': tf = tf.compat.v1\n" + DENSE,
        f"{LAYERS}.dense (t.py:3)",
        {},
    ),
    "by import": (
        f"try: import tensorflow.compat.v1 as tf\nexcept ImportError: {TF}\n{DENSE}",
        f"{LAYERS}.dense (t.py:3)",
        {},
    ),
    "handed on": ("from lib import tf\n" + DENSE, f"{LAYERS}.dense (t.py:2)", {"lib.py": V1}),
    "a module's": (
        "import common\ncommon.tf.layers.dense(x, 2)",
        f"{LAYERS}.dense (t.py:2)",
        {"common.py": V1},
    ),
    "a package's": (
        "import a.b as c\nc.tf.layers.dense(x, 2)",
        f"{LAYERS}.dense (t.py:2)",
        {"a/b.py": V1, "a/__init__.py": ""},
    ),
    "handed on twice": (
        "from a.b import *\n" + DENSE,
        f"{LAYERS}.dense (t.py:2)",
        {"a/b.py": "from .c import tf", "a/c.py": V1, "a/__init__.py": ""},
    ),
    "version 1 itself": (
        TF + "\ntf.placeholder(tf.float32)\n" + DENSE,
        "tf.layers.dense (t.py:3)",
        {},
    ),
    "of contrib": (TF + "\ntf.contrib.rnn.GRUCell(3)", "tf.contrib.rnn.GRUCell (t.py:2)", {}),
    "made of layers": (V1 + "import tf_slim as slim", "tf_slim (t.py:3)", {}),
    "a session of Keras": (
        TF + "\ntf.compat.v1.keras.backend.set_session(s)",
        "tf.compat.v1.keras.backend.set_session (t.py:2)",
        {},
    ),
    "a loss of version 1": (
        V1 + "tf.keras.losses.cosine_proximity(x, y)",
        "losses.cosine_proximity (t.py:3)",
        {},
    ),
    "graph": (
        V1 + "tf.keras.layers.Dropout(0.5)(x)",
        "tf.compat.v1.keras.layers.Dropout in a graph (t.py:3)",
        {},
    ),
    "eager off": (
        "import tensorflow as tf\nfrom tensorflow.keras import layers\ndef main(_): "
        "tf.compat.v1.disable_eager_execution()\n"
        "tf.compat.v1.app.run(main)",
        "tf.keras.layers in a graph (t.py:2)",
        {},
    ),
    "sessions of train": (
        TF + "\nm = tf.keras.Sequential()\ntf.compat.v1.train.MonitoredTrainingSession()",
        "tf.keras.Sequential in a graph (t.py:2)",
        {},
    ),
    "sessions": (
        "import tensorflow.compat.v1 as tf\nwith tf.Graph().as_default():\n  "
        "tf.keras.Input(tensor=x)\n  tf.Session()",
        "tf.compat.v1.keras.Input in a graph (t.py:3)",
        {},
    ),
    # The following programs need no Keras 2.
    "the same in graphs": (
        V1 + "tf.keras.utils.to_categorical(x)\ntf.keras.initializers.Zeros()",
        "",
        {},
    ),
    "eager": (TF + "\nm = tf.keras.Sequential()\nm.fit(x)", "", {}),
    "only a configuration": (
        TF + "\ntf.compat.v1.InteractiveSession(config=c)\ntf.keras.Sequential()",
        "",
        {},
    ),
    "never called": (
        TF + "\ndef old(): tf.compat.v1.disable_eager_execution()\ntf.keras.Sequential()",
        "",
        {},
    ),
    "its own layers": (
        TF + "\nlayers = []\nlayers.append(1)\ntf.compat.v1.logging.info(1)",
        "",
        {},
    ),
    "the package": (V1 + "import keras\nkeras.layers.Dense(1)", "", {}),
    "tried": (TF + "\ntry: tf.compat.v1.layers.dense(x)\nexcept AttributeError: pass", "", {}),
}


@pytest.mark.parametrize("compatible", ["auto", "none"])
@pytest.mark.parametrize(("text", "keras_2_name", "others"), MIGRATED.values(), ids=MIGRATED)
def test_names_of_version_1_and_keras_in_graphs(
    text: str,
    keras_2_name: str,
    others: dict[str, str],
    compatible: Literal["auto", "none"],
    inventory: Callable[..., Inventory],
    facts_of: Callable[..., HostFacts],
) -> None:
    job, changed = (
        replace(job_with_mode("async"), compat=compatible),
        source.read_program(("python", "t.py"), {"t.py": text, **others}),
    )
    version1 = compat.decide_compat(job, changed).choice == "v1"
    if "compat" not in text + "".join(others.values()) and not version1:
        # TensorFlow 2 does not have this name with any version of Keras.
        keras_2_name = ""
    facts_with_tf_keras = {
        host.name: facts_of(host, **HAS_TF_KERAS) for host in inventory(worker="n1").hosts
    }
    choice = legacy_keras.decide_keras_version(job, changed, facts_with_tf_keras, version1=version1)
    assert choice.variables == (ON if keras_2_name else {})
    for note in choice.notes:
        assert keras_2_name and keras_2_name in note
    old = {
        name: replace(host_facts, tensorflow="2.15.1")
        for name, host_facts in facts_with_tf_keras.items()
    }
    assert legacy_keras.decide_keras_version(job, changed, old, version1=version1).variables == {}
