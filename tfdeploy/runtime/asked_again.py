"""Repeats a step that a task rejected as a duplicate of an earlier one.

A task keeps the ids of its last 100,000 requests and rejects a known id with AbortedError, "The same RunGraph (Worker) request
was received twice" (tensorflow/core/distributed_runtime/recent_request_ids.h). The master starts a thread for each step, and
each thread draws its ids from a generator with a seed of 32 bits, so one request in 43,000 has a known id by chance. The task
has run nothing of it; what other tasks have run of the step is not known (docs/decisions/0003). Often the other tasks' part is
cancelled first: then the step ends with CancelledError, and its message quotes the rejection. A step that takes gradients
out of accumulators could wait forever for gradients that it has already taken, so it is repeated only once each of them has
some. A partial run is not repeated: TensorFlow does not allow that.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, List

from . import task

MESSAGE = "The same RunGraph (Worker) request was received twice"
MAX_REPEATS = 3  # in a row; chance needs more once in 10**13 steps
GRADIENTS_TIMEOUT_S = 10.0
_POLL_S = 0.02
_TAKES = "AccumulatorTakeGradient"
_METADATA = 5  # its place, the last one, among the arguments of BaseSession._call_tf_sessionrun


def apply(session: Any) -> None:
    """`session`: the module tensorflow.python.client.session."""
    if not hasattr(getattr(session, "BaseSession", None), "_call_tf_sessionrun"):
        return
    base, errors = session.BaseSession, (session.errors.AbortedError, session.errors.CancelledError)

    def may_repeat(one: Any, _options: Any, _feeds: Any, fetches: Any, targets: Any, _metadata: Any) -> bool:
        name = session.tf_session.TF_OperationName
        takes = _takes(one.graph, [name(op) for op in (*(each.oper for each in fetches), *targets)])
        return not takes or _have_gradients(one, _counts(one.graph, takes))

    base._call_tf_sessionrun = _repeating(base._call_tf_sessionrun, errors, may_repeat, _without_metadata)
    base._Callable.__call__ = _repeating(base._Callable.__call__, errors, lambda *_, **__: True, lambda args: args)  # of Keras


def _repeating(
    run: Callable[..., Any], errors: Any, may_repeat: Callable[..., bool], again: Callable[[Any], Any]
) -> Callable[..., Any]:
    """`errors`: the classes that may quote MESSAGE. `again`: arguments of the first call -> those of a repetition."""

    @functools.wraps(run)
    def run_repeating(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except errors as error:
            last = error
        for _ in range(MAX_REPEATS):
            if MESSAGE not in str(last) or not _may_repeat(may_repeat, args, kwargs):
                break
            task.say("a task rejected a step as a repetition of an earlier one; such steps are run again")
            try:
                return run(*again(args), **kwargs)
            except errors as error:
                last = error
        raise last

    return run_repeating


def _without_metadata(args: Any) -> Any:
    """Without the buffer of `run_metadata`: the rejected step has filled it, and TensorFlow refuses one that is not empty.

    MonitoredSession always gives one. The caller then reads what the rejected step left there."""
    return (*args[:_METADATA], None)


def _may_repeat(may_repeat: Callable[..., bool], args: Any, kwargs: Any) -> bool:
    try:
        return may_repeat(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 the program gets TensorFlow's error
        task.say_failed("asked_again", error)
        return False


def _takes(graph: Any, names: List[str]) -> List[Any]:
    """The operations that take gradients out of an accumulator when the named ones are run."""
    waiting, seen = [graph.get_operation_by_name(name) for name in names], {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen[operation.name] = operation
            waiting += [each.op for each in operation.inputs] + list(operation.control_inputs)
    return [operation for operation in seen.values() if _TAKES in operation.type]


def _counts(graph: Any, takes: List[Any]) -> List[Any]:
    """For each of these operations, a tensor with the number of gradients in its accumulator."""
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
        return graph.get_tensor_by_name(name + ":0")  # added before
    except KeyError:
        of_resource = take.inputs[0].dtype.name == "resource"
        kind = "resource_accumulator_num_accumulated" if of_resource else "accumulator_num_accumulated"
        return getattr(gen_data_flow_ops, kind)(take.inputs[0], name=name)


def _have_gradients(session: Any, counts: List[Any]) -> bool:
    """Wait until each accumulator has gradients; False after a timeout.

    Gradients in an accumulator show that the step has not taken them: until the step is done, new ones are dropped as stale."""
    deadline = time.monotonic() + GRADIENTS_TIMEOUT_S
    while min(session.run(counts)) < 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
