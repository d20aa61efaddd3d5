"""Strangers at every port of a run of real TensorFlow, while its tasks, minders and supervisors are killed.

    python benchmarks/strangers.py --knocks 10000 --mode async --mode mirrored --mode coordinator

The run has n1 and n2; n3 is no host of it and knocks all the time, by IPv4 and IPv6, with HTTP/2's greeting, which a server of
TensorFlow answers. Afterwards n1 knocks likewise, and is to be let in. Exit code 1: a stranger was let in, or a peer was not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from misfortune import Tfdeploy, figure, operators

from support.lab.hosts import on_host, set_inventory  # isort: skip
from support.lab.knocking import Knocking  # isort: skip
from support.lab.run_files import host_state, kill, task_status  # isort: skip
from support.waiting import wait_for  # isort: skip

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "async": ("tests/lab/programs/monitored_async.py", "--steps=100000000"),
    "mirrored": ("examples/mirrored_keras/train.py", "--epochs=1000000"),
    "coordinator": ("examples/coordinator/train.py", "--steps=100000000"),
}
ROLES = {
    "async": {"ps": ["n1"], "worker": ["n1", "n2"]},
    "mirrored": {"worker": ["n1", "n2"]},
    "coordinator": {"ps": ["n1"], "chief": ["n1"], "worker": ["n2"]},
}
VICTIMS = ("task", "minder", "supervisor", "minder")
WITHIN_S = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--knocks", type=int, default=10_000, help="at least so many, for each mode")
    parser.add_argument("--mode", action="append", choices=list(PROGRAMS), help="again for more; left out: all")
    args = parser.parse_args()
    with operators(3) as (operator,):
        for number, host in enumerate(operator.lab.hosts, 1):
            card = "$(ip -o link | sed -n 's/^[0-9]*: \\([^@:]*\\)@.*/\\1/p' | grep -v ^lo | head -1)"
            on_host(operator.lab, host, f"ip addr add fd77::{number}/64 dev {card} nodad", root=True)
        return max([knock(operator, mode, args.knocks) for mode in args.mode or PROGRAMS])


def knock(operator: Tfdeploy, mode: str, knocks: int) -> int:
    run, job = f"knocked-{mode}-1", f"knocked-{mode}"
    program, flag = PROGRAMS[mode]
    for source in (ROOT / "examples" / "coordinator").glob("*.py"):  # its workers run another program than its chief
        shutil.copy(source, operator.cwd / source.name)
    shutil.copy(ROOT / program, operator.cwd / "train.py")
    text = f'name: {job}\nmode: {mode}\ncommand: [python, train.py, "{flag}"]\nrestart: {{max: 100, backoff: [100ms, 300ms]}}\n'
    (operator.cwd / "tfdeploy.yaml").write_text(text + 'env: {TF_CPP_MIN_LOG_LEVEL: "2"}\nready: {timeout: 300s}\n')
    set_inventory(operator, roles=ROLES[mode])
    operator.run("launch", "--detach", "--name", run, "--exclude", "n3", "--ignore-keep", exit_code=0, timeout_s=400)
    told = operator.json("status", run)
    ports = _ports(operator, told["tasks"], run, job)
    began = time.monotonic()
    strangers = Knocking(operator.lab, "n3", ports, knocks)
    victim = next(row for row in told["tasks"] if row["task"] in ("worker:0", "chief:0"))
    for what in VICTIMS:
        _strike(operator, run, job, str(victim["host"]), str(victim["task"]), what)
    seen = strangers.ended(within_s=1200)
    servers = [pair for pair in ports if pair in _ports(operator, told["tasks"], run, job, mesh=False)]
    peers = Knocking(operator.lab, "n1", servers, 500).ended()
    figure(f"{mode}: strangers that were let in, of {seen.total} in {time.monotonic() - began:.0f} s", seen.count("let in"))
    figure(f"{mode}: peers that were not let in, of {peers.total}", peers.total - peers.count("let in"))
    operator.run("stop", run, "--now", exit_code=0)
    return int(seen.count("let in") > 0 or peers.count("let in") < peers.total)


def _ports(operator: Tfdeploy, rows: list[dict[str, object]], run: str, job: str, mesh: bool = True) -> list[tuple[str, int]]:
    where = {str(row["host"]): str(row["address"]) for row in operator.lab.status()}
    found = [(str(row["host"]), int(str(row["address"]).rpartition(":")[2])) for row in rows if row["address"]]
    if mesh:
        said = on_host(operator.lab, found[0][0], f"cat ~/tfdeploy/{job}/runs/{run}/hosts/{found[0][0]}/part.json")
        found += [(each["host"], each["port"]) for each in json.loads(said)["mesh"]]
    return [pair for host, port in found for pair in ((where[host], port), (f"fd77::{host[1:]}", port))]


def _strike(operator: Tfdeploy, run: str, job: str, host: str, task: str, what: str) -> None:
    before, minder = task_status(operator, run, job, host, task), host_state(operator, run, job, host)["minder_pid"]
    pid = {"task": before["pid"], "supervisor": before["supervisor_pid"], "minder": minder}[what]
    kill(operator, host, int(pid))

    def again() -> bool:
        if what == "minder":
            return bool(host_state(operator, run, job, host)["minder_pid"] != minder)
        now = task_status(operator, run, job, host, task)
        return bool(now["attempt"] > before["attempt"] and now["state"] == "running")

    wait_for(again, WITHIN_S, f"{task} or its minder again")


if __name__ == "__main__":
    sys.exit(main())
