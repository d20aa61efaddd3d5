"""Test that several threads can convert JSON values to typed classes at the same time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
from tfdeploy.model.facts import HostFacts
from tfdeploy.text.typed import convert
fields = dict.fromkeys(("host", "hostname", "user", "home", "python_version", "boot_id"), "x")
fields.update(workdir="/w", python="/p")
fields.update(cores=1, free_disk_bytes=1, free_inodes=1, clock=1.0, free_ports=[1], gpus=[])
together, made = threading.Barrier(8), []
def make():
    together.wait()
    made.append(convert(fields, HostFacts))
threads = [threading.Thread(daemon=True, target=make) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(made) == 8
"""


def test_many_threads_may_convert_to_new_class() -> None:
    """Test that many threads can convert a value to a class that has not been used before.

    Without the lock around this conversion, SIGSEGV killed one in six of the Python processes that
    this test starts.
    """
    for _ in range(12):
        assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
