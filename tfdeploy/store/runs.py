"""The run store: one folder a run, with plan.json and events.jsonl.

Every failure to write is answered with False, never with an exception: a full or read-only home must not
keep anybody from launching or stopping. What is corrupt is treated as not there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfdeploy.model.allowed import is_run
from tfdeploy.model.events import Event, event_to_json
from tfdeploy.model.plan import Plan
from tfdeploy.model.planform import plan_from_file, plan_to_file

EVENTS_KEPT = 50_000


class RunStore:
    def __init__(self, root: Path) -> None:
        self.root = root / "runs"

    def save(self, plan: Plan) -> bool:
        """Remembers the plan; True if it is on disk."""
        folder = self.root / plan.run
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = folder / f".plan.{os.getpid()}"
            temporary.write_text(json.dumps(plan_to_file(plan)))
            temporary.rename(folder / "plan.json")
        except OSError:
            return False
        return True

    def plan(self, run: str, job: str | None = None) -> Plan | None:
        """The remembered plan of exactly this run id, or None. `job`: that is meant; two jobs may use one name, and the later
        one is remembered."""
        if not is_run(run):
            return None
        try:
            plan = plan_from_file((self.root / run / "plan.json").read_bytes())
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, msgspec.ValidationError):
            return None
        return plan if job in (None, plan.job) else None

    def runs(self) -> list[str]:
        """Run ids, newest first by the time of their plan."""
        found = []
        try:
            folders = list(self.root.iterdir())
        except OSError:
            folders = []
        for folder in folders:
            with contextlib.suppress(OSError):  # one that cannot be read hides no other
                if (folder / "plan.json").is_file():
                    found.append(((folder / "plan.json").stat().st_mtime, folder.name))
        return [name for _, name in sorted(found, reverse=True)]

    def plans(self) -> Iterator[Plan]:
        for run in self.runs():
            plan = self.plan(run)
            if plan is not None:
                yield plan

    def recorder(self, run: str) -> Recorder:
        return Recorder(self.root / run / "events.jsonl")


class Recorder:
    """Appends a run's events, but not the lines of its tasks, which lie on the hosts, nor the plan, which lies beside it."""

    def __init__(self, path: Path) -> None:
        self.left = EVENTS_KEPT
        self.file: BinaryIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.file = path.open("ab", buffering=0)
        except OSError:
            self.left = 0

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def __call__(self, event: Event) -> None:
        if event.kind in ("line", "plan") or self.left <= 0 or self.file is None:
            return
        self.left -= 1
        try:
            self.file.write(event_to_json(event) + b"\n")
        except OSError:
            self.left = 0
