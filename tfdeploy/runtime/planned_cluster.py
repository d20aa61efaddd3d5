"""Replace a cluster that is hard-coded in the program with the cluster from the plan.

Tutorials contain `{"ps": ["localhost:2222"], "worker": [...]}`. Servers, resolvers and strategies
all create a ClusterSpec, so every ClusterSpec is checked. If the cluster has an address that is not
in the plan, it was written for other machines and is replaced. A cluster whose servers all use port
0, or whose jobs are all unknown to the plan, is not changed. Each change writes one line to
standard error.

A program may have a hard-coded task index, or read the index from a file. Then every task starts
the same server: `Server(cluster, "worker", 0)`. No task gets an error, because servers listen on
all addresses. But all servers wait for peers that no task runs. So `choose_index` gives each server
the index of this task.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from . import job_synonyms, task
from .wrapping import report_errors, wrap_function

# Job -> the addresses of its tasks, in the order of their indexes.
Cluster = Dict[str, List[str]]

# Address written in the program -> address in the plan.
_moved: Dict[str, str] = {}
# Session targets (grpc://HOST:PORT) of the servers in this process.
_own_targets: List[str] = []
# (job, index) of each server in this process.
_serving: List[Tuple[str, int]] = []
# Role of the plan -> the name of the corresponding job in the program.
_jobs: Dict[str, str] = {}


def patch_module(server_lib_module: Any) -> None:
    """Patch the module tensorflow.python.training.server_lib, so that clusters and servers follow
    the plan."""
    plan = read_planned_cluster()
    if not plan:
        return
    spec = server_lib_module.ClusterSpec

    @wrap_function(spec, "__init__")
    def make_planned(make: Any, self: Any, cluster: Any) -> None:
        make(self, cluster)
        instead = None
        with report_errors("the planned cluster"):
            instead = find_replacement(_list_addresses(self.as_dict()), plan)
        if instead is not None:
            make(self, instead)

    @wrap_function(server_lib_module.Server, "__init__")
    def serve_planned(
        serve: Any,
        self: Any,
        server_or_cluster_def: Any,
        job_name: Any = None,
        task_index: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        with report_errors("the task's place in the planned cluster"):
            task_index = _choose_server_index(
                spec, server_or_cluster_def, plan, job_name, task_index
            )
        serve(self, server_or_cluster_def, job_name, task_index, *args, **kwargs)
        server_target = self.target
        _own_targets.append(
            server_target.decode() if isinstance(server_target, bytes) else server_target
        )


def read_planned_cluster() -> Cluster:
    """Return the plan's cluster; {} if this task's TF_CONFIG has no cluster."""
    return dict(task.tf_config().get("cluster") or {})


def addresses_of(cluster: Cluster) -> Set[str]:
    return {address for tasks in cluster.values() for address in tasks}


def find_replacement(written: Cluster, plan: Cluster) -> Optional[Cluster]:
    """Return the cluster that replaces `written`, the program's cluster. Return None if `written`
    must not be replaced. Report each replacement on standard error."""
    addresses = addresses_of(written)
    if addresses <= addresses_of(plan) or all(address.endswith(":0") for address in addresses):
        return None
    jobs = job_synonyms.map_jobs_to_roles(written, plan)
    if not jobs:
        task.print_once(
            "the cluster written into the program (%s) is kept, because its jobs do not fit those "
            "of the plan: %s" % (format_cluster(written), ", ".join(plan))
        )
        return None
    instead = {role: tasks for role, tasks in plan.items() if role not in jobs.values()}
    instead.update({job: plan[role] for job, role in jobs.items()})
    for job, role in jobs.items():
        _moved.update(zip(written[job], plan[role]))
    task.print_once(
        "the cluster written into the program (%s) is replaced by the plan's cluster (%s)"
        % (format_cluster(written), format_cluster(instead))
    )
    _print_differences(written, jobs, plan)
    return instead


def choose_index(cluster: Cluster, plan: Cluster, job: str, index: int) -> int:
    """Return the index of the server to start: this task's own index if this task is in `job`,
    otherwise the program's `index`.

    This task is looked up in `cluster` by its address, because the program may use other names for
    jobs. `index` is also returned unchanged if this task has no address, or if this process has
    already started a server. A second server means that the program starts its whole cluster in one
    process."""
    role, at = task.planned_task()
    own_address = plan.get(role, [])[at : at + 1]
    tasks = cluster.get(job, [])
    if (
        not own_address
        or _own_targets
        or not 0 <= index < len(tasks)
        or tasks[index] == own_address[0]
    ):
        return index
    planned_task = "%s:%d" % (role, at)
    if own_address[0] not in tasks:
        if any(own_address[0] in others for others in cluster.values()):
            task.print_once(
                "the program starts the server of %s:%d, but in the plan this task is %s"
                % (job, index, planned_task)
            )
        return index
    instead = tasks.index(own_address[0])
    task.print_once(
        "the program starts the server of %s:%d, but this task is %s: its server is started instead"
        % (job, index, planned_task)
    )
    return instead


def first_server() -> Optional[Tuple[str, int]]:
    """Return (job, index) of this process's first server, with the name that the program gives the
    job; None if this process has no server."""
    return _serving[0] if _serving else None


def job_of_role(role: str) -> str:
    """Return the job of the program's cluster that corresponds to a role of the plan."""
    return _jobs.get(role, role)


