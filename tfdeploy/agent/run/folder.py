"""Read and write the small files in a run's folder on one host. Some of these files (`word.*`) are
orders for the run's minder, which is the agent's daemon for the run on this host.

The minder and the supervisors are given only the path of this folder, from which they derive the
run, the job and the workdir. Files that an older version wrote may lack fields. The defaults of
these fields are in this module or in the records of `wire`.
"""

from __future__ import annotations

import os
import sys
import time

from tfdeploy.agent import AGENT_DIR, json_text, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Union
from tfdeploy.agent.host import reserved_space
from tfdeploy.agent.host.atomic import read_json, write_bytes, write_json
from tfdeploy.agent.layout import HostPartMissing
from tfdeploy.agent.ownership import check_agent, check_owners

if TYPE_CHECKING:
    import subprocess

    from tfdeploy.agent.shapes import Certificates, MinderOrder, SharedState, StopOrder, Unchecked

ORDERS = ("renew", "start", "commit", "abort", "stop")
# Orders that must be written even on a full disk, because a run that misses such an order would
# restart its tasks.
FULL_DISK_ORDERS = ("abort", "stop")
SECRET_FILES = (layout.SECRETS, layout.CERTIFICATES)
NO_REASON = "the task's supervisor was told to end the task"
_ORDER_BYTES = 1024  # reserved on the disk for the file of each order in FULL_DISK_ORDERS


def agent_command(*words: str) -> List[str]:
    """Return the command that starts another process of the agent. `words`: a command of main.py
    and its arguments. Raises UntrustedPath, OSError."""
    check_agent(AGENT_DIR)
    return [sys.executable, "-S", "-E", AGENT_DIR] + list(words)


