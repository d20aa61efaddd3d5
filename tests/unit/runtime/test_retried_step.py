"""Test that a training step is repeated if a task rejects it as a duplicate, and that it is not
repeated after any other error.

A step that takes gradients from accumulators is not repeated until the accumulators contain
gradients.
"""

from __future__ import annotations

import importlib.util
import types

import pytest

from tfdeploy.runtime import retried_step, task

REJECTION = "From /job:ps/replica:0/task:0:\n" + retried_step.MESSAGE + ". step_id: 7"


class AbortedError(Exception):
    pass


class CancelledError(Exception):
    pass


class Operation:
    def __init__(self, kind="NoOp", inputs=(), control_inputs=()):
        self.name, self.type, self.control_inputs = f"{kind}_{id(self)}", kind, control_inputs
        self.inputs = [types.SimpleNamespace(op=operation) for operation in inputs]


@pytest.fixture
def module(monkeypatch):
    """Return a stand-in for a module of TensorFlow. Each call of Session.run raises the next error
    from the list `errors`. Once the list is used up, the call returns 42.
    """
    monkeypatch.setattr(task, "_printed", set())
    errors = []

    def run(*_args, **_kwargs):
        if errors:
            raise errors.pop(0)
        return 42

    class BaseSession:
        graph = types.SimpleNamespace(get_operation_by_name=lambda name: operations[name])
        _call_tf_sessionrun = run
        _Callable = type("_Callable", (), {"__call__": run})

    operations = {}
    stand_in = types.SimpleNamespace(
        BaseSession=BaseSession,
        errors=types.SimpleNamespace(AbortedError=AbortedError, CancelledError=CancelledError),
        tf_session=types.SimpleNamespace(TF_OperationName=lambda operation: operation.name),
    )
    retried_step.patch_module(stand_in)

    def step(*raised, fetch=None, targets=()):
        errors[:] = raised
        operations.update(
            {operation.name: operation for operation in (fetch, *targets) if operation is not None}
        )
        fetches = [] if fetch is None else [types.SimpleNamespace(oper=fetch)]
        return BaseSession()._call_tf_sessionrun(None, {}, fetches, list(targets), None)

    return types.SimpleNamespace(step=step, errors=errors, call=BaseSession._Callable())


def test_rejected_step_is_repeated_with_one_message(module, capsys):
    assert module.step(AbortedError(REJECTION), targets=[Operation("AssignAdd")]) == 42
    assert (
        module.step(
            *[AbortedError(REJECTION)] * retried_step.MAX_RETRIES, fetch=Operation("Identity")
        )
        == 42
    )
    assert capsys.readouterr().err.count("tfdeploy: ") == 1


def test_step_cancelled_after_rejection_is_repeated(module):
    cancelled = CancelledError(
        "RecvFromRemoteAsync is cancelled.\nRecent warning and error logs:\nABORTED: " + REJECTION
    )
    assert module.step(cancelled, AbortedError(REJECTION), targets=[Operation("AssignAdd")]) == 42
    with pytest.raises(CancelledError):
        module.step(CancelledError("RecvFromRemoteAsync is cancelled."))


def test_callable_is_repeated(module):
    module.errors[:] = [AbortedError(REJECTION)]
    assert module.call(1.0, run_metadata=None) == 42


@pytest.mark.parametrize(
    "raised",
    [
        [AbortedError(REJECTION)] * (retried_step.MAX_RETRIES + 1),
        [AbortedError("Session 5c50 is not found.")],
        [AbortedError(REJECTION.replace("RunGraph (Worker)", "RecvTensor (GrpcWorker)"))],
        [ValueError(REJECTION)],
    ],
)
def test_other_errors_reach_program(module, raised):
    with pytest.raises(type(raised[0])):
        module.step(*raised)
    assert module.errors == []


def test_step_with_unreadable_graph_is_not_repeated(module, capsys):
    with pytest.raises(AbortedError):
        module.step(AbortedError(REJECTION), targets=[types.SimpleNamespace(name=1)])
    assert "retried_step is not in effect here: AttributeError" in capsys.readouterr().err


