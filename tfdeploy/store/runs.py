"""Store each run's plan, its events and the list of its code files, in one folder for each run.

A failed write returns False and raises no error, because launch and stop must also work if the home
folder is full or read-only. A corrupt file counts as missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfdeploy.model.events import Event, event_from_json, event_to_json
from tfdeploy.model.manifest import CodeFile, Manifest
from tfdeploy.model.plan import Plan
from tfdeploy.model.plan_files import plan_from_file, plan_to_file
from tfdeploy.text.allowed import is_run_id
from tfdeploy.text.typed import decode

# To find when a plan was made, only the first bytes of plan.json are searched, because reading the
# whole file would take much longer.
_CREATED, _CREATED_WITHIN = re.compile(rb'"created": ?([0-9.]+)'), 1000
EVENTS_KEPT = 50_000  # limits the number of events that one EventRecorder writes


class RunStore:
    """The runs that are stored below the folder `root`/runs, one folder for each run."""

    def __init__(self, root: Path) -> None:
        self.root = root / "runs"

    def save(self, plan: Plan, manifest: Manifest | None = None) -> bool:
        """Store the plan, and the list of its code files with their hashes. Return True on success.

        The list is stored only if `manifest` belongs to the code of this plan.
        """
        # Imported only here, so that commands that store nothing do not load the module.
        from tfdeploy.machine.private_files import make_private_folder, write_private_file

        folder = self.root / plan.run
        try:
            make_private_folder(folder)
            if manifest is not None and manifest.release == plan.release:
                write_private_file(folder / "files.json", json.dumps(manifest.files))
                write_private_file(folder / "code", manifest.root)
            write_private_file(folder / "plan.json", json.dumps(plan_to_file(plan)))
        except OSError:
            return False
        return True

    def plan(self, run: str, job: str | None = None) -> Plan | None:
        """Return the stored plan of the run, or None if there is none.

        `job`: if given, the plan must belong to this job. Two jobs may use the same run id; then
        only the later plan is stored.
        """
        try:
            plan = plan_from_file(_read_own_file(self._run_folder(run) / "plan.json"))
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            msgspec.MsgspecError,
        ):
            return None
        return plan if job in (None, plan.job) else None

    def code_files(self, run: str) -> dict[str, CodeFile] | None:
        """Return the run's code files by path, or None if this machine does not have the list."""
        try:
            return decode((self._run_folder(run) / "files.json").read_bytes(), dict[str, CodeFile])
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return None

    def newest_code_folder(self, job: str | None = None) -> str | None:
        """Return the code folder of the newest run whose code folder is recorded, or None.

        `job`: if given, only runs of this job count.
        """
        for run in self.run_ids():
            with contextlib.suppress(OSError, ValueError):
                if job is None or self.plan(run, job):
                    return (self._run_folder(run) / "code").read_text()
        return None

    def launched_at(self, run: str) -> float | None:
        """Return the time in UTC seconds at which this machine launched the run, else None.

        The plan contains this time. The mtime of the file is used only if the plan has no time,
        because a copy of the state folder may have other mtimes.
        """
        try:
            with (self._run_folder(run) / "plan.json").open("rb") as file:
                created = _CREATED.search(file.read(_CREATED_WITHIN))
                return float(created[1]) if created else os.fstat(file.fileno()).st_mtime
        except OSError:
            return None

    def run_ids(self) -> list[str]:
        """Return the ids of the stored runs, the last launched one first."""
        try:
            names = os.listdir(self.root)
        except OSError:
            names = []
        launch_times = {
            name: time for name in names if (time := self.launched_at(name)) is not None
        }
        return sorted(launch_times, key=lambda name: (launch_times[name], name), reverse=True)

    def plans(self) -> Iterator[Plan]:
        """Return the plans of the stored runs, the last launched one first.

        Plans that cannot be read are skipped.
        """
        return filter(None, map(self.plan, self.run_ids()))

    def events(self, run: str) -> Iterator[Event]:
        """Return the events that this machine has recorded for a run, in order.

        Lines that are not events are skipped.
        """
        try:
            content = (self._run_folder(run) / "events.jsonl").read_bytes()
        except OSError:
            return
        for line in content.splitlines():
            with contextlib.suppress(ValueError, msgspec.MsgspecError, RecursionError):
                yield event_from_json(line)

    def has_ended(self, run: str) -> bool:
        """Return True if a recorded event says that the run has ended or its launch was undone."""
        ended = False
        for event in self.events(run):
            if event.kind == "run":
                ended = event.data.get("state") in ("succeeded", "failed", "stopped")
            elif event.kind == "step" and event.data.get("step") == "rollback":
                ended = event.data.get("state") == "done"
        return ended

    def disk_usage_bytes(self, run: str) -> int:
        """Return the disk space in bytes that the stored run takes; 0 if it is not stored."""
        try:
            return sum(path.lstat().st_blocks * 512 for path in self._run_folder(run).iterdir())
        except OSError:
            return 0

    def remove_run(self, run: str) -> bool:
        """Remove everything that is stored of a run. Return True if nothing is left.

        The plan is removed first: a folder without a plan is not listed as a run, even if the rest
        cannot be removed.
        """
        folder = self.root / run
        if not is_run_id(run) or folder.is_symlink():
            return False
        try:
            for path in sorted(folder.iterdir(), key=lambda path: path.name != "plan.json"):
                path.unlink(missing_ok=True)
            folder.rmdir()
        except OSError:
            return not folder.exists()
        return True

    def event_recorder(self, run: str) -> EventRecorder:
        """Return a callable that appends the run's events to its file."""
        return EventRecorder(self.root / run / "events.jsonl")

    def _run_folder(self, run: str) -> Path:
        """Return the folder of the run. Raises FileNotFoundError for an invalid run id."""
        if not is_run_id(run):
            raise FileNotFoundError(run)
        return self.root / run


def _read_own_file(path: Path) -> bytes:
    """Return the file's content. Raises PermissionError if another user owns the file.

    With a forged plan, another user could make tfdeploy start programs on the hosts.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_uid not in (0, os.geteuid(), path.parents[2].stat().st_uid):
            raise PermissionError(errno.EPERM, "another user owns this file", str(path))
        return file.read()


class EventRecorder:
    """Appends the events of one run to the file events.jsonl in its folder.

    Samples (measurements) are not recorded, because the hosts hold them. The plan is not recorded,
    because it has its own file.
    """

    def __init__(self, path: Path) -> None:
        from tfdeploy.machine.private_files import make_private_folder

        self.path = path
        self.remaining = EVENTS_KEPT
        self.file: BinaryIO | None = None
        try:
            make_private_folder(path.parent)
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self.file = os.fdopen(file, "ab", buffering=0)
        except OSError:
            return  # `self.file` stays None, so nothing is recorded

    def close(self) -> None:
        """Close the file. Remove the file if the run has no stored plan, as after a failed launch.

        Without a plan, no command could find the events.
        """
        if self.file is not None:
            self.file.close()
            self.file = None
            if not self.path.with_name("plan.json").exists():
                with contextlib.suppress(OSError):
                    self.path.unlink()
                    self.path.parent.rmdir()

    def __call__(self, event: Event) -> None:
        if event.kind in ("sample", "plan") or self.remaining <= 0 or self.file is None:
            return
        self.remaining -= 1
        try:
            self.file.write(event_to_json(event) + b"\n")
        except OSError:
            self.remaining = 0
