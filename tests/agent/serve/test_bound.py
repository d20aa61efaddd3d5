"""Test a program that is bound to a session: when the session ends, the program and all processes
that it has started end too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.agent.interpreter import AGENT_PYTHON
from support.waiting import wait_for

AGENT = Path(__file__).resolve().parents[3]
RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from tfdeploy.agent.serve.bound import "
    "main; sys.exit(main(sys.argv[1:]))"
)
# This program starts a child process that leaves the process session and ignores SIGTERM. Both
# print their pid, each in a single write, because they share one pipe.
PROGRAM = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import os, signal, time
if os.fork():
    os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"%d\\\\n" % os.getpid())
time.sleep(600)
'''])
child.wait()
open(os.path.join(os.environ["TMPDIR"], "trace"), "w").close()
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def bound(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    command = [AGENT_PYTHON, "-c", RUN, str(AGENT), str(folder), *argv]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


@pytest.mark.parametrize("how", ["closed", "terminated first"])
def test_all_of_it_ends_with_its_input(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "work"
    keeper = bound(folder, sys.executable, "-c", PROGRAM)
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    pids = [int(keeper.stdout.readline()) for _ in range(2)]
    assert all(map(alive, pids))
    assert (folder / "trace").exists()
    if how == "terminated first":
        # The keeper (the process that started the program) ignores SIGTERM. It ends the program
        # only when its own standard input is closed.
        os.killpg(keeper.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(0.3)
            assert not any(map(alive, pids))
    keeper.stdin.close()
    assert keeper.wait(120) != 0
    assert not any(map(alive, pids))
    assert not folder.exists()
    keeper.stdout.close()


def test_a_program_that_ends_by_itself_gives_its_code_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    keeper = bound(folder, sys.executable, "-c", "import sys; print('done'); sys.exit(7)")
    assert keeper.wait(120) == 7
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    assert keeper.stdout.read() == b"done\n"
    assert not folder.exists()
    keeper.stdin.close()
    keeper.stdout.close()


def test_a_keeper_that_is_killed_takes_its_program_along(tmp_path: Path) -> None:
    keeper = bound(
        tmp_path / "work",
        sys.executable,
        "-c",
        "import os, time; print(os.getpid(), flush=True); time.sleep(600)",
    )
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    pid = int(keeper.stdout.readline())
    keeper.kill()
    keeper.wait(120)
    wait_for(lambda: not alive(pid), 20, "its program has gone")
    keeper.stdin.close()
    keeper.stdout.close()
