"""Connect to every port of a run from outside the run, while the run's processes are killed.

    python benchmarks/faults/strangers.py --connects 10000 --mode async --protect peers
    python benchmarks/faults/strangers.py --connects 200 --protect none     shows open ports

The run trains with real TensorFlow on n1 and n2, which also share a second network; n3 is not a
host of the run. A stranger is a client that must not reach the ports. Strangers continuously
connect to each port by IPv4 and IPv6. They connect from n3, and except under `--protect peers` also
from n1 and n2, as another user and as root. Another user also connects to TensorBoard. Each
stranger first sends a greeting of HTTP/2 or of HTTP, or of TLS at the port that the minders use. (A
minder is the process that looks after the run on a host.) A connection counts as let in if it is
answered or stays open. At the end, minders are killed while the hosts of the run connect to all
tasks over each network. All these connections must be let in. The exit code is 1 if a stranger was
let in, or if a host of the run was not.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from misfortune import Tfdeploy, operators

from support.lab.hosts import on_host, set_inventory  # isort: skip
from support.lab.knocking import End, Knocking  # isort: skip
from support.lab.run_files import host_state, kill, task_status  # isort: skip
from support.waiting import wait_for  # isort: skip

ROOT = Path(__file__).resolve().parents[2]
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
# {mode: what is killed, in this order}. Before each kill, all processes that ended because of the
# previous kill must be up again. "both" kills the task's process and the minder of its host.
# "agent" kills the task's supervisor (its parent process) and the minder; the supervisor of another
# task on the host then starts the next minder.
STRIKES = {
    "async": (
        "task worker:0",
        "minder worker:0",
        "supervisor worker:1",
        "task ps:0",
        "both worker:1",
        "agent worker:0",
    ),
    "mirrored": ("task worker:1", "minder worker:0", "supervisor worker:0", "both worker:1"),
    "coordinator": (
        "task worker:0",
        "minder worker:0",
        "task ps:0",
        "supervisor chief:0",
        "both ps:0",
        "agent ps:0",
    ),
}
JOB = """name: {job}
mode: {mode}
protect: {protect}
command: [python, train.py, "{flag}"]
keep: [checkpoints]
restart: {{max: 100, backoff: [100ms, 300ms]}}
env: {{TF_CPP_MIN_LOG_LEVEL: "2"}}
ready: {{timeout: 300s}}
"""
HOSTS, STRANGER, OTHER_USER = ("n1", "n2"), "n3", 4712
MAY_USE_NFT = "setcap cap_net_admin+ep $(readlink -f /usr/sbin/nft)"
# (a text that describes the client, {address: what listens there}, the client's connections)
Group = tuple[str, dict[End, str], Knocking]
WITHIN_S, LAUNCH_S, KNOCK_S = 180, 400, 1800.0


@dataclass(frozen=True)
class Port:
    """One port of the run and its host. `hello`: the greeting, see knocker.py."""

    what: str
    host: str
    number: int
    hello: str = "http2"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--connects",
        type=int,
        default=10_000,
        help="of each stranger to each port and address, at least",
    )
    parser.add_argument(
        "--peers", type=int, default=1_000, help="likewise, of the hosts of the run"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=60.0,
        help="connects a second of each stranger to each port and address",
    )
    parser.add_argument(
        "--mode", action="append", choices=list(PROGRAMS), help="again for more; left out: all"
    )
    parser.add_argument(
        "--protect",
        action="append",
        choices=("peers", "firewall", "none"),
        help="left out: peers, firewall",
    )
    args = parser.parse_args()
    wrong = 0
    with operators(3) as (operator,):
        networks(operator)
        for protect in args.protect or ("peers", "firewall"):
            for mode in args.mode or PROGRAMS:
                wrong += Knocked(operator, mode, protect, args).count()
    return int(wrong > 0)


def networks(operator: Tfdeploy) -> None:
    """Give each host an IPv6 address. Give n1 and n2 a second interface on a network without n3."""
    lab = operator.lab
    for host in lab.hosts:
        on_host(
            lab, host, f"ip addr add fd77::{host[1:]}/64 dev eth0 nodad && {MAY_USE_NFT}", root=True
        )
    one, other = (str(row["pid"]) for row in lab.status() if row["host"] in HOSTS)
    pair = ("netns", one, "type", "veth", "peer", "name", "second", "netns", other)
    subprocess.run(["ip", "link", "add", "second", *pair], check=True)
    for host in HOSTS:
        script = (
            f"ip addr add 10.255.77.{host[1:]}/24 dev second && ip addr add fd78::{host[1:]}/64 "
            "dev second nodad"
        )
        on_host(lab, host, f"{script} && ip link set second up", root=True)


class Knocked:
    """One run, the clients that connect to its ports, and the processes that are killed at the same
    time."""

    def __init__(
        self, operator: Tfdeploy, mode: str, protect: str, args: argparse.Namespace
    ) -> None:
        self.operator, self.lab, self.mode, self.protect, self.args = (
            operator,
            operator.lab,
            mode,
            protect,
            args,
        )
        self.job = f"knocked-{mode}-{protect}"
        self.run = f"{self.job}-1"
        self.main = {str(row["host"]): str(row["address"]) for row in self.lab.status()}

    def count(self) -> int:
        """Return the number of errors: strangers that were let in, plus hosts of the run that were
        kept out.

        Also print a line for each client and port.
        """
        began = time.monotonic()
        self._launch()
        with self._tensorboard() as board:
            strangers = self._strangers(board)
            for each in STRIKES[self.mode]:
                self._strike(*each.split())
            wait_for(
                lambda: all(row["state"] == "running" for row in self._tasks()),
                WITHIN_S,
                "all run again",
            )
            peers, before = self._peers(), self._attempts()
            for task in {row["host"]: row["task"] for row in self._tasks()}.values():
                self._strike("minder", task)
            assert self._attempts() == before, (
                "a task died by itself, and refused its peers meanwhile"
            )
            refused = sum(self._print(*each, peers=True) for each in peers)
            let_in = sum(self._print(*each, peers=False) for each in strangers)
        self.operator.run("stop", self.run, "--now", exit_code=0)
        print(
            f"{self.run}: {let_in} strangers let in, {refused} peers refused, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
        return let_in + refused

    # --- the run

    def _launch(self) -> None:
        program, flag = PROGRAMS[self.mode]
        # The workers of the coordinator example run another program than its chief.
        for source in (ROOT / "examples" / "coordinator").glob("*.py"):
            shutil.copy(source, self.operator.cwd / source.name)
        shutil.copy(ROOT / program, self.operator.cwd / "train.py")
        text = JOB.format(job=self.job, mode=self.mode, protect=self.protect, flag=flag)
        (self.operator.cwd / "tfdeploy.yaml").write_text(text)
        set_inventory(self.operator, roles=ROLES[self.mode])
        command = ("launch", "--detach", "--name", self.run, "--exclude", STRANGER, "--ignore-keep")
        self.operator.run(*command, exit_code=0, timeout_s=LAUNCH_S)
        answer = self.operator.json("status", self.run)
        assert answer["protect"]["used"] == self.protect, answer["protect"]
        self.rows = {row["task"]: row for row in answer["tasks"]}
        self.tasks = [
            Port(row["task"], row["host"], int(row["address"].rpartition(":")[2]))
            for row in answer["tasks"]
        ]
        part = json.loads(
            on_host(self.lab, "n1", f"cat ~/tfdeploy/{self.job}/runs/{self.run}/hosts/n1/part.json")
        )
        self.mesh = [Port("mesh", each["host"], each["port"], "tls") for each in part["mesh"]]

    def _tasks(self) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.operator.json("status", self.run)["tasks"]
        return answer

    def _attempts(self) -> dict[str, int]:
        return {row["task"]: row["attempt"] for row in self._tasks()}

    @contextmanager
    def _tensorboard(self) -> Iterator[Port]:
        """Run TensorBoard on n1 and yield its port."""
        process = self.operator.start("tensorboard", self.run, "-q", "--host", "n1")
        assert process.stdout is not None and process.stdout.readline().startswith(
            "http://127.0.0.1:"
        )
        try:
            match = re.search(
                r"--logdir .* --port (\d+)",
                on_host(self.lab, "n1", "ps -wweo args | grep -e --logdir"),
            )
            assert match
            yield Port("tensorboard", "n1", int(match[1]), "http")
        finally:
            process.terminate()
            process.wait(WITHIN_S)

    def _strike(self, what: str, task: str) -> None:
        host = self.rows[task]["host"]
        before, minder = (
            task_status(self.operator, self.run, self.job, host, task),
            self._minder(host),
        )
        pids = {
            "task": [before["pid"]],
            "supervisor": [before["supervisor_pid"]],
            "minder": [minder],
            "both": [minder, before["pid"]],
            "agent": [minder, before["supervisor_pid"]],
        }
        kill(self.operator, host, *pids[what])

        def again() -> bool:
            if what in ("minder", "both", "agent") and self._minder(host) == minder:
                return False
            now = task_status(self.operator, self.run, self.job, host, task)
            return what == "minder" or bool(
                now["attempt"] > before["attempt"] and now["state"] == "running"
            )

        wait_for(again, WITHIN_S, f"after a strike at {what} {task} all is as before")

    def _minder(self, host: str) -> int:
        return int(host_state(self.operator, self.run, self.job, host)["minder_pid"])

    # --- the clients

    def _ends(
        self, ports: list[Port], *, second: bool = False, loopback: str = ""
    ) -> dict[End, str]:
        """Return {address of a port: what listens there}.

        If `second` is True, the addresses on the second network are included. For the ports of the
        host `loopback`, the loopback addresses 127.0.0.1 and ::1 are included too.
        """
        results = {}
        for port in ports:
            number = port.host[1:]
            addresses = [self.main[port.host], f"fd77::{number}"] + [
                f"10.255.77.{number}",
                f"fd78::{number}",
            ] * second
            for address in addresses + ["127.0.0.1", "::1"] * (port.host == loopback):
                results[End(address, port.number, port.hello)] = f"{port.what} on {port.host}"
        return results

    def _strangers(self, board: Port) -> list[Group]:
        ports = [*self.tasks, *self.mesh]
        collected = [self._knock("another machine", STRANGER, self._ends([*ports, board]), None)]
        for host in HOSTS:
            ends = self._ends(ports, second=True, loopback=host) if self.protect != "peers" else {}
            at_board = self._ends([board], loopback=host)
            collected.append(
                self._knock(f"another user of {host}", host, {**ends, **at_board}, OTHER_USER)
            )
            collected += [self._knock(f"root of {host}", host, ends, 0)] if ends else []
        return collected

    def _peers(self) -> list[Group]:
        ends = {host: self._ends(self.tasks, second=True, loopback=host) for host in HOSTS}
        return [self._knock(f"{host}, a host of it", host, ends[host], None) for host in HOSTS]

    def _knock(self, who: str, host: str, ends: dict[End, str], user: int | None) -> Group:
        count = self.args.peers if host in HOSTS and user is None else self.args.connects
        return (
            who,
            ends,
            Knocking(self.lab, host, ends, count, rate=self.args.rate * len(ends), user=user),
        )

    def _print(self, who: str, ends: dict[End, str], knocking: Knocking, *, peers: bool) -> int:
        """Print a line for each address. Return the number of connections with a wrong result."""
        seen, wrong = knocking.ended(KNOCK_S), 0
        for end, what in ends.items():
            counts = seen.at(end)
            total, let_in = (
                sum(counts.values()),
                counts.get("let in", 0) + counts.get("stays open", 0),
            )
            wrong += total - counts.get("let in", 0) if peers else let_in
            others = ", ".join(
                f"{number} {word}" for word, number in sorted(counts.items()) if word != "let in"
            )
            where = f"{what:16} {end.address:>14} {end.port:5}"
            print(
                f"{self.protect:8} {self.mode:11} {who:20} {where} {total:7} connects {let_in:7} "
                f"let in   {others}",
                flush=True,
            )
        return wrong


if __name__ == "__main__":
    sys.exit(main())
