"""Which of a run's `hosts/<host>/` folders is this machine's: hosts may share one workdir, and serve is told no name.

One folder: that one. Several: the one whose state.json carries this machine's hostname, or, where none was
recorded, this boot's id. Reads only.
"""

from __future__ import annotations

import os
from typing import List, Optional

from tfdeploy.agent import atomic, layout, sound
from tfdeploy.agent.call import NAME


def boot_id() -> str:
    """This boot of this machine's kernel."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()


def job_names(workdir: str) -> List[str]:
    """The jobs that have runs in this workdir."""
    return [name for name in _names(workdir) if os.path.isdir(layout.runs_dir(workdir, name))]


def run_names(workdir: str, job: str) -> List[str]:
    return _names(layout.runs_dir(workdir, job))


def _names(folder: str) -> List[str]:
    try:
        return sorted(name for name in os.listdir(folder) if NAME.match(name))
    except OSError:
        return []


def host_names(workdir: str, job: str, run: str) -> List[str]:
    """The hosts that have a part of this run in this workdir; none: the run is unknown here."""
    try:
        names = os.listdir(os.path.join(layout.run_dir(workdir, job, run), "hosts"))
    except OSError:  # no such folder, or one that is none, or that cannot be read
        return []
    return sorted(name for name in names if os.path.exists(os.path.join(layout.host_dir(workdir, job, run, name), "part.json")))


def damaged(workdir: str, job: str, run: str) -> Optional[str]:
    """What is wrong with the only parts of a run that lie here, in words; None: nothing, or there is no run."""
    folder = layout.run_dir(workdir, job, run)
    if not os.path.isdir(folder):
        return "%s is no folder" % folder
    said = [sound.wrong(workdir, job, run, name) for name in host_names(workdir, job, run)]
    return None if not said or None in said else "%s: %s" % (folder, said[0])


def own_host(workdir: str, job: str, run: str) -> Optional[str]:
    """The inventory's name of this machine in that run; None: the run is unknown here, or its files are damaged."""
    names = host_names(workdir, job, run)
    sound_ones = [name for name in names if sound.wrong(workdir, job, run, name) is None]
    if len(names) == 1:
        return sound_ones[0] if sound_ones else None
    here, boot = os.uname().nodename, boot_id()
    for name in sound_ones:
        state = atomic.read_json(os.path.join(layout.host_dir(workdir, job, run, name), "state.json")) or {}
        recorded = state.get("hostname")
        if recorded == here or (recorded is None and state.get("boot_id") == boot):
            return name
    return None
