"""Defines the paths of data sets and `keep` folders on a host, and the links that lead to them.

This module reads and writes no file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfdeploy.agent import layout
from tfdeploy.errors import UsageError
from tfdeploy.model.job import Job, part_count_variable, part_number_variable
from tfdeploy.model.modes import rules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.model.plan import PartPlan, Plan
    from tfdeploy.planning.cluster.placement import Seat


def data_paths(job: Job, single_file_sets: frozenset[str]) -> dict[str, str]:
    """Return {data set: its path on a host}, relative to the job's folder on that host.

    A data set that is a folder has a path such as data/digits. A data set that is a single file has
    a path such as data/iris/iris.csv.
    """
    return {
        name: f"data/{name}/{posixpath.basename(source.path)}"
        if name in single_file_sets
        else f"data/{name}"
        for name, source in job.data.items()
    }


def data_links(job: Job) -> dict[str, str]:
    """Return {path in the code: name of the data set}, for data sets inside the code folder.

    The code is sent without these data sets. On the host, a link at this path leads to the data
    set.
    """
    root = job.code.rstrip("/") + "/"
    return {
        path: name
        for name, source in job.data.items()
        if source.from_host is None
        and source.path.startswith(root)
        and (path := source.path.removeprefix(root).rstrip("/"))
    }


def split_data_names(job: Job) -> tuple[str, ...]:
    """Return the names of the data sets that are split among the workers."""
    return tuple(name for name, source in job.data.items() if source.split == "worker")


def refuse_split_without_workers(job: Job) -> None:
    """Raise UsageError if the job splits a data set among workers, but its mode has no workers."""
    what, hint = "", ""
    if job.mode is None:
        what, hint = "a job without a mode has no workers", "write `mode: async` in the job file"
    elif rules_of(job.mode).single:
        what = f"mode {job.mode} has no workers that could get its parts"
        hint = "remove `split: worker`, or take another mode"
    for name in split_data_names(job) if what else ():
        raise UsageError(
            f"data set {name} has `split: worker`, but {what}",
            where=job.places.get(f"data.{name}"),
            next=hint,
        )


def part_placeholders(
    job: Job, path_by_data_set: Mapping[str, str], seat: Seat, run: str, workdir: str
) -> dict[str, str]:
    """Return the task's values of the placeholders {data.NAME}, for data sets that are split.

    A value is the folder that contains the task's own part of the data set. A task without a part
    gets an empty folder.
    """
    values = {}
    for name in split_data_names(job):
        if seat.role != "worker" and job.data[name].others == "all":
            continue
        part = str(seat.index) if seat.role == "worker" else layout.NO_PART
        _, _, file = path_by_data_set[name].removeprefix("data/").partition("/")
        values[f"data.{name}"] = posixpath.join(
            layout.parts_dir(workdir, job.name, run, seat.host, name), part, file
        ).rstrip("/")
    return values


def part_variables(job: Job, seat: Seat, worker_count: int) -> dict[str, str]:
    """Return the environment variables that tell a worker which part of a data set it has.

    They contain the number of the part and how many parts there are. Tasks of other roles get none
    of these variables.
    """
    texts: dict[str, str] = {}
    for name in split_data_names(job) if seat.role == "worker" else ():
        texts[part_number_variable(name)] = str(seat.index)
        texts[part_count_variable(name)] = str(worker_count)
    return texts


def part_plans(job: Job, seats: Iterable[Seat]) -> dict[str, tuple[PartPlan, ...]]:
    """Return {data set: (worker and host of each part)}, for data sets with `split: worker`.

    The files of the parts are not known yet.
    """
    # Imported only here, because a sync needs no plan and the import takes 5 ms.
    from tfdeploy.model.plan import PartPlan

    parts = tuple(PartPlan(seat.task, seat.host) for seat in seats if seat.role == "worker")
    return dict.fromkeys(split_data_names(job), parts)


def with_part_sizes(
    plan: Plan, part_sizes_by_data_set: Mapping[str, Sequence[tuple[int, int]]]
) -> Plan:
    """Return the plan with the size of each part of the split data sets.

    `part_sizes_by_data_set`: {data set: (number of files, bytes) of each part}.
    """
    parts = {
        name: tuple(
            replace(part, files=files, bytes=size)
            for part, (files, size) in zip(parts, part_sizes_by_data_set[name], strict=True)
        )
        for name, parts in plan.parts.items()
    }
    counts = {name: [files for files, _ in part_sizes_by_data_set[name]] for name in parts}
    notes = (
        f"data {name}: the workers get {min(files)} to {max(files)} files; if they wait for each "
        "other in training, let every worker do the same number of steps"
        for name, files in counts.items()
        if len({*files}) > 1
    )
    return replace(plan, parts=parts, notes=(*plan.notes, *notes))


def folder_placeholders(job: Job, path_by_data_set: dict[str, str], workdir: str) -> dict[str, str]:
    """Return the values of the placeholders {data.NAME} and {keep.NAME} on a host.

    The values are paths below the host's workdir.
    """
    folder = layout.job_dir(workdir, job.name)
    return {
        **{f"data.{name}": posixpath.join(folder, path) for name, path in path_by_data_set.items()},
        **{f"keep.{path}": layout.keep_dir(workdir, job.name, path) for path in job.keep},
    }
