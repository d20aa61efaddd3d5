"""Test that a lock file has at most one holder, even if the holder removes the file or a child
process inherits it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tfdeploy.agent.host.flock import FileLock, is_locked


def test_a_released_lock_is_free_although_a_child_inherited_it(tmp_path: Path) -> None:
    first, second = FileLock(str(tmp_path / "lock")), FileLock(str(tmp_path / "lock"))
    assert first.acquire() and not second.acquire(0)
    assert first.descriptor is not None
    child = subprocess.Popen(["sleep", "60"], pass_fds=[first.descriptor])
    first.release()
    assert second.acquire(0) and is_locked(second.path)
    child.kill()
    child.wait()


def test_a_lock_whose_file_was_removed_is_not_held(tmp_path: Path) -> None:
    with FileLock(str(tmp_path / "lock")) as lock:
        assert not lock.is_held() and lock.acquire() and lock.is_held()
        lock.write(b"by me")
        assert Path(lock.path).read_bytes() == b"by me"
        os.unlink(lock.path)
        other = FileLock(lock.path)
        assert not lock.is_held() and other.acquire()
    other.remove()
    assert not os.path.exists(lock.path) and not other.is_held()
