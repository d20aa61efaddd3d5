"""Write a job to be synced, and list what a host has of it: releases (synced copies of the code),
data sets and partial files.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import on_host
from support.waiting import wait_for

WAIT_S = 60.0
# A program that prints {path below a folder: [kind of the file or target of the link, sha256 of the
# content]}.
LIST = r"""
import hashlib, json, os, sys
os.chdir(sys.argv[1])
found = {}
for folder, folders, names in os.walk(b"."):
    for name in names + folders:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            found[os.fsdecode(path)] = ["link", os.fsdecode(os.readlink(path))]
        elif os.path.isfile(path):
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
            kind = "exec" if os.stat(path).st_mode & 0o100 else "file"
            found[os.fsdecode(path)] = [kind, digest.hexdigest()]
print(json.dumps(found))
"""


def job_file(operator: Tfdeploy, name: str, **keys: object) -> Path:
    """Write tfdeploy.yaml for a job, and return the folder of its code."""
    code = operator.cwd / "code"
    code.mkdir(exist_ok=True)
    job = {
        "name": name,
        "mode": "async",
        "code": "./code",
        "command": ["python", "train.py"],
        **keys,
    }
    (operator.cwd / "tfdeploy.yaml").write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in job.items())
    )
    (code / "train.py").write_text("print('here')\n")
    return code


def list_host_folder(operator: Tfdeploy, host: str, folder: str) -> dict[str, list[str]]:
    """Return everything below a folder of the host's ~/tfdeploy."""
    command = host_command(operator.lab, host, ["python3", "-c", LIST, f"tfdeploy/{folder}"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def list_local_folder(folder: Path) -> dict[str, list[str]]:
    command = ["python3", "-c", LIST, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def list_releases(operator: Tfdeploy, host: str, job: str) -> list[str]:
    """Return the complete releases."""
    return on_host(
        operator.lab, host, f"cd ~/tfdeploy/{job}/releases 2>/dev/null && ls | grep -v json || true"
    ).split()


def list_leftovers(operator: Tfdeploy, host: str, job: str) -> str:
    """Return staging folders and partial files."""
    return on_host(
        operator.lab, host, f"find ~/tfdeploy/{job} -name '.staging*' -o -name '.tfdeploy-partial'"
    )


def rows_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["host"]: row for row in answer["hosts"]}


def wait_for_bytes(operator: Tfdeploy, host: str, job: str, least: int) -> None:
    """Wait until the host's disk has at least `least` bytes of the job.

    Allocated bytes are counted, because a file may have its final length before its content
    arrives. This process reads the lab's disk directly, because a process on the host would answer
    too late on a busy machine.
    """
    folder = operator.lab.root / f"hosts/{host}/home/tfdeploy/{job}"
    wait_for(lambda: _bytes_on_disk(folder) >= least, WAIT_S, f"{least} bytes of {job} on {host}")


def _bytes_on_disk(folder: Path) -> int:
    """Return the allocated bytes of all files below the folder. A file that disappears during the
    count adds 0.
    """
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += 512 * Path(base, name).lstat().st_blocks
    return total
