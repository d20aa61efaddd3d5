"""Find what remains of a run on its hosts: processes, ports, locks, secrets, partial files."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.waiting import wait_for

LOOK = r"""
import fcntl, glob, json, os, socket, sys
run, job, low, high = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
found = []
here = os.path.join(os.path.expanduser("~/tfdeploy"), job)
marker = ("TFDEPLOY_TASK_RUN_ID=" + run).encode()
label = b"TFDEPLOY_TASK_FOLDER="
own = label + os.fsencode(here) + b"/"
def is_ours(environ):
    # The hosts of a loopback lab see the processes of other labs, whose runs may have this name.
    folders = [each for each in environ if each.startswith(label)]
    return marker in environ and all(each.startswith(own) for each in folders)
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            words = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        if is_ours(open("/proc/%s/environ" % pid, "rb").read().split(b"\0")):
            found.append("marked %s: %s" % (pid, words))
        elif "%s/runs/%s/" % (here, run) in words and pid != str(os.getpid()):
            found.append("agent %s: %s" % (pid, words))
    except OSError:
        pass
for folder, folders, names in os.walk(here):
    for name in folders + names:
        path = os.path.join(folder, name)
        if name.endswith((".tmp", ".sync")) or name.startswith(
            (".cwd.", ".staging", ".tfdeploy-partial")
        ):
            found.append("temporary " + path)
        elif name.endswith(".lock") or name.startswith("prepare."):
            if folder.endswith("/locks") and name.endswith(".lock"):
                found.append("lock " + path)
            try:
                fd = os.open(path, os.O_RDWR)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.close(fd)
            except OSError:
                found.append("held " + path)
        elif "/runs/%s/" % run in path and name in ("env.json", "mesh.json"):
            found.append("secret " + path)
for port in range(low, high + 1):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind(("", port))
    except OSError:
        found.append("port %d" % port)
    one.close()
print(json.dumps(found))
"""
NO_PORTS = (1, 0)
# The ports that runs on an isolated host use in these tests.
PORTS = (2222, 2240)


def find_remains(
    operator: Tfdeploy, run: str, job: str, *, ports: tuple[int, int] = PORTS
) -> dict[str, list[str]]:
    """Return {host: what remains of the run}, without hosts on which nothing remains.

    Hosts that are switched off are skipped.
    """
    command = ["python3", "-ISc", LOOK, run, job, *map(str, ports)]
    hosts = [str(row["host"]) for row in operator.lab.status() if row["state"] != "off"]
    with ExitStack() as stack:
        looking = {
            host: stack.enter_context(_started(host_command(operator.lab, host, command)))
            for host in hosts
        }
        output = {host: each.communicate(timeout=120) for host, each in looking.items()}
    assert all(each.returncode == 0 for each in looking.values()), output
    return {host: left for host, (out, _) in output.items() if (left := json.loads(out))}


def _started(args: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_nothing_left(
    operator: Tfdeploy,
    run: str,
    job: str,
    *,
    within_s: float = 10.0,
    ports: tuple[int, int] = PORTS,
) -> None:
    """Check that after at most `within_s` seconds nothing of the run remains on any host.

    Something may remain for a moment, until the minders (the processes that watch the run on each
    host) have informed each other.
    """
    seen: list[dict[str, list[str]]] = [{}]

    def gone() -> bool:
        seen[0] = find_remains(operator, run, job, ports=ports)
        return not seen[0]

    try:
        wait_for(gone, within_s, f"nothing of {run} is left")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{json.dumps(seen[0], indent=1)}") from None
