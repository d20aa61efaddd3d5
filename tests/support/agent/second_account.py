"""Make a workdir that contains the agent. Change the workdir in ways in which a second account on
the host could change it.

In these tests, root is the user who owns the workdir.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from support.agent.interpreter import AGENT_PYTHON
from tfdeploy.agent import main as agent_main
from tfdeploy.agent.seen import SEEN, read_file_stamps
from tfdeploy.transport.agent.archive import agent_name, packed_agent
from tfdeploy.transport.agent.first_stage import PROGRAM

STRANGER = 4711
WITHIN_S = 120.0
FOREIGN = "60 a second account"


def path_of(module: ModuleType) -> str:
    """Return the path of a module's file in an agent, such as "tfdeploy/agent/main.py"."""
    return module.__name__.replace(".", "/") + ".py"


AGENT = f".agent/{agent_name()}"
FOLDERS = {"workdir": "", "agents": ".agent", "agent": AGENT}
INNER = {"package": f"{AGENT}/tfdeploy/agent", "cache": f"{AGENT}/tfdeploy/agent/__pycache__"}
FILES = {"start": f"{AGENT}/__main__.py", "source": f"{AGENT}/{path_of(agent_main)}"}


def arrive(workdir: Path, python: str = AGENT_PYTHON, **how: Any) -> tuple[str, dict[str, Any]]:
    """Start the agent as tfdeploy does when it connects to a host. The agent ends at once.

    Returns what the agent reported: ("have" or "need", {}), or ("fail", the error text).
    """
    packed = packed_agent()
    sent = PROGRAM + f"{agent_name()} n1 {workdir}\n".encode()
    after = b"%d\n" % len(packed) + packed
    command = [python, "-S", "-E", "-c", f"import sys;exec(sys.stdin.buffer.read({len(PROGRAM)}))"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how) as process:
        assert process.stdin and process.stdout
        process.stdin.write(sent)
        process.stdin.flush()
        process.stdout.readline()
        word = process.stdout.readline().decode().strip()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(after if word == "=tfdeploy-need=" else b"")
            process.stdin.close()
        # Read through the buffered stream, because it may hold bytes after the lines already read.
        out = process.stdout.read()
    output = word + out.decode(errors="replace")
    if "=tfdeploy-fail=" in output:
        return "fail", json.loads(output.split("=tfdeploy-fail=")[1].splitlines()[0])
    assert "=tfdeploy-agent=" in output, (process.returncode, output)
    return word.strip("=").removeprefix("tfdeploy-"), {}


def mark_workdir_seen(workdir: Path) -> None:
    record = workdir / AGENT / SEEN
    record.write_text(read_file_stamps(str(workdir / AGENT), (0, 0)))
    record.chmod(0o600)


def spring(trap: Path) -> str:
    return f"open({str(trap)!r}, 'w').close()\n"


def plant_code(folder: Path, trap: Path) -> None:
    """Change all of the agent's files below `folder`, so that they would run code of the second
    account.
    """
    for file in folder.rglob("*.py"):
        file.write_text(
            spring(trap) + file.read_text().replace("from __future__ import annotations", "")
        )


def chown_all(path: Path) -> None:
    for each in [path, *path.rglob("*")]:
        os.lchown(each, STRANGER, STRANGER)


def as_another_users(path: Path, trap: Path) -> None:
    if path.is_dir():
        plant_code(path, trap)
    chown_all(path)


def as_open_to(mode: int) -> Callable[[Path, Path], None]:
    def make(path: Path, trap: Path) -> None:
        path.chmod(mode)

    return make


def elsewhere(trap: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=trap.parent)) / "elsewhere"


def as_a_link(path: Path, trap: Path) -> None:
    path.symlink_to(path.rename(elsewhere(trap)))


def as_a_fifo(path: Path, trap: Path) -> None:
    path.rename(elsewhere(trap))
    os.mkfifo(path, 0o600)


def as_a_file(path: Path, trap: Path) -> None:
    path.rename(elsewhere(trap))
    path.write_text(spring(trap))


def as_a_hard_link(path: Path, trap: Path) -> None:
    os.link(path, f"{trap}.second-name")


def bytecode(workdir: Path) -> Path:
    """Return the bytecode file of the agent's main module, which the agent's first start wrote.

    The name of the file depends on AGENT_PYTHON, which may differ from the Python that runs the
    tests.
    """
    source = workdir / FILES["source"]
    (path,) = source.parent.glob(f"__pycache__/{source.stem}.*.pyc")
    return path


OF_FOLDERS = {
    "another user's": as_another_users,
    "for all to write": as_open_to(0o777),
    "for its group to write": as_open_to(0o770),
    "a link": as_a_link,
    "a fifo": as_a_fifo,
    "a file": as_a_file,
}
OF_FILES = {
    "another user's": as_another_users,
    "for all to write": as_open_to(0o666),
    "a link": as_a_link,
    "a fifo": as_a_fifo,
    "a hard link": as_a_hard_link,
}


def listing(folder: Path) -> dict[str, Any]:
    """Return {path: mode, owner, size, mtime and inode} of everything below the folder, for a
    comparison.
    """
    files = {}
    for path in [folder, *folder.rglob("*")]:
        about = path.lstat()
        files[str(path)] = (
            about.st_mode,
            about.st_uid,
            about.st_size,
            about.st_mtime_ns,
            about.st_ino,
        )
    return files
