"""Test the labs themselves: their hosts, their networks, and the faults that a lab produces on
request.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.filters import cut_between
from support.lab.host_commands import host_command, read_traffic_by_link
from support.waiting import wait_for
from tfdeploy import lab
from tfdeploy.errors import UsageError
from tfdeploy.lab import Lab

Ssh = Callable[..., subprocess.CompletedProcess[str]]
KINDS = ("loopback", "isolated")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], 22), 1.0)"


@pytest.fixture(params=KINDS)
def a_lab(request: pytest.FixtureRequest) -> Lab:
    value_read: Lab = request.getfixturevalue(f"{request.param}_lab")
    return value_read


def outcome(where: Lab, host: str, *args: str, root: bool = False) -> str:
    done = subprocess.run(
        host_command(where, host, args, root=root),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_ssh_reaches_each_host_with_its_own_home(a_lab: Lab, ssh: Ssh) -> None:
    homes = set()
    for host in a_lab.hosts:
        done = ssh(a_lab, host, 'cd && pwd -P && echo "$HOME" && command -v rsync')
        assert done.returncode == 0, done.stderr
        here, home, _rsync = done.stdout.split()
        assert here == os.path.realpath(home)
        assert outcome(a_lab, host, "pwd", "-P") == here
        homes.add((host if a_lab.kind == "isolated" else "", home))
    assert len(homes) == len(a_lab.hosts)


def test_the_inventorys_interpreter_runs_on_the_hosts(a_lab: Lab, ssh: Ssh) -> None:
    done = ssh(a_lab, "n2", f"{sys.executable} -c 'import yaml, sys; print(sys.prefix)'")
    assert done.stdout.strip() == sys.prefix, done.stderr


def test_host_keys_differ(a_lab: Lab) -> None:
    keys = [line.split()[2] for line in a_lab.known_hosts.read_text().splitlines()]
    assert len(set(keys)) == len(a_lab.hosts)


def test_up_again_changes_nothing_and_another_shape_is_refused(a_lab: Lab) -> None:
    before = a_lab.status()
    again = lab.create_or_revive(a_lab.name, a_lab.kind, len(a_lab.hosts))
    assert again.status() == before
    with pytest.raises(UsageError) as refused:
        lab.create_or_revive(a_lab.name, a_lab.kind, len(a_lab.hosts) + 1)
    assert refused.value.next == f"`tfdeploy lab down --name {a_lab.name}`"


def test_kill_leaves_no_process_and_boot_keeps_the_disk(a_lab: Lab, ssh: Ssh) -> None:
    escape = "echo kept > ~/kept; env -i setsid sleep 987654 < /dev/null > /dev/null 2>&1 & echo $!"
    pid = ssh(a_lab, "n3", escape).stdout.strip()
    assert pid
    a_lab.kill("n3")
    assert [row["state"] for row in a_lab.status()].count("off") == 1
    assert ssh(a_lab, "n3", "true", timeout_s=1).returncode == 255
    a_lab.boot("n3")
    assert ssh(a_lab, "n3", "cat ~/kept").stdout == "kept\n"
    assert "987654" not in ssh(a_lab, "n3", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; true").stdout


@pytest.mark.isolated
def test_every_boot_of_a_host_has_an_id_of_its_own(isolated_lab: Lab, ssh: Ssh) -> None:
    def boot_of(host: str) -> str:
        told = {
            ssh(isolated_lab, host, f"cat {BOOT_ID}").stdout.strip(),
            outcome(isolated_lab, host, "cat", BOOT_ID).strip(),
        }
        (one,) = told
        return str(uuid.UUID(one))

    first, other = boot_of("n3"), boot_of("n4")
    isolated_lab.kill("n3")
    isolated_lab.boot("n3")
    assert len({first, other, boot_of("n3"), _text(Path(BOOT_ID)).strip()}) == 4
    assert boot_of("n4") == other


def test_loopback_refuses_to_cut(loopback_lab: Lab) -> None:
    with pytest.raises(UsageError, match="no cable"):
        loopback_lab.cut("n1")
    with pytest.raises(UsageError, match="no host 'n9'"):
        loopback_lab.kill("n9")


def test_loopback_hosts_have_ports_of_their_own(loopback_lab: Lab) -> None:
    text = loopback_lab.inventory.read_text()
    ranges = [
        line.split("ports: ")[1].rstrip("}") for line in text.splitlines() if "ports: " in line
    ]
    taken = [
        port
        for each in ranges
        for port in range(int(each.split("-")[0]), int(each.split("-")[1]) + 1)
    ]
    assert len(taken) == len(set(taken)) == 10 * len(loopback_lab.hosts)
    with socket.socket() as tensorflow:
        # TensorFlow sets this option. Without it, connections of earlier tests that are in
        # TIME_WAIT could block the port.
        tensorflow.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tensorflow.bind(("", taken[0]))


@pytest.mark.isolated
def test_cut_and_heal_and_a_cut_outlives_a_reboot(isolated_lab: Lab, ssh: Ssh) -> None:
    isolated_lab.cut("n4")
    assert ssh(isolated_lab, "n4", "true", timeout_s=1).returncode == 255
    isolated_lab.kill("n4")
    isolated_lab.boot("n4")
    assert isolated_lab.status()[3]["state"] == "cut"
    assert ssh(isolated_lab, "n4", "true", timeout_s=1).returncode == 255
    isolated_lab.heal("n4")
    wait_for(lambda: ssh(isolated_lab, "n4", "true").returncode == 0, 10, "n4 is back")


@pytest.mark.isolated
def test_a_killed_host_says_nothing_to_its_peers(isolated_lab: Lab, ssh: Ssh) -> None:
    """If a lab kills a host, the connections of its peers stay open, as after a power cut. If only
    a process were killed, the host's kernel would close the connections of that process.
    """
    settings = [
        "-F",
        "none",
        "-i",
        str(isolated_lab.root / "id_ed25519"),
        "-o",
        f"UserKnownHostsFile={isolated_lab.known_hosts}",
    ]
    address = str(isolated_lab.status()[1]["address"])
    command = isolated_lab.operator_command(
        ["ssh", *settings, f"lab@{address}", "echo here; exec sleep 1000"]
    )
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout and client.stdout.readline() == b"here\n"
        isolated_lab.kill("n2")
        assert outcome(isolated_lab, "n1", "hostname") == "n1"
        assert client.poll() is None
        client.kill()
    # The host boots only after the checks, because the new kernel resets the connections from
    # before the kill.
    isolated_lab.boot("n2")


@pytest.mark.isolated
def test_nothing_leaks_out(isolated_lab: Lab) -> None:
    for args in (
        isolated_lab.operator_command(["ip", "route"]),
        host_command(isolated_lab, "n1", ["ip", "route"]),
    ):
        routes = subprocess.run(
            args, capture_output=True, text=True, timeout=10, check=True
        ).stdout.splitlines()
        assert len(routes) == 1 and "default" not in routes[0]
    assert outcome(isolated_lab, "n1", "hostname") == "n1"
    assert outcome(isolated_lab, "n1", "id", "-un") == "lab"
    own = {
        Path(path).parts[2]
        for path in (sys.prefix, sys.base_prefix)
        if Path(path).parts[1] in ("tmp", "root", "home")
    }
    seen = outcome(isolated_lab, "n1", "sh", "-c", "ls -A /tmp; ls -A ~root; ls /home").split()
    assert set(seen) <= own | {"lab"}, "of this machine only the way to the interpreter"
    outcome(
        isolated_lab,
        "n1",
        "sh",
        "-c",
        "echo x > /etc/only-here; echo y > /tmp/only-here",
        root=True,
    )
    assert not Path("/etc/only-here").exists() and not Path("/tmp/only-here").exists()
    environment = outcome(
        isolated_lab, "n1", "sh", "-c", f"echo x > {sys.prefix}/x 2>&1; true", root=True
    )
    assert not Path(sys.prefix, "x").exists(), environment


@pytest.mark.isolated
def test_a_host_has_no_zombies(isolated_lab: Lab, ssh: Ssh) -> None:
    ssh(isolated_lab, "n1", "for i in 1 2 3; do (sh -c 'sleep 0.01 &' ) ; done")
    zombies = "grep -h '^State:.Z' /proc/[0-9]*/status; true"
    wait_for(
        lambda: outcome(isolated_lab, "n1", "sh", "-c", zombies) == "", 10, "orphans are reaped"
    )


@pytest.mark.isolated
def test_a_link_has_its_rate(new_lab: Callable[..., Lab], ssh: Ssh) -> None:
    shaped = new_lab("isolated", 2, rate="80mbit", shared_workdir=True)
    shown = ["tc", "qdisc", "show", "dev", "eth0"]
    for args in (host_command(shaped, "n1", shown), shaped.operator_command(shown)):
        text = subprocess.run(args, capture_output=True, text=True, timeout=10, check=True).stdout
        assert "tbf" in text and "80Mbit" in text
    ssh(shaped, "n1", "echo from-n1 > ~/tfdeploy/x")
    assert ssh(shaped, "n2", "cat ~/tfdeploy/x").stdout == "from-n1\n"


@pytest.mark.isolated
def test_two_sites_reach_each_other_over_a_link_with_a_rate(
    new_lab: Callable[..., Lab], ssh: Ssh
) -> None:
    """At 32 Mbit/s, it takes a second to send 4 MB. The counters show over which links the bytes
    went.
    """
    sites = new_lab("isolated", 3, sites=2, between="32mbit")
    subnets = [str(row["address"]).rpartition(".")[0] for row in sites.status()]
    assert subnets[0] == subnets[1] != subnets[2]
    before = read_traffic_by_link(sites)
    began = time.monotonic()
    assert ssh(sites, "n3", "head -c 4000000 /dev/zero").stdout.count("\0") == 4_000_000
    assert time.monotonic() - began > 0.8
    after = read_traffic_by_link(sites)
    grown = {
        link: tuple(now[way] - before[link][way] for way in ("to_bytes", "from_bytes"))  # type: ignore[literal-required]
        for link, now in after.items()
    }
    assert (
        grown["router1"][1] > 4_000_000
        and grown["operator"][0] > 4_000_000
        and grown["n3"][1] > 4_000_000
    )
    assert grown["router2"][1] < 100_000 and max(grown["n1"]) < 100_000
    outcome(sites, "n1", "sh", "-c", "ip route | grep -q default && exit 1; exit 0")


@pytest.mark.isolated
def test_a_cut_between_two_hosts_is_between_these_two(isolated_lab: Lab) -> None:
    def reaches(one: str, other: str) -> bool:
        command = host_command(isolated_lab, one, ["python3", "-c", KNOCK, address[other]])
        return subprocess.run(command, timeout=30, check=False, capture_output=True).returncode == 0

    address = {row["host"]: str(row["address"]) for row in isolated_lab.status()}
    with cut_between(isolated_lab, "n2", "n3"):
        assert not reaches("n2", "n3") and not reaches("n3", "n2")
        assert reaches("n2", "n4") and reaches("n4", "n3")
    assert reaches("n2", "n3")
