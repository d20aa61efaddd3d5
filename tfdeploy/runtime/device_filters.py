"""Device filters: an asynchronous worker's session sees only the ps and itself; a ps's session sees
only the ps.

A session without device filters asks every task of the cluster for its devices and waits for all of
them. A worker that starts after another has ended prints "CreateSession still waiting for response
from worker" forever (tensorflow/core/distributed_runtime/master.cc, DeviceFinder). Estimator's
RunConfig set the same filters for that reason. Synchronous programs get none; neither does a
program that sets its own, or places operations on other tasks.

A ps with a session of its own ("done_queue") connects to workers that do not listen yet. After each
refusal its channel pauses for up to a second. If a worker asks for its first step in that second,
the ps cannot reach it, and the worker ends with UnavailableError ("failed to connect to all
addresses"). So the session of a ps connects to no worker.

Many programs create the session before the operations, so the graph is checked again at the first
run.
"""

from __future__ import annotations

import functools
import re
import threading
from typing import Any, Callable, Iterable, List, Optional

from . import planned_cluster, synchronous, task
from .wrapping import around

_JOB = re.compile(r"/job:([^/]*)")
_TASK = re.compile(r"/task:(\d+)")
_first_run = threading.Lock()


def apply(session: Any) -> None:
    """`session`: the module tensorflow.python.client.session."""

    @around(session.BaseSession, "__init__")
    def init_filtered(
        init: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None
    ) -> None:
        asked = config
        try:
            config = with_filters(session, target, graph, asked)
        except Exception as error:  # noqa: BLE001 the session is made as the program asked
            task.say_failed("device_filters", error)
        init(self, target, graph, config)
        if config is not asked:
            # Removed at the first run, so that later runs cost nothing more.
            self._extend_graph = functools.partial(
                _extend_first, session, self, lambda: init(self, target, self.graph, asked)
            )


def _extend_first(session: Any, one: Any, make_again: Callable[[], None]) -> None:
    """Replaces `_extend_graph` until the first run. Nothing has connected yet, so the session can
    still be replaced."""
    with _first_run:
        if "_extend_graph" in vars(one):
            try:
                if not all_within(own_filters() or (), _devices(one.graph)):
                    before = one._session
                    make_again()
                    session.tf_session.TF_DeleteSession(before)
            except Exception as error:  # noqa: BLE001 the session stays as it was made
                task.say_failed("device_filters", error)
            del one._extend_graph
    one._extend_graph()


def with_filters(session: Any, target: Any, graph: Any, config: Any) -> Any:
    """The configuration to use: `config` itself, or a copy with filters. Never changes `config`."""
    filters = own_filters()
    text = target.decode() if isinstance(target, bytes) else target
    if filters is None or not isinstance(text, str) or not text.startswith("grpc://"):
        return config
    given = session.context.context().config if config is None else config
    if not isinstance(given, session.config_pb2.ConfigProto) or given.device_filters:
        return config
    if not all_within(filters, _devices(graph or session.ops.get_default_graph())):
        return config
    filtered = session.config_pb2.ConfigProto()
    filtered.CopyFrom(given)
    filtered.device_filters.extend(filters)
    return filtered


def own_filters() -> Optional[List[str]]:
    """The ps and this task; None for a task that must see all tasks, or whose place is not
    known."""
    servers = "/job:%s" % planned_cluster.job_of("ps")
    if task.role() == "ps" and task.has("lasting_ps"):
        return [servers]
    if not task.has("own_session") or synchronous.is_synchronous():
        return None
    if task.role() not in ("chief", "worker") or task.index() is None:
        return None
    job, place = planned_cluster.serving() or task.planned_task()
    return [servers, "/job:%s/task:%d" % (job, place)]


def _devices(graph: Any) -> Iterable[str]:
    return (operation.device for operation in graph.get_operations())


def all_within(filters: Iterable[str], devices: Iterable[str]) -> bool:
    """Whether each device string names no task, or one that the filters let through."""
    return all(
        any(_lets_through(f, device) for f in filters)
        for device in set(devices)
        if _JOB.search(device)
    )


def _lets_through(one: str, device: str) -> bool:
    for part in (_JOB, _TASK):
        wanted, named = part.search(one), part.search(device)
        if wanted and named and wanted.group(1) != named.group(1):
            return False
    return True
