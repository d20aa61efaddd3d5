"""Test which names and calls in a program need an older NumPy than the one on the hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.planning.source import source
from tfdeploy.planning.versions import numpy_changes

SINGLE = (
    "W = tf.get_variable('w', [1], tf.float32)",
    "W = tf.get_variable('w', shape=(1,))",
    "W = tf.Variable(tf.zeros([1]))",
    "W = tf.Variable(tf.random_uniform([1], -1.0, 1.0), name='w')",
    "W = tf.Variable([.3], dtype=tf.float32)",
    "W = tf.Variable(initial_value=tf.constant(0., shape=[1]))",
)
ONE = SINGLE[0]
OTHER = (
    "W = tf.get_variable('w', [])",
    "W = tf.Variable(0.5)",
    "W = tf.Variable(tf.zeros([10, 1]))",
    "W = tf.reduce_mean(x)",
)
FORMAT = "_, w = sess.run([train, W])\nprint('step %d w %.2f' % (step, w))"


@pytest.fixture
def notes(facts_of: Callable[..., HostFacts], job: Job) -> Callable[..., tuple[str, ...]]:
    def read(text: str, numpy: str | None = "2.4.6", **keys: object) -> tuple[str, ...]:
        asked = replace(job, **keys)
        old, new = (
            facts_of(Host(name=name, address="192.0.2.1"), numpy=version)
            for name, version in (("n1", "1.26.4"), ("n2", numpy))
        )
        return numpy_changes.notes(
            asked, source.read_program(asked.command, {"train.py": text}), {"n1": old, "n2": new}
        )

    return read


@pytest.mark.parametrize("definition", SINGLE)
def test_one_element_array_formatted_as_number_gives_note(
    notes: Callable[..., tuple[str, ...]], definition: str
) -> None:
    (note,) = notes(f"{definition}\n{FORMAT}")
    assert (
        note.startswith("train.py:3 uses a fetched array of one element as a number")
        and "(2.4.6 on n2)" in note
    )
    assert "`numpy<2.4`" in note


@pytest.mark.parametrize(
    "use",
    [
        "w = sess.run(W)\nprint('%f' % w)",
        "[w] = sess.run([W])\nprint('%5.3e' % w)",
        "print('%d' % sess.run(W))",
        "w = W.eval()\nx = float(w)",
        "x = int(W.eval(session=sess))",
    ],
)
def test_ways_of_using_array_as_number(notes: Callable[..., tuple[str, ...]], use: str) -> None:
    assert len(notes(f"{ONE}\n{use}")) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(f"{definition}\n{FORMAT}" for definition in OTHER),
        f"{ONE}\nw = sess.run(W)\nprint('%s 100%% %r' % (w, w))",
        f"{ONE}\nloss, w = sess.run([cost, W])\nprint('%f %s' % (loss, w))",
        f"{ONE}\nw = sess.run(W)\nprint('{{:s}}'.format(str(w)), w[0], '%f' % w[0])",
        f"{ONE}\nprint('%f' % step, float(FLAGS.w))",
    ],
)
def test_code_that_numpy_still_accepts_gives_no_note(
    notes: Callable[..., tuple[str, ...]], text: str
) -> None:
    assert notes(text) == ()


def test_hosts_with_older_numpy_or_none_need_no_note(
    notes: Callable[..., tuple[str, ...]],
) -> None:
    assert [
        notes(f"{ONE}\n{FORMAT}", version) for version in ("2.3.5", "1.26.0", None, "unknown")
    ] == [(), (), (), ()]


def test_dropped_numpy_names_give_note(notes: Callable[..., tuple[str, ...]]) -> None:
    text = (
        "import numpy as np, numpy\nx = np.float(3)\ny = np.zeros(3, dtype=np.int)\nz = "
        "numpy.product(x)\nnp.int, np.int32"
    )
    assert notes(text) == (
        "NumPy has removed np.float (train.py:2), np.int (train.py:3), numpy.product (train.py:4): "
        "tfdeploy supplies a replacement",
    )
    (plain,) = notes(text, mode="plain")
    assert plain.endswith("write `numpy<1.24` into the requirements of `setup`")
    assert (
        notes("import numpy as np\ntry:\n    t = np.float\nexcept AttributeError:\n    t = float")
        == ()
    )
    assert notes("import other as np\nnp.float") == ()
