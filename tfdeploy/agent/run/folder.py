"""One run on one host, found from its folder alone, and the words that serve leaves there for the minder.

The minder and the supervisors are given only this folder: everything else follows from where it lies. Reads and
writes files; decides nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time

from tfdeploy.agent import AGENT_DIR, layout, wire
from tfdeploy.agent.annotations import Any, Dict, List, Optional
from tfdeploy.agent.host import reserved_space
from tfdeploy.agent.host.atomic import read_json, write_bytes, write_json
from tfdeploy.agent.ownership import check, check_agent

WORDS = ("renew", "start", "commit", "abort", "stop")
LAST_WORDS = ("abort", "stop")  # must be said on a full disk too: what is not told that it is over starts again
_ROOM_BYTES = 1024
_BORN = time.monotonic()  # whoever started this process had looked at the agent's files
_LATELY_S = 60.0


def agent_command(*words: str) -> List[str]:
    """How the agent starts itself again: `words` are a verb of main.py and its arguments. Raises NotOurs, OSError."""
    check_agent(AGENT_DIR, lately=time.monotonic() - _BORN < _LATELY_S)
    return [sys.executable, "-S", "-E", AGENT_DIR] + list(words)


class NoPart(ValueError):
    """The run's folder is not there, or not any more."""


class RunPaths:
    """`host_dir` is <workdir>/<job>/runs/<run>/hosts/<host>."""

    def __init__(self, host_dir: str) -> None:
        self.host_dir = host_dir
        self.host = os.path.basename(host_dir)
        self.run_dir = os.path.dirname(os.path.dirname(host_dir))
        self.run = os.path.basename(self.run_dir)
        job_dir = os.path.dirname(os.path.dirname(self.run_dir))
        self.job = os.path.basename(job_dir)
        self.workdir = os.path.dirname(job_dir)
        self.cwd = os.path.join(self.run_dir, "cwd")

    def file(self, name: str) -> str:
        return os.path.join(self.host_dir, name)

    def check_owner(self, *below: str) -> None:
        """From the workdir down to this folder, and `below` it. Raises NotOurs, OSError."""
        folder = os.path.relpath(self.host_dir, self.workdir)
        check(self.workdir, folder, *(os.path.join(folder, path) for path in below))

    def task_dir(self, task: str) -> str:
        return layout.task_dir(self.workdir, self.job, self.run, self.host, task)

    def part(self) -> wire.HostPart:
        """Raises NoPart."""
        fields = read_json(self.file("part.json"))
        if fields is None:
            raise NoPart("run %s is not known here: %s is gone" % (self.run, self.file("part.json")))
        return wire.from_wire(wire.HostPart, fields)

    def replaced_links(self, keep: List[str]) -> List[str]:
        """The keep paths that are not links to their folders any more. Cheap: asked for every task that ends."""
        return [path for path in keep if os.path.isdir(self.cwd) and not self._is_linked(path)]

    def _is_linked(self, path: str) -> bool:
        """By the words of the link: hosts that share a workdir may see it under different names."""
        try:
            words = os.readlink(os.path.join(self.cwd, path))
        except OSError:
            return False
        return words.endswith(layout.keep_dir("/", self.job, path))

    def state(self) -> wire.HostRunState:
        """What the minder last wrote. A run of which nothing was written is `prepared`."""
        fields = read_json(self.file("state.json"))
        if fields is None:
            return wire.HostRunState(self.run, self.job, self.host)
        return wire.from_wire(wire.HostRunState, fields)

    def status_file(self, task: str) -> str:
        return os.path.join(self.task_dir(task), "status.json")

    def status(self, task: str) -> wire.TaskStatus:
        """What the supervisor last wrote. A task that never started is `pending`."""
        fields = read_json(self.status_file(task))
        if fields is None:
            return wire.TaskStatus(self.run, task, self.host)
        return wire.from_wire(wire.TaskStatus, fields)

    def write_status(self, status: wire.TaskStatus) -> None:
        reserved_space.write_json(self.status_file(status.task), wire.to_wire(status))

    def word(self, name: str) -> Optional[Dict[str, Any]]:
        return read_json(self.file("word." + name))

    def say(self, name: str, **fields: Any) -> None:
        """Leaves a word for the minder and wakes it up. Raises OSError: a full disk, and no room was kept for it."""
        try:
            write_json(self.file("word." + name), fields)
        except OSError:
            word = json.dumps(fields).encode("ascii").ljust(_ROOM_BYTES)
            with open(self.file("word." + name), "r+b", buffering=0) as file:  # half of it would be no word
                file.write(word[:_ROOM_BYTES])
        self.wake()

    def keep_room(self, part: wire.HostPart) -> None:
        """For what must be written on a full disk too: blanks, which are no word, and files of them. Raises OSError."""
        for name in LAST_WORDS:
            write_bytes(self.file("word." + name), b" " * _ROOM_BYTES)
        for name in ("state.json", "knowledge.json"):
            reserved_space.set_aside(self.file(name), reserved_space.run_bytes(len(part.peers)))
        reserved_space.set_aside(self.file("journal"), reserved_space.JOURNAL_BYTES)
        for spec in part.tasks:
            reserved_space.set_aside(self.status_file(spec.task), reserved_space.STATUS_BYTES)
            reserved_space.set_aside(os.path.join(self.task_dir(spec.task), "journal"), reserved_space.JOURNAL_BYTES)

    def wake(self) -> None:
        """Makes the minder look at once. Nobody there: it finds the files when it comes."""
        try:
            fifo = os.open(self.file("minder.fifo"), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(fifo, b"!")
        except OSError:
            pass  # full: it is going to look anyway
        finally:
            os.close(fifo)
