"""Set device filters, so that a session connects only to the tasks that it needs.

A session in an asynchronous worker connects to the ps and to the worker itself. A session in a ps
connects only to the ps.

A session without device filters asks every task of the cluster for its devices, and waits for all
answers. So a worker that starts after another worker has ended prints "CreateSession still waiting
for response from worker" forever (tensorflow/core/distributed_runtime/master.cc, DeviceFinder). For
the same reason, Estimator's RunConfig sets the same filters. A program gets no filters if it trains
synchronously, sets its own filters, or places operations on other tasks.

A ps may have a session of its own, in which it waits for the workers ("done_queue"). Without
filters, this session would connect to workers that do not listen yet. After each refused
connection, the channel to the worker pauses for up to a second. If the worker requests its first
step in that second, the ps cannot reach the worker, and the worker ends with UnavailableError
("failed to connect to all addresses").

Many programs create the session before the operations, so the graph is checked again at the first
run.
"""

from __future__ import annotations

import functools
import re
import threading
from typing import Any, Callable, Iterable, List, Optional

from . import planned_cluster, synchronous, task
from .wrapping import report_errors, wrap_function

_JOB = re.compile(r"/job:([^/]*)")
_TASK = re.compile(r"/task:(\d+)")
_first_run = threading.Lock()


def patch_module(session_module: Any) -> None:
    """Patch the module tensorflow.python.client.session, so that new sessions get device
    filters."""

    @wrap_function(session_module.BaseSession, "__init__")
    def init_filtered(
        init: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None
    ) -> None:
        given_config = config
        with report_errors("device_filters"):
            config = add_filters(session_module, target, graph, given_config)
        init(self, target, graph, config)
        if config is not given_config:
            # Every run of the session calls this method. At the first run, `_check_first_run`
            # restores the original method, so later runs have no overhead.
            self._extend_graph = functools.partial(
                _check_first_run,
                session_module,
                self,
                lambda: init(self, target, self.graph, given_config),
            )


def _check_first_run(session: Any, made_session: Any, make_again: Callable[[], None]) -> None:
    """Check the graph at the first run of `made_session`, and create the session again if needed.

    If an operation is on a task that the filters hide, the session is created again, without
    filters. This is still possible, because a session connects to no task before its first run."""
    with _first_run:
        if "_extend_graph" in vars(made_session):
            with report_errors("device_filters"):
                if not match_all_devices(
                    own_device_filters() or (), _list_devices(made_session.graph)
                ):
                    before = made_session._session
                    make_again()
                    session.tf_session.TF_DeleteSession(before)
            del made_session._extend_graph
    made_session._extend_graph()


def add_filters(session: Any, target: Any, graph: Any, config: Any) -> Any:
    """Return the configuration of the session: `config` itself, or a copy of `config` with device
    filters. Never changes `config`."""
    filters = own_device_filters()
    text = target.decode() if isinstance(target, bytes) else target
    if filters is None or not isinstance(text, str) or not text.startswith("grpc://"):
        return config
    session_config = session.context.context().config if config is None else config
    if (
        not isinstance(session_config, session.config_pb2.ConfigProto)
        or session_config.device_filters
    ):
        return config
    if not match_all_devices(filters, _list_devices(graph or session.ops.get_default_graph())):
        return config
    filtered = session.config_pb2.ConfigProto()
    filtered.CopyFrom(session_config)
    filtered.device_filters.extend(filters)
    return filtered


def own_device_filters() -> Optional[List[str]]:
    """Return the device filters of this task. Return None if the sessions of the task must see all
    tasks, or if the task's role or index is not known."""
    servers = "/job:%s" % planned_cluster.job_of_role("ps")
    if task.role() == "ps" and task.has_trait("lasting_ps"):
        return [servers]
    if not task.has_trait("own_session") or synchronous.is_synchronous():
        return None
    if task.role() not in ("chief", "worker") or task.index() is None:
        return None
    job, index = planned_cluster.first_server() or task.planned_task()
    return [servers, "/job:%s/task:%d" % (job, index)]


def _list_devices(graph: Any) -> Iterable[str]:
    return (operation.device for operation in graph.get_operations())


def match_all_devices(filters: Iterable[str], devices: Iterable[str]) -> bool:
    """Return True if the filters hide no device: every device that names a job matches at least one
    filter."""
    return all(
        any(_matches_device(device_filter, device) for device_filter in filters)
        for device in set(devices)
        if _JOB.search(device)
    )


def _matches_device(device_filter: str, device: str) -> bool:
    pairs = ((part.findall(device_filter), part.findall(device)) for part in (_JOB, _TASK))
    return all(
        not filter_part or not device_part or filter_part[0] == device_part[0]
        for filter_part, device_part in pairs
    )