def _choose_server_index(
    spec: Any, server_cluster: Any, plan: Cluster, job: Any, index: Any
) -> Any:
    """Return the index to use for a server of the cluster `server_cluster`. Also record, for each
    role of the plan, the name of its job in this cluster."""
    # A ServerDef already contains the job and the index, so the index is not changed.
    if (
        not isinstance(job, str)
        or index is None
        or hasattr(server_cluster, "default_session_config")
    ):
        return index
    cluster = _list_addresses(spec(server_cluster).as_dict())
    own_index = choose_index(cluster, plan, job, int(index))
    _serving.append((job, own_index))
    for role, tasks in plan.items():
        _jobs[role] = next(
            (name for name, others in cluster.items() if tasks and tasks[-1] in others), role
        )
    return own_index


def replace_target(text: str) -> str:
    """Return the session target to use in place of a target that the program passes. For example,
    "grpc://localhost:2223" in a program written for one machine may mean worker 0."""
    address = text[len("grpc://") :]
    if text in _own_targets or not text.startswith("grpc://"):
        return text
    plan = read_planned_cluster()
    workers = plan.get("worker")
    instead = _moved.get(address)
    if (
        instead is None
        and workers
        and task.has_trait("one_client")
        and address not in addresses_of(plan)
    ):
        # The program is only a client: tfdeploy has started all servers of the cluster, so the
        # session connects to the first worker.
        instead = workers[0]
    if instead is None:
        return text
    task.print_once("the session's target %s is replaced by %s from the plan" % (address, instead))
    return "grpc://" + instead


def format_cluster(cluster: Cluster) -> str:
    """Return a cluster as text: "ps localhost:2222; worker localhost:2223, localhost:2224 and 3
    more"."""
    parts = []
    for job, tasks in cluster.items():
        more = " and %d more" % (len(tasks) - 3) if len(tasks) > 4 else ""
        parts.append("%s %s%s" % (job, ", ".join(tasks[:3] if more else tasks), more))
    return "; ".join(parts)


def _print_differences(written: Cluster, jobs: Dict[str, str], plan: Cluster) -> None:
    for job, tasks in written.items():
        if job not in jobs:
            task.print_once("no role of the plan fits the job %s of the program's cluster" % job)
        elif len(tasks) != len(plan[jobs[job]]):
            task.print_once(
                "the program is written for %d tasks of the job %s, but the plan has %d"
                % (len(tasks), job, len(plan[jobs[job]]))
            )


def _list_addresses(cluster: Dict[str, Any]) -> Cluster:
    return {
        job: list(tasks.values()) if isinstance(tasks, dict) else list(tasks)
        for job, tasks in cluster.items()
    }
