"""Names the paths of data sets and kept folders on a host, and the links to data inside the code.

Only joins paths.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfdeploy.agent import layout
from tfdeploy.errors import UsageError
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.part_names import part_variable, parts_variable
from tfdeploy.model.plan import PartPlan, Plan
from tfdeploy.planning.cluster.placement import Seat


def paths(job: Job, file_data: frozenset[str]) -> dict[str, str]:
    """Return name -> path below the job's folder.

    The path is data/digits for a folder, data/iris/iris.csv if the source is one file.
    """
    return {
        name: posixpath.join("data", name, posixpath.basename(source.path))
        if name in file_data
        else posixpath.join("data", name)
        for name, source in job.data.items()
    }


def links(job: Job) -> dict[str, str]:
    """Return path in the code -> name, for data whose source is inside the code.

    The code is sent without this data, and a link takes its place on the host.
    """
    root = job.code.rstrip("/") + "/"
    return {
        source.path[len(root) :].rstrip("/"): name
        for name, source in job.data.items()
        if source.from_host is None
        and source.path.startswith(root)
        and source.path.rstrip("/") != root.rstrip("/")
    }


def splits(job: Job) -> tuple[str, ...]:
    """Return the data sets that are split among the workers."""
    return tuple(name for name, source in job.data.items() if source.split == "worker")


def check_splits(job: Job) -> None:
    """Raise UsageError if a data set is split and the mode has no workers that could get parts."""
    for name in splits(job):
        if job.mode is None:
            what, hint = (
                "which mode? It says which workers there are",
                "`mode: async` in the job file",
            )
        elif rules(job.mode).single or "worker" not in rules(job.mode).takes:
            what, hint = (
                f"mode {job.mode} has no workers that could get parts of it",
                "remove `split: worker`, or take another mode",
            )
        else:
            continue
        raise UsageError(
            f"data set {name} goes to the workers in parts: {what}",
            where=job.places.get(f"data.{name}"),
            next=hint,
        )


def of_task(
    job: Job, data: Mapping[str, str], seat: Seat, run: str, workdir: str
) -> dict[str, str]:
    """Return the values of {data.NAME} that differ for a task: its own part, or an empty folder."""
    values = {}
    for name in splits(job):
        if seat.role != "worker" and job.data[name].others == "all":
            continue
        part = str(seat.index) if seat.role == "worker" else layout.NO_PART
        _, _, file = data[name].removeprefix("data/").partition("/")
        values[f"data.{name}"] = posixpath.join(
            layout.parts_dir(workdir, job.name, run, seat.host, name), part, file
        ).rstrip("/")
    return values


def variables(job: Job, seat: Seat, workers: int) -> dict[str, str]:
    """Return the variables that tell a worker its part's number and the number of parts."""
    variable_values: dict[str, str] = {}
    for name in splits(job) if seat.role == "worker" else ():
        variable_values |= {
            part_variable(name): str(seat.index),
            parts_variable(name): str(workers),
        }
    return variable_values


def part_plans(job: Job, seats: Iterable[Seat]) -> dict[str, tuple[PartPlan, ...]]:
    """Return data set -> its parts by number; their contents are not known yet."""
    parts = tuple(PartPlan(seat.task, seat.host) for seat in seats if seat.role == "worker")
    return dict.fromkeys(splits(job), parts)


def with_sizes(plan: Plan, sizes: Mapping[str, Sequence[tuple[int, int]]]) -> Plan:
    """Return the plan with the number of files and bytes of each part.

    `sizes`: data set -> (files, bytes) of each part.
    """
    parts = {
        name: tuple(
            replace(part, files=files, bytes=size)
            for part, (files, size) in zip(parts, sizes[name], strict=True)
        )
        for name, parts in plan.parts.items()
    }
    return replace(plan, parts=parts)


def placeholders(job: Job, data: dict[str, str], workdir: str) -> dict[str, str]:
    """Return the values of {data.NAME} and {keep.NAME} on a host with this workdir, as absolute
    paths."""
    folder = layout.job_dir(workdir, job.name)
    values = {
        f"data.{name}": posixpath.join(folder, relative_path)
        for name, relative_path in data.items()
    }
    return {
        **values,
        **{f"keep.{path}": layout.keep_dir(workdir, job.name, path) for path in job.keep},
    }
