"""A step that a task took for a repetition of an earlier one is asked for again.

Cause: a worker service keeps the ids of its last 100,000 requests and rejects one that it has seen with AbortedError, "The same
RunGraph (Worker) request was received twice" (tensorflow/core/distributed_runtime/recent_request_ids.h). The master has a
new thread for each step, and the ids come from a generator that each thread seeds with 32 bits. So one request in 43,000 has
an old id by chance. Nothing of that request was run; what other tasks have run of the same step is not known
(docs/decisions/0003). A step that takes gradients out of an accumulator is not repeated: it could wait for ever for those
that it has taken already. Nor is a partial run, which TensorFlow does not let begin again.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from . import task

SAYS = "The same RunGraph (Worker) request was received twice"
TIMES = 3  # one after the other; by chance, that happens once in 10**13 steps
_TAKES = "AccumulatorTakeGradient"


def apply(session: Any) -> None:
    """`session`: the module tensorflow.python.client.session."""
    if not hasattr(session, "BaseSession"):
        return
    base, aborted = session.BaseSession, session.errors.AbortedError

    def takes_gradients(one: Any, _options: Any, _feeds: Any, fetches: Any, targets: Any, _metadata: Any) -> bool:
        name = session.tf_session.TF_OperationName
        return _takes_gradients(one.graph, [name(op) for op in (*(each.oper for each in fetches), *targets)])

    base._call_tf_sessionrun = _asking_again(base._call_tf_sessionrun, aborted, takes_gradients)
    base._Callable.__call__ = _asking_again(base._Callable.__call__, aborted, lambda *_, **__: False)  # of Keras


def _asking_again(run: Callable[..., Any], aborted: Any, is_final: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_again(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except aborted as error:
            first = error
        return _again(run, args, kwargs, first, is_final)

    return run_again


def _again(run: Callable[..., Any], args: Any, kwargs: Any, error: Any, is_final: Callable[..., bool]) -> Any:
    """Raises `error`, or the last one of its kind, where the step is not to be repeated any more."""
    for _ in range(TIMES):
        if SAYS not in str(error) or _judged(is_final, args, kwargs):
            break
        task.say("a task took a step for a repetition of an earlier one; such steps are asked again")
        try:
            return run(*args, **kwargs)
        except type(error) as another:
            error = another
    raise error


def _judged(is_final: Callable[..., bool], args: Any, kwargs: Any) -> bool:
    try:
        return is_final(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 the program gets TensorFlow's error
        task.say_failed("asked_again", error)
        return True


def _takes_gradients(graph: Any, names: Any) -> bool:
    """Whether running these operations runs one that takes gradients out of an accumulator."""
    waiting, seen = [graph.get_operation_by_name(name) for name in names], set()
    while waiting:
        operation = waiting.pop()
        if _TAKES in operation.type:
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [each.op for each in operation.inputs] + list(operation.control_inputs)
    return False
