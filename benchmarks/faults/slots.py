"""Give each of many operators of one lab a separate workdir and separate ports.

Otherwise the session of one operator would remove what the launch of another operator has left.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from misfortune import Tfdeploy

from support.lab.host_commands import host_command  # isort: skip
from support.lab.hosts import set_inventory  # isort: skip
from support.lab.jobs import write_job  # isort: skip

SECRET = "a-secret-that-no-file-may-keep"
GRACE_S = 2.0
PORTS = 8  # how many ports each operator has
LOOK = r"""
import json, os, sys
found = {}
runs = json.loads(sys.argv[1])  # run -> workdir
secret = sys.argv[2].encode()
commands = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            words = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        env = open("/proc/%s/environ" % pid, "rb").read().split(b"\0")
    except OSError:
        continue
    mark = b"TFDEPLOY_TASK_RUN_ID="
    commands[pid] = words, [each[len(mark):].decode() for each in env if each.startswith(mark)]
for run, workdir in runs.items():
    workdir = os.path.expanduser(workdir)
    left = []
    tasks = 0
    for pid, (words, marks) in commands.items():
        if int(pid) == os.getpid():
            continue
        tasks += run in marks
        if run in marks or "/runs/%s/" % run in words or workdir + " " in words + " ":
            left.append("process %s: %s" % (pid, words[:100]))
    for folder, folders, names in os.walk(workdir):
        inside = folder[len(workdir):]
        if inside.endswith("/hosts"):
            halves = [
                each for each in folders
                if not os.path.exists(os.path.join(folder, each, "part.json"))
            ]
            left += ["half folder %s/%s" % (inside, each) for each in halves]
        if inside.endswith("/runs/" + run) and "hosts" not in folders:
            left.append("half run " + inside)
        left += ["half copy " + each for each in folders if each.startswith(".cwd.")]
        for name in names:
            path = os.path.join(folder, name)
            if (
                inside.endswith("/locks") and name.endswith(".lock")
                or "/runs/" in inside and name.endswith(".tmp")
            ):
                left.append("temporary " + path)
            if folder.endswith("/.indoubt"):
                left.append("in doubt " + name)
            try:
                if os.path.isfile(path) and secret in open(path, "rb").read(1 << 20):
                    left.append("secret " + path)
            except OSError:
                pass
    found[run] = {"left": left, "tasks": tasks}
print(json.dumps(found))
"""


class Slots:
    """A set of operators. Each operator has its own workdir and its own ports.

    `program`: the Python program that the operators run as tfdeploy.
    """

    def __init__(self, first: Tfdeploy, job: str, count: int, program: str) -> None:
        self.lab = first.lab
        self.free = list(range(count))
        self.lock = threading.Lock()
        self.operators = [self._operator(first, job, number, program) for number in range(count)]

    def _operator(self, first: Tfdeploy, job: str, slot: int, program: str) -> Tfdeploy:
        one = Tfdeploy(self.lab, first.home / f"slot-{slot}")
        ports = 3000 + PORTS * slot
        set_inventory(
            one, defaults={"workdir": self.workdir(slot), "ports": f"{ports}-{ports + PORTS - 1}"}
        )
        one.program = ["-c", program]
        one.env["TOKEN"] = SECRET
        stop = {"grace": f"{GRACE_S:g}s"}
        write_job(
            one, job, "quick.py", "--steps=1000000000", "--pause=1", secrets=["TOKEN"], stop=stop
        )
        return one

    def workdir(self, slot: int) -> str:
        return f"~/k{slot}"

    def list_remains(self, slots: Mapping[str, int]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return what is left of each run on each host, as {run: {host: {"left": what is left,
        "tasks": the number of the run's task processes}}}.

        `slots` is {run: the slot that it uses}.
        """
        runs = json.dumps({run: self.workdir(slot) for run, slot in slots.items()})
        hosts_by_run: dict[str, dict[str, dict[str, Any]]] = {run: {} for run in slots}
        for host in self.lab.hosts:
            command = host_command(self.lab, host, ["python3", "-ISc", LOOK, runs, SECRET])
            for run, about in json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout
            ).items():
                hosts_by_run[run][host] = about
        return hosts_by_run
