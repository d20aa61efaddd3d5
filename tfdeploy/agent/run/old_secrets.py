"""Remove secrets from the folder of a run that is over, or that can no longer continue because its
host was rebooted or all its processes were killed."""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.run import check_files, leftovers, liveness
from tfdeploy.agent.run.find import run_names
from tfdeploy.agent.run.folder import SECRET_FILES, RunPaths


def remove_other_runs_secrets(paths: RunPaths) -> None:
    """Remove the secrets of the job's other runs on this host. Runs that are alive keep theirs.
    Called when the run of `paths` is committed, because the other runs can then no longer be
    resumed."""
    for run in run_names(paths.workdir, paths.job):
        other = RunPaths(layout.host_dir(paths.workdir, paths.job, run, paths.host))
        if (
            run != paths.run
            and list_secret_files(other)
            and not check_files.find_damage(other)
            and not liveness.is_live(other)
        ):
            leftovers.remove_secret_files(other)


def list_secret_files(paths: RunPaths) -> List[str]:
    """Return the paths of the files with the run's secrets. They include the temporary files with
    secrets, which stay on the disk if a process is killed while it prepares the run."""
    names = list_names(paths.host_dir)
    return [paths.file(name) for name in names if name in SECRET_FILES or name.startswith(_PARTIAL)]


# The beginnings of the names of temporary files with secrets.
_PARTIAL = tuple(".%s." % name for name in SECRET_FILES)
