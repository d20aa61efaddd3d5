"""Where data sets and kept folders lie on a host, and which data is linked back into the code. Joins paths only."""

from __future__ import annotations

import posixpath

from tfdeploy.agent import layout
from tfdeploy.model.job import Job


def places(job: Job, file_data: frozenset[str]) -> dict[str, str]:
    """name -> path below the job's folder: data/digits, or data/iris/iris.csv when the source is one file."""
    return {
        name: posixpath.join("data", name, posixpath.basename(source)) if name in file_data else posixpath.join("data", name)
        for name, source in job.data.items()
    }


def links(job: Job) -> dict[str, str]:
    """path in the code -> name, for the data whose source lies inside the code: left out there and linked back."""
    root = job.code.rstrip("/") + "/"
    return {
        source[len(root) :].rstrip("/"): name
        for name, source in job.data.items()
        if source.startswith(root) and source.rstrip("/") != root.rstrip("/")
    }


def placeholders(job: Job, data: dict[str, str], workdir: str) -> dict[str, str]:
    """The values of {data.NAME} and {keep.NAME} on a host with this workdir: absolute paths."""
    folder = layout.job_dir(workdir, job.name)
    values = {f"data.{name}": posixpath.join(folder, place) for name, place in data.items()}
    return {**values, **{f"keep.{path}": layout.keep_dir(workdir, job.name, path) for path in job.keep}}
