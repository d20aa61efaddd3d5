"""Test hosts that are silent, accept few clients, or send garbage.

Within a time limit, tfdeploy prints an error that names such a host, and the results of the other
hosts.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import host_changed_by_scripts, on_host, reboot, set_inventory
from support.lab.jobs import write_job
from support.lab.login_shell import LAB_S, login_shell
from support.stopwatch import Stopwatch
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
CONNECT_S = 10.0
# This filter drops packets but keeps the link up. If the link were down, the kernel might report
# "no route" at once.
DROP = (
    "nft add table inet shut && nft add chain inet shut incoming '{ type filter hook input "
    "priority 0; policy drop; }'"
)
NO_DROP = "nft delete table inet shut"


@pytest.fixture
def operator(shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(shaky)


# --- hosts that do not answer


@pytest.fixture
def silent_port(shaky: Lab) -> Iterator[int]:
    """Return a port of n2 that accepts connections and never answers."""
    code = (
        "import socket, time; s = socket.create_server(('', 2299)); print('up', flush=True); "
        "time.sleep(600)"
    )
    with subprocess.Popen(
        host_command(shaky, "n2", ["python3", "-c", code]), stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == b"up\n"
        yield 2299
        on_host(
            shaky,
            "n2",
            "kill $(grep -l 2299 /proc/[0-9]*/cmdline | cut -d/ -f3 | grep -vx $$)",
            check=False,
        )
        listener.kill()


@pytest.mark.fault("10 one accepts and is silent, one drops packets, one refuses")
def test_silent_hosts_are_unreachable_within_the_connect_timeout_and_the_others_are_shown(
    operator: Tfdeploy, silent_port: int
) -> None:
    set_inventory(operator, hosts={"n2": {"port": silent_port}, "n4": {"port": 2298}})
    with host_changed_by_scripts(operator.lab, "n3", DROP, NO_DROP):
        watch = Stopwatch()
        answer = operator.json("exec", "--", "echo", "here", exit_code=4)
        took = watch.seconds
    rows = {row["host"]: row for row in answer["hosts"]}
    assert (rows["n1"]["exit_code"], rows["n1"]["stdout"]) == (0, "here\n")
    assert took < CONNECT_S + LAB_S
    assert "accepts connections but says nothing within 10 s" in rows["n2"]["error"]
    assert "does not answer within 10 s" in rows["n3"]["error"]
    assert "refuses connections" in rows["n4"]["error"]


@pytest.mark.fault("10 a launch with a host that is cut off")
def test_a_launch_with_a_host_that_does_not_answer_leaves_nothing(operator: Tfdeploy) -> None:
    write_job(operator, "shaky-launch", "quick.py", "--steps=1000")
    with host_changed_by_scripts(operator.lab, "n3", DROP, NO_DROP):
        done = operator.run("launch", "--name", "shaky-launch-1", exit_code=4)
    assert "n3" in done.stderr and "does not answer within 10 s" in done.stderr
    assert done.stdout == ""
    for host in operator.lab.hosts:
        assert operator.marked(host, "shaky-launch-1") == []


# --- limits of sshd


@pytest.mark.fault("12 MaxSessions 1 and MaxStartups 1:60:3, eight operators at once")
def test_sshds_that_let_few_in_at_once_are_entered_by_all(
    shaky: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operators = [tfdeploy(shaky) for _ in range(8)]
    for host in ("n1", "n2"):
        reboot(shaky, host, sshd_lines="MaxSessions 1\nMaxStartups 1:60:3")
    try:
        asking = [operator.start("exec", "--json", "--", "echo", "in") for operator in operators]
        for process in asking:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output
        write_job(operators[0], "few", "quick.py", "--steps=2")
        # A file of this size is sent through rsync, over a separate connection.
        (operators[0].cwd / "large").write_bytes(bytes(6_000_000))
        operators[0].run("launch", "--wait", exit_code=0)
    finally:
        for host in ("n1", "n2"):
            reboot(shaky, host)


# --- hosts that lie

BEGINS = "echo =tfdeploy-have=; echo =tfdeploy-agent=; "
LIARS = {
    "57 a gigabyte of zeros instead of an agent": "head -c 1073741824 /dev/zero",
    "57 our greeting, then a gigabyte of noise": BEGINS + "head -c 1073741824 /dev/urandom",
    "57 a frame that says it is 4 GB long": BEGINS
    + "head -c 8 /dev/zero | tr '\\000' '\\377'; cat",
    "57 an endless line of escapes": r"while printf '\033]0;owned\007\033[31m'; do :; done",
}
LIES = """cat > /usr/local/bin/liar <<'EOF'
#!/bin/sh
{lie}
EOF
chmod 755 /usr/local/bin/liar"""
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
MOST_KIB = 200 * 1024


@pytest.mark.parametrize(
    "lie",
    [pytest.param(lie, id=name, marks=pytest.mark.fault(name)) for name, lie in LIARS.items()],
)
def test_a_host_that_answers_with_garbage_is_named_and_costs_little(
    operator: Tfdeploy, lie: str
) -> None:
    write_job(operator, "lied", "quick.py")
    peak = operator.home / "peak"
    put = LIES.format(lie=lie)
    with (
        host_changed_by_scripts(operator.lab, "n3", put, "rm /usr/local/bin/liar"),
        login_shell(operator.lab, "n3", "/usr/local/bin/liar"),
    ):
        command = [
            "/usr/bin/env",
            "python3",
            "-c",
            PEAK,
            str(peak),
            *operator.argv("sync", "--json"),
        ]
        done = subprocess.run(
            command,
            env=operator.env,
            cwd=operator.cwd,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode in (1, 4), done.stdout + done.stderr
    rows = {row["host"]: row for row in json.loads(done.stdout)["hosts"]}
    assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, True, False, True], (
        rows
    )
    assert (
        rows["n3"]["error"]
        and len(rows["n3"]["error"]) < 2000
        and "\x1b" not in done.stdout + done.stderr
    )
    assert int(peak.read_text()) < MOST_KIB
