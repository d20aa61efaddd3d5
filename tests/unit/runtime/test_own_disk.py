"""Test which tasks read the checkpoints of a ParameterServerStrategy, and which tasks write them.

tests/lab/test_examples.py tests this with the real TensorFlow.
"""

from __future__ import annotations

import pytest

FAKE = """
class CheckpointOptions:
    def __init__(self, experimental_io_device=None, enable_async=False):
        self.told = (experimental_io_device, enable_async)
"""
PROGRAM = """
from tensorflow.python.checkpoint.checkpoint_options import CheckpointOptions
print(CheckpointOptions().told)
print(CheckpointOptions(None, enable_async=True).told)
print(CheckpointOptions("/job:ps", True).told)
"""
ITS_OWN = "('/job:ps', True)"


@pytest.mark.parametrize(
    ("mode", "task", "device"),
    [
        ("coordinator", "chief:0", "/job:chief/task:0/device:CPU:0"),
        ("coordinator", "evaluator:0", None),
        ("mirrored", "chief:0", None),
        ("async", "worker:0", None),
    ],
)
def test_chief_of_coordinator_saves_on_own_disk(run_python, fake_tensorflow, mode, task, device):
    folder = fake_tensorflow({"tensorflow/python/checkpoint/checkpoint_options.py": FAKE})
    done = run_python(PROGRAM, task=task, mode=mode, paths=[folder])
    assert done.stdout.splitlines() == [str((device, False)), str((device, True)), ITS_OWN], (
        done.stderr
    )