SYNCHRONOUS = """
import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as module
tf.disable_v2_behavior()
server = tf.train.Server.create_local_server()
with tf.device("/job:localhost/task:0"):
    weight, step = tf.get_variable("weight", [2]), tf.train.get_or_create_global_step()
    table = tf.get_variable("table", [4, 2])
optimizer = tf.train.SyncReplicasOptimizer(
    tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=1
)
loss = tf.reduce_sum(weight * tf.nn.embedding_lookup(table, [1, 2]))
train = optimizer.minimize(loss, global_step=step)
runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
session = tf.Session(server.target)
session.run(tf.global_variables_initializer())
session.run([optimizer.chief_init_op, optimizer.local_step_init_op])
session.run(tokens)
tf.get_default_graph().finalize()
run, calls = module.tf_session.TF_SessionRun_wrapper, []
def rejecting(*args):
    calls.append(1)
    if len(calls) % 7 == 0:
        raise tf.errors.AbortedError(
            None, None, "The same RunGraph (Worker) request was received twice. x"
        )
    return run(*args)
module.tf_session.TF_SessionRun_wrapper = rejecting
coordinator = tf.train.Coordinator()
threads = runner.create_threads(session, coordinator, daemon=True, start=True)
for _ in range(60):
    session.run(train)
print("steps", session.run(step) >= 59, coordinator.should_stop())
import os; os._exit(0)
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_synchronous_chief_continues(run_python):
    """Test a program in which the chief's queue runner takes dense and sparse gradients. Every
    seventh step is rejected before it has done anything.
    """
    done = run_python(SYNCHRONOUS, mode="sync")
    assert done.stdout == "steps True False\n", done.stderr


class Accumulators:
    """A fake session. `counts` has one list for each call of `run`. Each list has the number of
    gradients in each accumulator.
    """

    finalized = True

    def __init__(self, counts):
        self.counts = counts

    def run(self, _):
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


@pytest.mark.parametrize(
    ("counts", "safe"), [([[1, 2]], True), ([[0, 2], [0, 2], [1, 2]], True), ([[0, 2]], False)]
)
def test_step_is_repeated_only_if_each_accumulator_gets_gradients(monkeypatch, counts, safe):
    monkeypatch.setattr(retried_step, "GRADIENTS_TIMEOUT_S", 0.2)
    assert retried_step._have_gradients(Accumulators(counts), ()) is safe


MONITORED = """
import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as module
tf.disable_v2_behavior()
server = tf.train.Server.create_local_server()
step = tf.train.get_or_create_global_step()
add = tf.assign_add(step, 1)
run, calls = module.tf_session.TF_SessionRun_wrapper, []
def rejecting(*args):  # the rejected step has filled the buffer of run_metadata
    done = run(*args)
    calls.append(1)
    if len(calls) % 7 == 0:
        raise tf.errors.AbortedError(
            None, None, "The same RunGraph (Worker) request was received twice. x"
        )
    return done
with tf.train.MonitoredTrainingSession(server.target) as session:
    module.tf_session.TF_SessionRun_wrapper = rejecting
    for _ in range(60):
        session.run(add)
print("steps", len(calls))
"""
MANY_STEPS = """
import threading
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
server = tf.train.Server.create_local_server()
steps = tf.get_variable("steps", [], tf.int64, tf.zeros_initializer(), use_resource=True)
add = steps.assign_add(1, read_value=False)
session = tf.Session(server.target)
session.run(steps.initializer)
once = session.make_callable(add)
def run():
    for _ in range(75000):
        once()
        session.run(add)
threads = [threading.Thread(target=run) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print("steps", session.run(steps))
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_monitored_session_continues(run_python):
    done = run_python(MONITORED)
    assert done.stdout.startswith("steps "), done.stderr


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_six_hundred_thousand_steps(run_python):
    """Test that no step of a long training fails. Without tfdeploy's runtime, about a dozen of the
    steps would raise AbortedError, and each error would end a thread of the program.
    """
    done = run_python(MANY_STEPS, timeout_s=900)
    assert done.stdout == "steps 600000\n", done.stderr
    assert "tfdeploy: a task rejected a step as a duplicate" in done.stderr
