"""A cluster written into the program gives way to the planned one.

Tutorials carry `{"ps": ["localhost:2222"], "worker": [...]}`. Every ClusterSpec is looked at, since servers, resolvers
and strategies all make one: an address that the plan does not have means that the cluster was written for another
place. Left alone: a server for itself (port 0), jobs that the plan has no tasks for. Said once on standard error.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Dict, List, Optional

from . import task

Cluster = Dict[str, List[str]]  # job -> addresses by index

_SYNONYMS = {"master": "chief"}
_moved: Dict[str, str] = {}  # address as written -> address as planned
_own: List[str] = []  # targets of servers in this process


def apply(server_lib: Any) -> None:
    """`server_lib`: the module tensorflow.python.training.server_lib."""
    plan = planned()
    if not plan:
        return
    spec, server = server_lib.ClusterSpec, server_lib.Server
    make, serve = spec.__init__, server.__init__

    @functools.wraps(make)
    def make_planned(self: Any, cluster: Any) -> None:
        make(self, cluster)
        try:
            instead = in_place_of(_listed(self.as_dict()), plan)
        except Exception as error:  # noqa: BLE001 the cluster stays as the program wrote it
            task.say_failed("the planned cluster", error)
            return
        if instead is not None:
            make(self, instead)

    @functools.wraps(serve)
    def serve_noted(self: Any, *args: Any, **kwargs: Any) -> None:
        serve(self, *args, **kwargs)
        target = self.target
        _own.append(target.decode() if isinstance(target, bytes) else target)

    spec.__init__ = make_planned
    server.__init__ = serve_noted


def planned() -> Cluster:
    """The plan's cluster as this task knows it; empty where it has none."""
    text = task.tf_config()
    return dict(json.loads(text).get("cluster") or {}) if text else {}


def in_place_of(written: Cluster, plan: Cluster) -> Optional[Cluster]:
    """The cluster to use instead of `written`, or None when that stands. Says what happens."""
    addresses = [address for tasks in written.values() for address in tasks]
    known = {address for tasks in plan.values() for address in tasks}
    if set(addresses) <= known or all(address.endswith(":0") for address in addresses):
        return None
    jobs = counterparts(written, plan)
    if not jobs:
        task.say("the cluster written into the program (%s) stands: the plan's jobs are %s" % (shown(written), ", ".join(plan)))
        return None
    instead = {role: tasks for role, tasks in plan.items() if role not in jobs.values()}
    instead.update({job: plan[role] for job, role in jobs.items()})
    for job, role in jobs.items():
        _moved.update(zip(written[job], plan[role]))
    task.say("the cluster written into the program (%s) gives way to the plan's (%s)" % (shown(written), shown(instead)))
    _say_differences(written, jobs, plan)
    return instead


def counterparts(written: Cluster, plan: Cluster) -> Dict[str, str]:
    """Job of the program -> role of the plan. A single job of another name stands for the workers."""
    wanted = {job: job if job in plan else _SYNONYMS.get(job, "") for job in written}
    found = {job: role for job, role in wanted.items() if role in plan}
    if not found and len(written) == 1 and "worker" in plan:
        return {next(iter(written)): "worker"}
    return found


def target(text: str) -> str:
    """The session target to use for one that the program wrote: "grpc://localhost:2223" is worker 0's address there."""
    address = text[len("grpc://") :]
    if text in _own or not text.startswith("grpc://"):
        return text
    plan = planned()
    workers = plan.get("worker")
    instead = _moved.get(address)
    if instead is None and workers and task.has("one_client") and not any(address in tasks for tasks in plan.values()):
        instead = workers[0]  # the program is the client, and tfdeploy started all servers there are
    if instead is None:
        return text
    task.say("the session's target %s is %s in the plan" % (address, instead))
    return "grpc://" + instead


def shown(cluster: Cluster) -> str:
    """ "ps localhost:2222; worker localhost:2223, localhost:2224 and 3 more" """
    parts = []
    for job, tasks in cluster.items():
        more = " and %d more" % (len(tasks) - 3) if len(tasks) > 4 else ""
        parts.append("%s %s%s" % (job, ", ".join(tasks[:3] if more else tasks), more))
    return "; ".join(parts)


def _say_differences(written: Cluster, jobs: Dict[str, str], plan: Cluster) -> None:
    for job, tasks in written.items():
        if job not in jobs:
            task.say("the plan has nothing for the job %s of the program's cluster" % job)
        elif len(tasks) != len(plan[jobs[job]]):
            task.say("the program is written for %d of the job %s, the plan has %d" % (len(tasks), job, len(plan[jobs[job]])))


def _listed(cluster: Dict[str, Any]) -> Cluster:
    return {job: list(tasks.values()) if isinstance(tasks, dict) else list(tasks) for job, tasks in cluster.items()}
