"""Find the live runs on this host, and the ports that belong to them. Reads only."""

from __future__ import annotations

from tfdeploy.agent.annotations import Dict, Iterator
from tfdeploy.agent.run.find import jobs_with_runs, runs_of_this_machine
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.liveness import has_live_agent_process, is_live
from tfdeploy.agent.run.task_processes import find_task_processes

_ENDED = ", which has ended; tfdeploy frees the port once all hosts of the run know of the end"


def list_live_runs(workdir: str, job: str, inventory_name: str) -> Iterator[RunPaths]:
    """Yield this host's folders of the job's live runs. `inventory_name`: as in
    file_origin.is_own_file."""
    return filter(is_live, runs_of_this_machine(workdir, job, inventory_name))


def list_port_owners(workdir: str, inventory_name: str, except_run: str = "") -> Dict[int, str]:
    """Return {port: owner} for the ports of all live runs on this host, as the plans of the runs
    name them. Also return the mesh port of each run that has ended, but whose minder still informs
    other hosts about the end.

    The plans are read because /proc does not name the run: there, a port that a minder holds is a
    socket of some Python process, or is not listed at all.
    """
    owners: Dict[int, str] = {}
    for job in jobs_with_runs(workdir):
        runs = runs_of_this_machine(workdir, job, inventory_name)
        for paths in filter(has_live_agent_process, runs):
            if paths.run == except_run:
                continue
            part, ended = paths.part(), paths.state().phase == "ended"
            ports = [(spec.task, spec.port or spec.own_port) for spec in part.tasks if not ended]
            ports += [("the mesh", each.port) for each in part.mesh if each.host == part.host]
            for name, port in ports:
                if port:
                    owner = "%s of run %s of job %s" % (name, paths.run, job)
                    owners[port] = owner + _ENDED * ended
    return owners


def has_live_processes(paths: RunPaths) -> bool:
    """Return True if the run has not ended on this host and at least one of its processes is alive:
    the minder, a supervisor or a process of a task. The processes of tasks are searched too,
    because they may have survived when the minder and the supervisors were killed."""
    return paths.state().phase != "ended" and (
        has_live_agent_process(paths) or bool(find_task_processes(paths, paths.tasks())[0])
    )
