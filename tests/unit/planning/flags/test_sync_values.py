"""Test the values of flags that switch synchronous training on and off."""

from __future__ import annotations

import pytest

from support.flag_programs import (
    CLUSTER,
    GIVEN,
    chosen_arguments,
    gathering_program,
)
from tfdeploy.model.job import Job

ASYNC = {**GIVEN, "issync": "0"}
SYNC = {
    "store_true": (gathering_program(
        "p.add_argument('--is_sync', "
        "action='store_true')", "FLAGS.is_sync"), (), ("--is_sync",)),
    "a number": (
        gathering_program(
            "p.add_argument('--synchronous', type=int)", "FLAGS.synchronous == 1"),
        ("--synchronous=0",), ("--synchronous=1",),
    ),
    "type=bool": (gathering_program(
        "p.add_argument('--sync', "
        "type=bool)", "FLAGS.sync"), ("--sync=",), ("--sync=1",)),
    "a text that says true": (
        gathering_program(
            "p.add_argument('--sync', default='false')", "FLAGS.sync.lower() == 'true'"),
        ("--sync=false",), ("--sync=true",),
    ),
    "a text that is compared with True": (
        gathering_program("p.add_argument('--use_sync')",
            "FLAGS.use_sync == "
            "'True'"), ("--use_sync=False",), ("--use_sync=True",),
    ),
    "a text that is empty or not": (
        gathering_program("p.add_argument('--sync_mode')", "FLAGS.sync_mode"),
        ("--sync_mode=",), ("--sync_mode=1",),
    ),
    "str2bool": (
        gathering_program(
            "def flag(v):\n  return v.lower() in ('yes', 'true')\np.add_argument('--sync', "
            "type=flag)", "FLAGS.sync"),
        ("--sync=False",), ("--sync=True",),
    ),
    "str2bool that knows 1": (
        gathering_program(
            "def flag(v):\n  return v.lower() in ('1', 'true')\np.add_argument('--sync', "
            "type=flag)", "FLAGS.sync"),
        ("--sync=0",), ("--sync=1",),
    ),
    "a registered bool": (
        gathering_program("p.register('type', 'bool', lambda v: v.lower() == 'true')\n"
                 "p.add_argument('--issync', type='bool')", "FLAGS.issync"),
        ("--issync=False",), ("--issync=True",),
    ),
    "a word": (
        gathering_program(
            "p.add_argument('--update', choices=['async', 'sync'])", "FLAGS.update == 'sync'"),
        ("--update=async",), ("--update=sync",),
    ),
    "the other way round": (gathering_program(
        "p.add_argument('--is_async', "
        "type=int)", "not FLAGS.is_async"),
        ("--is_async=1",), ("--is_async=0",)),
    "beside another test": (
        gathering_program(
            "p.add_argument('--sync', "
            "action='store_true')", "FLAGS.sync and FLAGS.job_name == 'worker'"), (), ("--sync",),
    ),
    "through a name": (
        gathering_program(
            "p.add_argument('--update', "
            "default='async')\nsync = p.parse_args().update == 'sync'", "sync"),
        ("--update=async",), ("--update=sync",),
    ),
    "absl's boolean": (
        "F = tf.app.flags\nF.DEFINE_boolean('use_sync', False, '')\n"
        "F.DEFINE_string('job_name', '', '')\nFLAGS = F.FLAGS\n" + CLUSTER
        + "opt = tf.train.SyncReplicasOptimizer if FLAGS.use_sync else None",
        ("--use_sync=0",), ("--use_sync=1",),
    ),
    "another flag around it": (gathering_program(
        "p.add_argument('--gpu', "
        "type=int)", "FLAGS.gpu == 1"), (), ()),
    "another word around it": (gathering_program(
        "p.add_argument('--what', "
        "default='eval')", "FLAGS.what == 'train'"), (), ()),
}  # fmt: skip


@pytest.mark.parametrize(("text", "off", "on"), SYNC.values(), ids=SYNC)
def test_flags_for_gathering_gradients(
    job: Job, text: str, off: tuple[str, ...], on: tuple[str, ...]
) -> None:
    names = ("--job_name=worker", "--task_index=1")
    assert tuple(word for word in chosen_arguments(job, text, ASYNC) if word not in names) == off
    assert tuple(word for word in chosen_arguments(job, text, GIVEN) if word not in names) == on
