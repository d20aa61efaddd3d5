"""Measure the peak threads, file descriptors and memory of the command line for many hosts.

    python benchmarks/client_peaks.py --hosts 200

It measures `exec -- true`, a `sync` of code, and a `sync` with a data set by broadcast (hosts pass
the data on to each other). It measures each of them also with a soft limit of 256 file descriptors.
The hosts are sshds on loopback. They and their agents share this machine, so its memory limits the
number of hosts.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from figures import say
from place import TFDEPLOY, write_sources

from tfdeploy import lab

SAMPLE_S = 0.02
FEW = 256  # the soft limit of file descriptors in the limited runs
JOB = "name: peaks\nmode: async\ncommand: [python, package000/module00.py]\n"
DATA = "data: {set: ./set}\n"
SET_BYTES = 4 << 20


@dataclass
class Peak:
    threads: int = 0
    descriptors: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0


def measure(argv: list[str], cwd: Path, env: dict[str, str]) -> Peak:
    """Run one command and return its peaks. Raises SystemExit if the command fails."""
    peak, began = Peak(), time.monotonic()
    process = subprocess.Popen(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    about = Path(f"/proc/{process.pid}")
    while process.poll() is None:
        try:
            text = (about / "status").read_text()
            peak.descriptors = max(peak.descriptors, len(os.listdir(about / "fd")))
        except OSError:
            break
        peak.threads = max(peak.threads, *map(int, re.findall(r"Threads:\s*(\d+)", text)), 0)
        peak.memory_bytes = max(
            peak.memory_bytes, *(1024 * int(kib) for kib in re.findall(r"VmHWM:\s*(\d+)", text)), 0
        )
        time.sleep(SAMPLE_S)
    output, _ = process.communicate()
    peak.seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(
            f"{' '.join(argv)}: exit {process.returncode}\n"
            f"{output[-2000:].decode(errors='replace')}"
        )
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    args = parser.parse_args()
    name, home = f"peaks-{os.getpid()}", Path(tempfile.mkdtemp(prefix="tfdeploy-peaks-"))
    work = home / "work"
    try:
        up = lab.create_or_revive(name, "loopback", args.hosts)
        work.mkdir()
        write_sources(work, 200)
        (work / "set").mkdir()
        inventory = str(up.inventory)
        env = {
            **os.environ,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "TFDEPLOY_INVENTORY": inventory,
        }
        for limit in (None, FEW):
            for what, arguments, job in (
                ("exec -- true", ["exec", "--", "true"], JOB),
                ("sync, code", ["sync", "-q"], JOB),
                ("sync, code and 4 MiB of data", ["sync", "-q", "-y"], JOB + DATA),
            ):
                (work / "tfdeploy.yaml").write_text(job)
                (work / "set/shard").write_bytes(os.urandom(SET_BYTES))
                (work / "package000/module00.py").write_text(f"x = {time.time()}\n")
                limited = ["sh", "-c", f'ulimit -n {FEW} && exec "$@"', "sh"] if limit else []
                peak = measure([*limited, TFDEPLOY, *arguments], work, env)
                bound = f", {limit} descriptors allowed" if limit else ""
                say(
                    f"{what}, {args.hosts} hosts{bound}: {peak.threads} threads, "
                    f"{peak.descriptors} descriptors, "
                    f"{peak.memory_bytes >> 20} MiB, {peak.seconds:.1f} s"
                )
    finally:
        if name in lab.names():
            lab.down(name)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
