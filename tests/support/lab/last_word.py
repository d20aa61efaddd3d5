"""Compare a folder with its copy on a host. rsync does the comparison."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import yaml

from tfdeploy.lab import Lab

WITHIN_S = 300
SAME_TO_THE_NANOSECOND = "--modify-window=-1"


def find_differences(lab: Lab, host: str, source: Path, folder: str) -> str:
    """Return what rsync would change in the host's ~/FOLDER to make it equal to the source.

    rsync compares checksums.
    """
    settings = yaml.safe_load(lab.inventory.read_text())
    defaults, address = settings["defaults"], settings["hosts"][host]["address"]
    shell = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-i", defaults["identity_file"]]
    shell += [
        "-o",
        f"UserKnownHostsFile={defaults['known_hosts']}",
        "-o",
        "StrictHostKeyChecking=yes",
    ]
    compare = [
        "rsync",
        "-n",
        "-c",
        "-a",
        "-H",
        "-i",
        "--delete",
        SAME_TO_THE_NANOSECOND,
        "-e",
        shlex.join(shell),
    ]
    command = [*compare, f"{source}/", f"{defaults['user']}@{address}:{folder}/"]
    done = subprocess.run(
        lab.operator_command(command), capture_output=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="replace")
