"""Test that no host commits a release (a copy of the job's code) if the code changes while tfdeploy
sends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.faults.doings import Wires, sync_both
from support.faults.honest import HOSTS
from support.faults.hostile import LyingFleet
from tfdeploy.model.job import Job
from tfdeploy.operations.copy.code_files import CodeChanged


def nothing(path: Path) -> None:
    return None


@pytest.mark.parametrize("by_rsync", [True, False])
@pytest.mark.parametrize(
    ("change", "committed"),
    [
        (nothing, True),
        (Path.touch, False),
        (Path.unlink, False),
        (lambda path: path.write_text("x"), False),
    ],
)
def test_release_is_committed_only_if_files_have_their_hashed_content(
    wires: Wires,
    job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    committed: bool,
    by_rsync: bool,
) -> None:
    asked: list[str] = []
    pushed: list[str] = []
    unchanged, one_at_a_time = [job.code], threading.Lock()

    def change_once() -> None:
        """Change the file at the first call. The lock makes the other hosts wait until the file has
        changed.
        """
        with one_at_a_time:
            if unchanged:
                change(Path(unchanged.pop(), "a.txt"))

    def ask(host: str, verb: str) -> None:
        asked.append(verb)
        if verb == "release.begin" and not by_rsync:
            change_once()

    def push(target: Any, root: str, *args: Any, **kwargs: Any) -> int:
        change_once()
        pushed.append(root)
        return wires.push(target, root, *args, **kwargs)

    monkeypatch.setattr("tfdeploy.operations.copy.push_files.push", push)
    monkeypatch.setattr(
        "tfdeploy.operations.sending.send_code.MOST_BYTES", 0 if by_rsync else 1 << 20
    )
    synced = sync_both(LyingFleet(ask), tmp_path, job)
    assert len(pushed) == (len(HOSTS) if by_rsync else 0)
    if committed:
        assert asked.count("release.commit") == len(HOSTS)
        assert not [outcome for outcome in synced.values() if isinstance(outcome, CodeChanged)]
    else:
        changed = [outcome for outcome in synced.values() if isinstance(outcome, CodeChanged)]
        assert asked.count("release.commit") == len(HOSTS) - len(changed) and changed
        assert "a.txt changed while it was sent" in changed[0].what
