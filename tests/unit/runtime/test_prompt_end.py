"""Test TensorFlow's Coordinator.join in a task of mode sync.

After a time limit, join no longer waits for threads of queue runners, but still waits for all other
threads.
"""

from __future__ import annotations

import threading
import types

import pytest

from support.stopwatch import Stopwatch
from tfdeploy.runtime import left_behind, prompt_end, synchronous


class Coordinator:
    """Stands for TensorFlow's Coordinator, with the parts that the patch uses."""

    def __init__(self):
        self._registered_threads = set()
        self.stop = threading.Event()

    def wait_for_stop(self, timeout=None):
        return self.stop.wait(timeout)

    def join(self, threads=None, stop_grace_period_secs=120, ignore_live_threads=False):
        self.joined = (stop_grace_period_secs, ignore_live_threads)

    def request_stop(self, ex=None):
        self.reported = ex


@pytest.fixture
def coordinator(monkeypatch):
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", "sync")
    monkeypatch.setattr(synchronous, "_has_optimizer", [])
    monkeypatch.setattr(prompt_end, "CAP_S", 0.05)
    cls = type(
        "Patched",
        (Coordinator,),
        {"join": Coordinator.join, "request_stop": Coordinator.request_stop},
    )
    prompt_end.patch_module(types.SimpleNamespace(Coordinator=cls))
    new_coordinator = cls()
    new_coordinator.stop.set()
    return new_coordinator


@pytest.fixture
def blocked():
    """Return a function blocked(name), which starts a daemon thread with this name. The thread runs
    until the end of the test.
    """
    finished, threads = threading.Event(), []

    def start(name, lives_s=None):
        threads.append(
            threading.Thread(target=finished.wait, args=(lives_s,), name=name, daemon=True)
        )
        threads[-1].start()
        return threads[-1]

    yield start
    finished.set()
    for thread in threads:
        thread.join()


def test_blocked_queue_runner_is_not_awaited_after_limit(coordinator, blocked):
    coordinator._registered_threads = {
        blocked("QueueRunnerThread-sync_token_q-sync_token_q_EnqueueMany")
    }
    watch = Stopwatch()
    coordinator.join()
    assert coordinator.joined == (0.0, True)
    assert watch.seconds < 5


def test_writing_of_checkpoint_keeps_full_grace_period(coordinator, blocked):
    saving = blocked("Thread-7 (saving)", lives_s=0.3)
    coordinator.join([saving, blocked("QueueRunnerThread-q")], 100)
    assert not saving.is_alive()
    assert coordinator.joined == (0.0, True)


def test_other_endless_thread_is_error(coordinator, blocked):
    coordinator.join([blocked("Thread-7")], 0.1)
    grace_s, ignored = coordinator.joined
    assert grace_s == 0.0 and ignored is False


def test_ended_threads_are_joined_unchanged(coordinator):
    coordinator.join(None, 120)
    grace_s, ignored = coordinator.joined
    assert 119 < grace_s <= 120 and ignored is False


def test_asynchronous_training_is_unchanged(coordinator, monkeypatch, blocked):
    monkeypatch.setenv("TFDEPLOY_TASK_MODE", "async")
    coordinator.join([blocked("QueueRunnerThread-q")], 77)
    assert coordinator.joined == (77, False)


class CancelledError(Exception):
    """Stands for the exception of TensorFlow with this name."""


@pytest.mark.parametrize(
    ("name", "error", "is_error"),
    [
        (
            "QueueRunnerThread-q",
            CancelledError("Step was cancelled by an explicit call to `Session::Close()`."),
            False,
        ),
        ("QueueRunnerThread-q", CancelledError("Session has been closed."), False),
        ("QueueRunnerThread-q", RuntimeError("Attempted to use a closed Session."), False),
        (
            "QueueRunnerThread-q",
            (RuntimeError, RuntimeError("Attempted to use a closed Session."), None),
            False,
        ),
        ("QueueRunnerThread-q", CancelledError("the ps was restarted"), True),
        ("QueueRunnerThread-q", ValueError("Session::Close()"), True),
        ("Thread-7", RuntimeError("Attempted to use a closed Session."), True),
    ],
)
def test_queue_runner_of_closed_session_has_not_failed(coordinator, name, error, is_error):
    thread = threading.Thread(
        target=coordinator.request_stop, args=(error,), name=name, daemon=True
    )
    thread.start()
    thread.join()
    assert coordinator.reported is (error if is_error else None)
    coordinator.request_stop()
    assert coordinator.reported is None


class OutOfRangeError(Exception):
    pass


@pytest.mark.parametrize(
    ("role", "index", "error", "ends_well"),
    [
        (
            "worker",
            "1",
            OutOfRangeError("FIFOQueue '_0_sync_token_q' is closed and has insufficient elements"),
            True,
        ),
        (
            "worker",
            "0",
            OutOfRangeError("FIFOQueue '_0_sync_token_q' is closed and has insufficient elements"),
            False,
        ),
        (
            "worker",
            "0 decided",
            OutOfRangeError("FIFOQueue '_0_sync_token_q' is closed and has insufficient elements"),
            True,
        ),
        (
            "chief",
            "0",
            OutOfRangeError("FIFOQueue '_0_sync_token_q' is closed and has insufficient elements"),
            False,
        ),
        (
            "worker",
            "1",
            OutOfRangeError("FIFOQueue '_0_batch' is closed and has insufficient elements"),
            False,
        ),
        ("worker", "1", ValueError("FIFOQueue '_0_sync_token_q' is closed"), False),
    ],
)
def test_errors_that_mean_end_of_training(monkeypatch, tmp_path, role, index, error, ends_well):
    """Test which errors in a worker mean only that the training has ended.

    `index` is the task's index, such as "0", or the index and a word, "0 decided". With the word,
    the run also has a chief, and the chief has finished.
    """
    index, _, decided = index.partition(" ")
    monkeypatch.setenv("TFDEPLOY_TASK_ROLE", role)
    monkeypatch.setenv("TFDEPLOY_TASK_INDEX", index)
    monkeypatch.setenv("TFDEPLOY_TASK_FOLDER", str(tmp_path))
    if decided:
        (tmp_path / decided).touch()
    assert left_behind.is_end_of_training(error) is ends_well


def test_interpreter_exits_with_0_and_runs_exit_functions(run_python, fake_tensorflow):
    folder = fake_tensorflow(
        {
            "tensorflow/python/training/sync_replicas_optimizer.py": "class "
            "SyncReplicasOptimizer:\n"
            "    def __init__(self): pass\n    def apply_gradients(self): pass"
        }
    )
    code = (
        "import atexit, tensorflow.python.training.sync_replicas_optimizer as s\n"
        "class OutOfRangeError(Exception): pass\n"
        "atexit.register(print, 'bye')\n"
        "s.SyncReplicasOptimizer()\n"
        "raise {}\n"
    )
    ended = run_python(
        code.format("OutOfRangeError(\"FIFOQueue 'sync_token_q' is closed\")"),
        task="worker:1",
        paths=[folder],
    )
    assert (ended.returncode, ended.stdout) == (0, "bye\n")
    assert (
        ended.stderr
        == "tfdeploy: the chief has finished and closed the queue of tokens: this worker ends too\n"
    )
    ended = run_python(code.format("OutOfRangeError('its own')"), task="worker:1", paths=[folder])
    assert ended.returncode == 1
    assert ended.stderr.endswith("OutOfRangeError: its own\n")
