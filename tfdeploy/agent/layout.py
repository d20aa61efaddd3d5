"""Name every path on a host. Pure: joins paths and reads no file.

    <workdir>/<job>/
        releases/<hash>/               the code; its manifest beside it: <hash>.json
        data/<name>/                   a data set; data/<name>.json once complete
        keep/<path>/                   folders that outlive runs
        keep/<path>.before-<run>       set aside by `launch --fresh`
        runs/<run>/plan.json           the whole plan
        runs/<run>/cwd/                the working directory
        runs/<run>/hosts/<host>/       part.json env.json(0600) mesh.json(0600) state.json journal
                                       samples minder.*
        .../tasks/<role>-<index>/      status.json journal samples out.log out.index
    <workdir>/.indoubt/<job>@<run>@<host>    a run that is prepared, and neither committed nor ended
    <workdir>/.audit/<hostname>/       log.jsonl: who did what on that host;
                                       log.1.jsonl: older entries
    <workdir>/.envs/<hash>/            an environment; <hash>.json once complete, .lock,
                                       .used/<job>@<hostname>

The path of a file that belongs to one host contains the host's name, so that all hosts can share
one workdir (NFS).
"""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import List

UNCOMMITTED = ".indoubt"
# The file with the plan of a run. run/shown_plan.py reads and writes it.
PLAN = "plan.json"
# Names of files of a run on one host. run/folder.py reads and writes most of these files, but not
# ASIDE, DECIDED, and the locks, logs and pipes of processes.
ASIDE = "aside.json"  # used by run/keep_aside.py
PART, SECRETS, CERTIFICATES, STATE, KNOWN = (
    "part.json",
    "env.json",
    "mesh.json",
    "state.json",
    "knowledge.json",
)
MINDER_LOCK, MINDER_LOG, MINDER_FIFO, JOURNAL, DECIDED = (
    "minder.lock",
    "minder.log",
    "minder.fifo",
    "journal",
    "decided",
)
# Names of the audit log's folder and of the files in it. serve/audit_log.py reads and writes them.
AUDIT, AUDIT_LOG, AUDIT_OLD, AUDIT_LOCK = ".audit", "log.jsonl", "log.1.jsonl", "lock"
FIREWALL_FIFO, FIREWALL_LOG = "firewall.fifo", "firewall.log"  # used by minder/firewall.py
FORWARDED_END = "word.told"  # written by the verb run.tell, see mesh/forwarded_end.py
# The modules in sampling/ write these files. Each task also has a file SAMPLES of its own.
SAMPLES, NEWEST_SAMPLES = "samples", "samples.json"
# Names of files of one task of a run on one host. A task also has a JOURNAL, SAMPLES and the files
# of its log, see log/format.py.
STATUS, STOP, SUPERVISOR_LOCK, SUPERVISOR_LOG = (
    "status.json",
    "stop.json",
    "supervisor.lock",
    "supervisor.log",
)
NO_PART = "none"  # name of an empty folder in parts_dir, for tasks that read no part
# The folder in which rsync keeps incomplete files (its option --partial-dir). The next sync
# continues with these files.
PARTIAL = ".tfdeploy-partial"


class HostPartMissing(ValueError):
    """This host takes no part in the run, or the run's files on this host were removed."""


def job_dir(workdir: str, job: str) -> str:
    return os.path.join(workdir, job)


def job_folders(job: str) -> List[str]:
    """Return the paths of a job's folders for releases, data sets, `keep` folders, locks and runs.
    The paths are relative to the workdir."""
    return [job + "/" + name for name in ("releases", "data", "keep", "locks", "runs")]


def releases_dir(workdir: str, job: str) -> str:
    return os.path.join(workdir, job, "releases")


def release_dir(workdir: str, job: str, release: str) -> str:
    return os.path.join(workdir, job, "releases", release)


def data_dir(workdir: str, job: str, name: str) -> str:
    return os.path.join(workdir, job, "data", name)


def keep_dir(workdir: str, job: str, path: str) -> str:
    return os.path.join(workdir, job, "keep", path)


def locks_dir(workdir: str, job: str) -> str:
    return os.path.join(workdir, job, "locks")


def folders_lock_file(workdir: str, job: str) -> str:
    """Return the path of the lock that a process must hold to create or remove folders of runs. All
    hosts that share the workdir use the same lock."""
    return os.path.join(locks_dir(workdir, job), "folders")


def runs_dir(workdir: str, job: str) -> str:
    return os.path.join(workdir, job, "runs")


def run_dir(workdir: str, job: str, run: str) -> str:
    return os.path.join(workdir, job, "runs", run)


def cwd_dir(workdir: str, job: str, run: str) -> str:
    return os.path.join(run_dir(workdir, job, run), "cwd")


def host_dir(workdir: str, job: str, run: str, host: str) -> str:
    return os.path.join(run_dir(workdir, job, run), "hosts", host)


def parts_dir(workdir: str, job: str, run: str, host: str, name: str) -> str:
    """Return the folder that contains the parts of a data set with `split`, as far as tasks of this
    host read them. The entry of a part is named by the part's number. The folder also has the entry
    NO_PART, an empty folder for tasks that read no part."""
    return os.path.join(host_dir(workdir, job, run, host), "parts", name)


def plan_file(workdir: str, job: str, run: str) -> str:
    return os.path.join(run_dir(workdir, job, run), PLAN)


def uncommitted_marks_dir(workdir: str) -> str:
    return os.path.join(workdir, UNCOMMITTED)


def envs_dir(workdir: str) -> str:
    return os.path.join(workdir, ".envs")