def start_agent(log_path: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start another process of the agent, which appends its output to the file `log_path`. `words`:
    as for agent_command. `options`: arguments for Popen, which override the defaults of this
    function. Raises UntrustedPath, OSError."""
    import subprocess  # imported only here, so that sessions that start no process do not load it

    with open(log_path, "ab") as log:
        defaults = {
            "stdin": subprocess.DEVNULL,
            "stdout": log,
            "stderr": log,
            "start_new_session": True,
        }
        return subprocess.Popen(agent_command(*words), **{**defaults, **options})


class RunPaths:
    """The paths of one run on one host. `host_dir` is <workdir>/<job>/runs/<run>/hosts/<host>."""

    def __init__(self, host_dir: str) -> None:
        self.host_dir = host_dir
        self.workdir, self.job, _, self.run, _, self.host = host_dir.rsplit("/", 5)
        self.run_dir = os.path.dirname(os.path.dirname(host_dir))
        self.cwd = os.path.join(self.run_dir, "cwd")
        # The minder writes these two files: state.json and knowledge.json.
        self.state_file, self.known_file = self.file(layout.STATE), self.file(layout.KNOWN)
        self.minder_lock = self.file(layout.MINDER_LOCK)
        self.minder_log = self.file(layout.MINDER_LOG)

    def file(self, name: str) -> str:
        return os.path.join(self.host_dir, name)

    def check_owner(self, *below: str) -> None:
        """Check the owner of each folder from the workdir down to this host's folder, and of the
        paths in `below`, which are relative to this host's folder. Raises UntrustedPath if an owner
        is wrong. Raises OSError."""
        folder = os.path.relpath(self.host_dir, self.workdir)
        check_owners(self.workdir, folder, *(os.path.join(folder, path) for path in below))

    def task_dir(self, task: str) -> str:
        return self.file("tasks/" + task.replace(":", "-"))

    def make_task_dir(self, task: str) -> str:
        """Return the task's folder. Make the folder if it is missing. Raises OSError if the run's
        folder was removed, because that folder must not come back."""
        folder = self.task_dir(task)
        for each in (os.path.dirname(folder), folder):
            try:
                os.mkdir(each, 0o700)
            except FileExistsError:
                pass
        return folder

    # --- part.json. It is written last, so a folder without part.json is incomplete.

    def part(self) -> wire.HostPart:
        """Return this host's part of the run's plan. Raises HostPartMissing if part.json is missing
        or damaged."""
        fields = read_json(self.file(layout.PART))
        if fields is None:
            raise HostPartMissing(
                "the files of run %s were removed from this host: %s is gone"
                % (self.run, self.file(layout.PART))
            )
        return wire.from_wire(wire.HostPart, fields)

    def tasks(self) -> List[str]:
        """Return the names of the tasks that this host runs. Raises HostPartMissing."""
        return [spec.task for spec in self.part().tasks]

    def has_readable_part(self) -> bool:
        return read_json(self.file(layout.PART)) is not None

    def was_removed(self) -> bool:
        """Return True if part.json is gone. The run's folder, or its content, was then removed or
        is being removed."""
        return not os.path.exists(self.file(layout.PART))

    def plan_digest(self) -> Optional[str]:
        """Return the digest of the run's plan, or None if part.json is missing or damaged."""
        fields = read_json(self.file(layout.PART))
        return None if fields is None else str(fields.get("plan_digest"))

    def prepared_time(self) -> float:
        """Return when part.json was written, which is when the run was prepared. The time is in UTC
        seconds of the file system's clock. Raises OSError."""
        return os.stat(self.file(layout.PART)).st_mtime

    def write_part(self, part: wire.HostPart) -> None:
        write_json(self.file(layout.PART), wire.to_wire(part), durable=True)

    # --- env.json (secrets) and mesh.json (certificates)

    def secrets(self) -> Dict[str, str]:
        return {
            name: str(text) for name, text in (read_json(self.file(layout.SECRETS)) or {}).items()
        }

    def certificates(self) -> Optional[Certificates]:
        """Return the run's certificates. Return None if there are none, because the run's minders
        do not communicate or because the run has ended. Raises ValueError if the file is
        damaged."""
        certificates = read_json(self.file(layout.CERTIFICATES))
        if not certificates:
            return None
        if not all(isinstance(certificates.get(name), str) for name in ("ca", "cert", "key")):
            raise ValueError("%s is damaged" % self.file(layout.CERTIFICATES))
        return certificates  # type: ignore[return-value]

    def write_secrets(self, secrets: Unchecked, certificates: Unchecked) -> None:
        write_json(self.file(layout.SECRETS), secrets)
        write_json(self.file(layout.CERTIFICATES), certificates)

    # --- cwd/

    def task_cwd(self, spec: wire.TaskSpec) -> str:
        """Return the folder in which the task starts."""
        return os.path.join(self.cwd, spec.cwd) if spec.cwd else self.cwd

    def replaced_keep_links(self, keep: List[str]) -> List[str]:
        """Return those paths of `keep` at which cwd/ no longer has a link to the keep folder,
        because the link was removed or replaced. This function is called for every task that ends,
        so it must be cheap."""
        return [path for path in keep if os.path.isdir(self.cwd) and not self._is_keep_link(path)]

    def _is_keep_link(self, path: str) -> bool:
        """Return whether `path` in cwd/ is a link to its keep folder. Hosts that share a workdir
        may see it under different paths, so only the end of the link's target is compared."""
        try:
            target = os.readlink(os.path.join(self.cwd, path))
        except OSError:
            return False
        return target.endswith(layout.keep_dir("/", self.job, path))

    # --- state.json and knowledge.json

    def state(self) -> wire.HostRunState:
        """Return the run's state on this host, from the file state.json, which the minder writes.
        If the file is missing, the state is `prepared`."""
        fields = read_json(self.state_file)
        if fields is None:
            return wire.HostRunState(self.run, self.job, self.host)
        return wire.from_wire(wire.HostRunState, fields)

    def write_state(self, state: wire.HostRunState, durable: bool = False) -> None:
        reserved_space.write_json(self.state_file, wire.to_wire(state), durable=durable)

    def stored_shared_state(self) -> Optional[Unchecked]:
        """Return the content of knowledge.json, in the form that shared_state.from_json parses.
        Return None if the file is missing or damaged."""
        return read_json(self.known_file)

    def is_commit_recorded(self) -> bool:
        return bool((self.stored_shared_state() or {}).get("committed"))

    def write_shared_state(self, known: SharedState) -> None:
        reserved_space.write_json(self.known_file, known, durable=True)

    # --- a task's files

    def status_file(self, task: str) -> str:
        return os.path.join(self.task_dir(task), layout.STATUS)

    def supervisor_lock(self, task: str) -> str:
        return os.path.join(self.task_dir(task), layout.SUPERVISOR_LOCK)

    def stop_file(self, task: str) -> str:
        return os.path.join(self.task_dir(task), layout.STOP)

    def status(self, task: str) -> wire.TaskStatus:
        """Return the task's status, as its supervisor last wrote it. A task that never started is
        `pending`."""
        fields = read_json(self.status_file(task))
        if fields is None:
            return wire.TaskStatus(self.run, task, self.host)
        return wire.from_wire(wire.TaskStatus, fields)

    def write_status(self, status: wire.TaskStatus) -> None:
        reserved_space.write_json(self.status_file(status.task), wire.to_wire(status))

    def stop_order(self, task: str) -> Optional[StopOrder]:
        """Return the order to stop a task, or None if there is no such order or its file is
        damaged."""
        fields = read_json(self.stop_file(task)) or {}
        if not isinstance(fields.get("grace_s"), (int, float)):
            return None
        return {
            "reason": str(fields.get("reason", NO_REASON)),
            "grace_s": float(fields["grace_s"]),
            "outcome": str(fields.get("outcome", "stopped")),
        }

    def write_stop_order(self, task: str, order: StopOrder) -> None:
        write_json(self.stop_file(task), order)

    # --- journals: one for the run, and one for each task

    def journal(self, task: str, event: str, fields: Mapping[str, object], **last: object) -> None:
        """Append a line to the journal of `task`, or of the run if `task` is "". The line contains
        the keys "v", "time" and "what" (the event), and the fields in `fields` and `last`. Raises
        OSError."""
        line = dict(fields, v=wire.VERSION, time=time.time(), what=event, **last)
        reserved_space.append_line(self._journal_path(task), line)

    def _journal_path(self, task: str) -> str:
        return os.path.join(self.task_dir(task) if task else self.host_dir, layout.JOURNAL)

    @property
    def uncommitted_mark_file(self) -> str:
        """The file that marks the run as uncommitted, see uncommitted.py."""
        name = "%s@%s@%s" % (self.job, self.run, self.host)
        return os.path.join(layout.uncommitted_marks_dir(self.workdir), name)

    # --- orders for the minder

    def minder_order_file(self, name: str) -> str:
        return self.file("word." + name)

    def minder_order(self, name: str) -> Optional[MinderOrder]:
        """Return the order `name` for the minder, or None if it was not given. Fields of a wrong
        type are left out."""
        fields = read_json(self.minder_order_file(name))
        if fields is None:
            return None
        order: MinderOrder = {  # type: ignore[assignment]
            name: float(fields[name])
            for name in ("time", "grace_s")
            if isinstance(fields.get(name), (int, float))
        }
        if fields.get("reason"):
            order["reason"] = str(fields["reason"])
        return order

    def write_minder_order(self, name: str, **fields: Union[str, float]) -> None:
        """Write the order `name` for the minder, and wake the minder. `fields`: see
        shapes.MinderOrder. Raises OSError if the disk is full and no space was reserved for this
        order."""
        try:
            write_json(self.minder_order_file(name), fields)
        except OSError:
            if name not in FULL_DISK_ORDERS:
                raise
            text = json_text.encode(fields).ljust(_ORDER_BYTES)
            # The whole order is written by a single write(). If that is cut short, the JSON is
            # incomplete, and readers ignore the order.
            with open(self.minder_order_file(name), "r+b", buffering=0) as file:
                file.write(text[:_ORDER_BYTES])
        self.wake_minder()

    def reserve_disk_space(self, part: wire.HostPart) -> None:
        """Reserve disk space for the files that must be written even on a full disk. The files for
        orders to the minder are filled with blanks, so that an order can later be written in place
        of the blanks. Readers ignore a file of blanks. Raises OSError."""
        for name in FULL_DISK_ORDERS:
            write_bytes(self.minder_order_file(name), b" " * _ORDER_BYTES)
        for path in (self.state_file, self.known_file):
            reserved_space.create_reserve(path, reserved_space.run_reserve_bytes(len(part.peers)))
        reserved_space.create_reserve(self._journal_path(""), reserved_space.JOURNAL_BYTES)
        for spec in part.tasks:
            reserved_space.create_reserve(self.status_file(spec.task), reserved_space.STATUS_BYTES)
            reserved_space.create_reserve(
                self._journal_path(spec.task), reserved_space.JOURNAL_BYTES
            )

    def wake_minder(self) -> None:
        """Wake the minder, so that it acts on new files at once. If no minder runs, nothing
        happens, because a minder reads the files when it starts."""
        try:
            fifo = os.open(self.file(layout.MINDER_FIFO), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(fifo, b"!")
        except OSError:
            pass  # the pipe is full of earlier bytes, and these wake the minder too
        finally:
            os.close(fifo)

    def open_firewall_fifo(self) -> Optional[int]:
        """Open the FIFO of the run's firewall for writing, and return the descriptor. The firewall
        stays in place as long as the descriptor is open (see minder/firewall.py). Return None if
        the run has no firewall on this host."""
        path = self.file(layout.FIREWALL_FIFO)
        try:
            # A FIFO can be opened for writing only while it has a reader. This descriptor is the
            # reader.
            reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        finally:
            os.close(reader)
