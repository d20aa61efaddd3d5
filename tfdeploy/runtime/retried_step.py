"""Repeat a step that a task rejects as a duplicate of an earlier step.

A task remembers the ids of its last 100,000 requests. It rejects a request with a known id with
AbortedError, "The same RunGraph (Worker) request was received twice". The ids are random: about one
step in 43,000 gets the id of an earlier request. The task that rejects the request runs nothing of
the step, but other tasks may have run their parts of the step (docs/decisions/0003). If the
worker's own part is cancelled before the rejection arrives, the step ends with CancelledError,
whose message quotes the rejection.

The first try of a step may already have taken the gradients out of an accumulator. A repeated step
would then wait for gradients forever. So a step that takes gradients is repeated only when each
accumulator contains gradients. A partial run is not repeated, because TensorFlow does not allow it.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, List

from . import task
from .wrapping import report_errors

MESSAGE = "The same RunGraph (Worker) request was received twice"
# A step is repeated at most this many times. With random ids, fewer than one step in 10**13 needs
# more retries.
MAX_RETRIES = 3
GRADIENTS_TIMEOUT_S = 10.0
_POLL_S = 0.02
_TAKE_GRADIENT = "AccumulatorTakeGradient"
# The index of the argument run_metadata of BaseSession._call_tf_sessionrun, which is the last
# argument.
_METADATA_INDEX = 5


def patch_module(session: Any) -> None:
    """Replace the functions that run a step by functions that repeat a rejected step. `session`:
    the module tensorflow.python.client.session."""
    if not hasattr(getattr(session, "BaseSession", None), "_call_tf_sessionrun"):
        return
    base, errors = session.BaseSession, (session.errors.AbortedError, session.errors.CancelledError)

    def can_retry(
        failed_session: Any, _options: Any, _feeds: Any, fetches: Any, targets: Any, _metadata: Any
    ) -> bool:
        name = session.tf_session.TF_OperationName
        takes = _find_take_operations(
            failed_session.graph, [name(op) for op in (*(each.oper for each in fetches), *targets)]
        )
        return not takes or _have_gradients(
            failed_session, _add_gradient_counts(failed_session.graph, takes)
        )

    base._call_tf_sessionrun = _repeat_if_rejected_as_duplicate(
        base._call_tf_sessionrun, errors, can_retry, _drop_run_metadata
    )
    # Keras runs its steps with a _Callable, not with _call_tf_sessionrun.
    base._Callable.__call__ = _repeat_if_rejected_as_duplicate(base._Callable.__call__, errors)


def _repeat_if_rejected_as_duplicate(
    run: Callable[..., Any],
    errors: Any,
    can_retry: Callable[..., bool] = lambda *_, **__: True,
    retry_args: Callable[[Any], Any] = lambda args: args,
) -> Callable[..., Any]:
    """Return a function that calls `run` and repeats the call if a task rejects it as a duplicate.

    `errors`: the exception classes whose message may contain MESSAGE. `retry_args`: a function that
    converts the arguments of the first call into those of a retry."""

    @functools.wraps(run)
    def run_retrying(*args: Any, **kwargs: Any) -> Any:
        retries = 0
        while True:
            try:
                return run(*(retry_args(args) if retries else args), **kwargs)
            except errors as error:
                is_rejected = MESSAGE in str(error) and retries < MAX_RETRIES
                if not is_rejected or not _can_retry(can_retry, args, kwargs):
                    raise
            retries += 1
            task.print_once(
                "a task rejected a step as a duplicate of an earlier one; such steps are repeated"
            )

    return run_retrying


def _drop_run_metadata(args: Any) -> Any:
    """Return the arguments of a run without the buffer of `run_metadata`.

    MonitoredSession always passes this buffer. The first try of the step has filled it, and
    TensorFlow refuses a buffer that is not empty. So the step is repeated without the buffer, and
    the caller gets the metadata of the first try."""
    return (*args[:_METADATA_INDEX], None)


def _can_retry(can_retry: Callable[..., bool], args: Any, kwargs: Any) -> bool:
    with report_errors("retried_step"):
        return can_retry(*args, **kwargs)
    return False


def _find_take_operations(graph: Any, names: List[str]) -> List[Any]:
    """Return the operations that take gradients out of an accumulator when the operations `names`
    run."""
    pending, operations = [graph.get_operation_by_name(name) for name in names], {}
    while pending:
        operation = pending.pop()
        if operation.name not in operations:
            operations[operation.name] = operation
            pending += [each.op for each in operation.inputs] + list(operation.control_inputs)
    return [operation for operation in operations.values() if _TAKE_GRADIENT in operation.type]


def _add_gradient_counts(graph: Any, take_operations: List[Any]) -> List[Any]:
    """Return, for each operation in `take_operations`, a tensor with the number of gradients in the
    accumulator of that operation."""
    finalized = graph.finalized
    # Supervisor and MonitoredSession finalize the graph, so that nothing can be added to it.
    graph._unsafe_unfinalize()
    try:
        # There are two `with` statements, because Python 3.8 reads a single one in parentheses as a
        # tuple.
        with graph.as_default(), graph.device(None):  # noqa: SIM117
            with graph.control_dependencies(None), graph.name_scope(None):
                return [_add_gradient_count(graph, each) for each in take_operations]
    finally:
        if finalized:
            graph.finalize()


def _add_gradient_count(graph: Any, take_operation: Any) -> Any:
    from tensorflow.python.ops import gen_data_flow_ops

    name = take_operation.name + "_count"
    try:
        # If an earlier retry has already added the tensor to the graph, the tensor is used again.
        return graph.get_tensor_by_name(name + ":0")
    except KeyError:
        of_resource = take_operation.inputs[0].dtype.name == "resource"
        kind = (
            "resource_accumulator_num_accumulated" if of_resource else "accumulator_num_accumulated"
        )
        return getattr(gen_data_flow_ops, kind)(take_operation.inputs[0], name=name)


def _have_gradients(session: Any, counts: List[Any]) -> bool:
    """Wait until each accumulator contains gradients. Return False if that takes more than
    GRADIENTS_TIMEOUT_S.

    While a step runs that has taken gradients, the accumulator drops new gradients as stale and
    stays empty. So if it contains gradients, the rejected step has taken none."""
    deadline = time.monotonic() + GRADIENTS_TIMEOUT_S
    while min(session.run(counts)) < 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
