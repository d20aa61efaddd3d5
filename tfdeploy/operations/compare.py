"""Collect the plans, samples and code of several runs, for `tfdeploy compare`.

Reads from hosts and from this machine, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tfdeploy.agent import layout
from tfdeploy.errors import Refused, TfdeployError
from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.compare import ComparedRun, changed_files, select_comparable
from tfdeploy.operations.copy.safe_folder import SafeFolder
from tfdeploy.operations.outcomes import session_of
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.samples import read_samples
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Errors, Fleet, Session
from tfdeploy.transport.rsync.transfer import pull

PULL_S = 60.0  # time limit for the code files of one run
SLACK_BYTES = 1 << 20  # a host may send this much for file names, in addition to the contents


def collect_runs(
    fleet: Fleet, plans: Sequence[Plan], store: RunStore
) -> tuple[list[ComparedRun], Errors]:
    """Return the runs in the order of `plans`, and the errors of hosts without an answer."""
    runs, errors = [], Errors()
    for plan in plans:
        sampled = read_samples(fleet, plan)
        errors.update(sampled.errors)
        began = min((rows[0].time for rows in sampled.tasks.values() if rows), default=plan.created)
        runs.append(
            ComparedRun(
                plan=plan,
                started=min(began, plan.created) if plan.created else began,
                tasks=sampled.tasks,
                files=store.code_files(plan.run),
            )
        )
    return _add_differing_contents(fleet, runs), errors


def _add_differing_contents(fleet: Fleet, runs: list[ComparedRun]) -> list[ComparedRun]:
    """Return the runs with the contents of those code files that differ between them.

    The contents of a run are missing if none of its hosts has its code any more.
    """
    paths = [changed_files(runs[0].files or {}, run.files or {}) for run in runs]
    # Each run is compared with the first run. So the first run needs the contents of every file
    # that differs in any other run.
    wanted_paths = [dict.fromkeys(path for names in paths for path in names), *paths[1:]]
    return [
        replace(run, contents=_fetch_contents(fleet, run, names))
        for run, names in zip(runs, wanted_paths, strict=True)
    ]


def _fetch_contents(
    fleet: Fleet, run: ComparedRun, paths: Iterable[str]
) -> dict[str, bytes] | None:
    """Return the contents of the run's files from a host that has them.

    Return None if no host of the run has them.
    """
    files = select_comparable(run.files or {}, paths)
    if not files:
        return {}
    for host in hosts_of(run.plan):
        with suppress(TfdeployError):
            if contents := _read_files(session_of(fleet, host), run.plan, files):
                return contents
    return None


def _read_files(session: Session, plan: Plan, files: Mapping[str, CodeFile]) -> dict[str, bytes]:
    """Return the contents, by path, of those files that have not changed on the host."""
    release_folder = layout.release_dir(session.agent().hello.workdir, plan.job, plan.release)
    names, total = [os.fsencode(path) for path in files], sum(each.size for each in files.values())
    with (
        TemporaryDirectory(prefix="tfdeploy-compare-") as name,
        SafeFolder(Path(name)) as local_folder,
    ):
        pull(
            session.target,
            release_folder,
            name,
            names=names,
            max_bytes=total + SLACK_BYTES,
            max_s=PULL_S,
            session=session,
            total_bytes=total,
        )
        contents = {
            path: _read_content(local_folder, path, each.size) for path, each in files.items()
        }
    return {
        path: blob for path, blob in contents.items() if sha256(blob).hexdigest() == files[path].sum
    }


def _read_content(folder: SafeFolder, path: str, size: int) -> bytes:
    """Return the content of a file, at most `size` + 1 bytes. Return b"" if there is no such file.

    The further byte shows that the file is longer than expected.
    """
    with suppress(OSError, Refused), os.fdopen(folder.open(path), "rb") as file:
        return file.read(size + 1)
    return b""
