"""Programs that only Keras 2 can run: `fit` on parameter servers, and what Keras 3 has dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.planning.program import legacy_keras, source

TF, FIT = "import tensorflow as tf", "tf.keras.Model().fit(x)"
THERE: dict[str, Any] = {"tf_keras": "2.21.0"}
ON = {"TF_USE_LEGACY_KERAS": "1"}
PIP = "pip install 'tf_keras~=2.21.0'"


def asked(mode: str) -> Job:
    return Job(name="j", mode=mode, command=("python", "t.py"), code="/code")  # type: ignore[arg-type]


PARAMETER_SERVERS = "s = tf.distribute.experimental.ParameterServerStrategy(r)"


def test_fit_on_parameter_servers_needs_keras_2_too(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts]
) -> None:
    job, found = asked("coordinator"), source.read(("python", "t.py"), {"t.py": "\n".join((TF, PARAMETER_SERVERS, FIT))})
    facts = {host.name: facts_of(host, **THERE) for host in inventory(worker="n1").hosts}
    assert legacy_keras.environment(job, found, facts) == ON
    assert "under ParameterServerStrategy" in legacy_keras.notes(ON, job, found, facts)[0]
    assert legacy_keras.environment(asked("local"), found, facts) == {}
    with pytest.raises(Refused, match=r"under ParameterServerStrategy.* tf_keras is missing on n1"):
        legacy_keras.environment(job, found, {name: replace(each, tf_keras=None) for name, each in facts.items()})


KERAS_2 = {
    # lines behind `import tensorflow as tf` -> what is of Keras 2
    "name": (("tf.keras.experimental.LinearModel()",), "tf.keras.experimental.LinearModel (t.py:2)"),
    "module": (("from tensorflow.keras import layers", "layers.LocallyConnected1D(2, 2)"), "tf.keras.layers.LocallyConnected1D"),
    "metric": (("m = tf.keras.metrics.Mean()", "m.reset_states()"), ".reset_states() (t.py:3)"),
    "argument": (("from tensorflow.keras.optimizers import Adam", "Adam(lr=0.1)"), "Adam(lr=) (t.py:3)"),
    "saved": (("tf.keras.Model().save(path, save_format='tf')",), '.save(save_format="tf") (t.py:2)'),
    "caught": (("m = tf.keras.metrics.Mean()", "try: m.reset_states()", "except AttributeError: m.reset_state()"), ""),
    "another method": (("m = tf.keras.Model()", "class A:", "    def reset_states(self): ...", "A().reset_states()"), ""),
    "no keras": (("tf.train.Checkpoint().save(path, save_format='tf')",), ""),
    "of both": (("tf.keras.optimizers.Adam(0.1)", "tf.keras.losses.Reduction.NONE"), ""),
}


@pytest.mark.parametrize(("lines", "said"), KERAS_2.values(), ids=KERAS_2)
def test_what_keras_3_has_dropped(
    lines: tuple[str, ...], said: str, inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts]
) -> None:
    job, found = asked("mirrored"), source.read(("python", "t.py"), {"t.py": "\n".join((TF, *lines))})
    there = {host.name: facts_of(host, **THERE) for host in inventory(worker="n1").hosts}
    missing = {name: replace(each, tf_keras=None) for name, each in there.items()}
    given = legacy_keras.environment(job, found, there)
    assert given == (ON if said else {})
    assert legacy_keras.environment(job, found, missing) == {}
    for words in (*legacy_keras.notes(given, job, found, there), *legacy_keras.notes({}, job, found, missing)):
        assert said and said in words
    assert PIP in "".join(legacy_keras.notes({}, job, found, missing)) or not said
