"""A step that a task took for a repetition of an earlier one is asked for again.

Cause: a worker service keeps the ids of its last 100,000 requests and rejects one that it has seen with AbortedError, "The same
RunGraph (Worker) request was received twice" (tensorflow/core/distributed_runtime/recent_request_ids.h). The master has a
new thread for each step, and the ids come from a generator that each thread seeds with 32 bits. So one request in 43,000 has
an old id by chance. Nothing of that request was run; what other tasks have run of the same step is not known
(docs/decisions/0003). A step that takes gradients out of accumulators could wait for ever for those that it has taken
already, so it is repeated only once there are gradients in each of them. A partial run is not: TensorFlow does not let it
begin again.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, List

from . import task

SAYS = "The same RunGraph (Worker) request was received twice"
TIMES = 3  # one after the other; by chance, that happens once in 10**13 steps
GRADIENTS_WITHIN_S = 10.0
_POLL_S = 0.02
_TAKES = "AccumulatorTakeGradient"


def apply(session: Any) -> None:
    """`session`: the module tensorflow.python.client.session."""
    if not hasattr(getattr(session, "BaseSession", None), "_call_tf_sessionrun"):
        return
    base, aborted = session.BaseSession, session.errors.AbortedError

    def may_repeat(one: Any, _options: Any, _feeds: Any, fetches: Any, targets: Any, _metadata: Any) -> bool:
        name = session.tf_session.TF_OperationName
        takes = _takes(one.graph, [name(op) for op in (*(each.oper for each in fetches), *targets)])
        return not takes or _have_gradients(one, _counts(one.graph, takes))

    base._call_tf_sessionrun = _asking_again(base._call_tf_sessionrun, aborted, may_repeat)
    base._Callable.__call__ = _asking_again(base._Callable.__call__, aborted, lambda *_, **__: True)  # of Keras


def _asking_again(run: Callable[..., Any], aborted: Any, may_repeat: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_again(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except aborted as error:
            first = error
        return _again(run, args, kwargs, first, may_repeat)

    return run_again


def _again(run: Callable[..., Any], args: Any, kwargs: Any, error: Any, may_repeat: Callable[..., bool]) -> Any:
    """Raises `error`, or the last one of its kind, where the step is not to be repeated any more."""
    for _ in range(TIMES):
        if SAYS not in str(error) or not _judged(may_repeat, args, kwargs):
            break
        task.say("a task took a step for a repetition of an earlier one; such steps are asked again")
        try:
            return run(*args, **kwargs)
        except type(error) as another:
            error = another
    raise error


def _judged(may_repeat: Callable[..., bool], args: Any, kwargs: Any) -> bool:
    try:
        return may_repeat(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 the program gets TensorFlow's error
        task.say_failed("asked_again", error)
        return False


def _takes(graph: Any, names: List[str]) -> List[Any]:
    """The operations that take gradients out of an accumulator when these are run."""
    waiting, seen = [graph.get_operation_by_name(name) for name in names], {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen[operation.name] = operation
            waiting += [each.op for each in operation.inputs] + list(operation.control_inputs)
    return [operation for operation in seen.values() if _TAKES in operation.type]


def _counts(graph: Any, takes: List[Any]) -> List[Any]:
    """For each of these, what tells how many gradients its accumulator has."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()  # Supervisor and MonitoredSession have finalized it
    try:
        with graph.as_default(), graph.device(None), graph.control_dependencies(None), graph.name_scope(None):
            return [_count(graph, each) for each in takes]
    finally:
        if finalized:
            graph.finalize()


def _count(graph: Any, take: Any) -> Any:
    from tensorflow.python.ops import gen_data_flow_ops

    name = take.name + "_count"
    try:
        return graph.get_tensor_by_name(name + ":0")  # of an earlier time
    except KeyError:
        of_resource = take.inputs[0].dtype.name == "resource"
        kind = "resource_accumulator_num_accumulated" if of_resource else "accumulator_num_accumulated"
        return getattr(gen_data_flow_ops, kind)(take.inputs[0], name=name)


def _have_gradients(session: Any, counts: List[Any]) -> bool:
    """Waits until each accumulator has gradients, so that none was taken: new ones come only when the step is done, and till then
    their accumulator drops them as stale. False where that takes too long."""
    deadline = time.monotonic() + GRADIENTS_WITHIN_S
    while min(session.run(counts)) < 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
