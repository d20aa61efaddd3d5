"""A step that is taken for a repetition is asked again: exactly that error, a few times, and no step that takes gradients."""

from __future__ import annotations

import importlib.util
import types

import pytest

from tfdeploy.runtime import asked_again, task

TWICE = "From /job:ps/replica:0/task:0:\n" + asked_again.SAYS + ". step_id: 7"


class AbortedError(Exception):
    pass


class Operation:
    def __init__(self, kind="NoOp", inputs=(), control_inputs=()):
        self.name, self.type, self.control_inputs = f"{kind}_{id(self)}", kind, control_inputs
        self.inputs = [types.SimpleNamespace(op=one) for one in inputs]


@pytest.fixture
def module(monkeypatch):
    """As much of TensorFlow's module as the patch touches: each run raises the next of `errors`, then returns 42."""
    monkeypatch.setattr(task, "_said", set())
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
    made = types.SimpleNamespace(
        BaseSession=BaseSession,
        errors=types.SimpleNamespace(AbortedError=AbortedError),
        tf_session=types.SimpleNamespace(TF_OperationName=lambda operation: operation.name),
    )
    asked_again.apply(made)

    def step(*raised, fetch=None, targets=()):
        errors[:] = raised
        operations.update({one.name: one for one in (fetch, *targets) if one is not None})
        fetches = [] if fetch is None else [types.SimpleNamespace(oper=fetch)]
        return BaseSession()._call_tf_sessionrun(None, {}, fetches, list(targets), None)

    return types.SimpleNamespace(step=step, errors=errors, call=BaseSession._Callable())


def test_it_is_asked_again_and_said_once(module, capsys):
    assert module.step(AbortedError(TWICE), targets=[Operation("AssignAdd")]) == 42
    assert module.step(*[AbortedError(TWICE)] * asked_again.TIMES, fetch=Operation("Identity")) == 42
    assert capsys.readouterr().err.count("tfdeploy: ") == 1


def test_a_callable_is_asked_again(module):
    module.errors[:] = [AbortedError(TWICE)]
    assert module.call(1.0, run_metadata=None) == 42


@pytest.mark.parametrize(
    "raised",
    [
        [AbortedError(TWICE)] * (asked_again.TIMES + 1),
        [AbortedError("Session 5c50 is not found.")],
        [AbortedError(TWICE.replace("RunGraph (Worker)", "RecvTensor (GrpcWorker)"))],
        [ValueError(TWICE)],
    ],
)
def test_any_other_error_is_the_programs(module, raised):
    with pytest.raises(type(raised[0])):
        module.step(*raised)
    assert module.errors == []


def test_a_step_that_takes_gradients_is_not_repeated(module):
    take = Operation("ResourceAccumulatorTakeGradient")
    apply_gradients = Operation("ApplyAdam", inputs=[take])
    tokens = Operation("QueueEnqueueManyV2", inputs=[Operation("Fill")], control_inputs=[apply_gradients])
    with pytest.raises(AbortedError):
        module.step(AbortedError(TWICE), targets=[tokens])
    token = Operation("QueueDequeueV2", control_inputs=[Operation("ResourceAccumulatorApplyGradient")])
    assert module.step(AbortedError(TWICE), targets=[token]) == 42


def test_what_cannot_be_judged_is_not_repeated(module, capsys):
    with pytest.raises(AbortedError):
        module.step(AbortedError(TWICE), targets=[types.SimpleNamespace(name=1)])
    assert "asked_again is not in effect here: AttributeError" in capsys.readouterr().err


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


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_six_hundred_thousand_steps(run_python):
    """Without, about a dozen of them end with AbortedError, and with each its thread."""
    done = run_python(MANY_STEPS, timeout_s=900)
    assert done.stdout == "steps 600000\n", done.stderr
    assert "tfdeploy: a task took a step for a repetition" in done.stderr
