"""Build the network of an isolated lab.

Each site has a bridge. All bridges are in one network namespace, the switch. A veth pair connects
each host and the operator to a bridge, and a router connects the sites. Links have a limited
bandwidth. This module makes lines for `ip` and `tc`, and runs them. All interface names exist only
inside the lab's namespaces.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tfdeploy.lab.orders import Plug
from tfdeploy.lab.syscalls import NEWNS, PRIVATE, RECURSIVE, mount, unshare

INTERFACE = "eth0"
OPERATOR, ROUTER = 254, 253  # last numbers of the IP addresses of the operator and of the routers
MOST_HOSTS = 250
MANY_HOSTS = 16  # in a lab with more hosts, ARP entries are permanent: see `neighbour_lines`
COMMAND_S = 30.0  # time-out of one command in seconds


def subnet_prefix(root: Path, site: int) -> str:
    """Return the first three numbers of the subnet 10.x.y.0/24 of a site.

    Two labs may have the same subnet, because they share no network namespace.
    """
    digest = hashlib.sha256(str(root).encode()).digest()
    return f"10.{64 + digest[0] % 128}.{(digest[1] + site) % 256}"


def bridge_name(site: int) -> str:
    """Return the name of a site's bridge."""
    return f"br{site}"


def command_in_network(pid: int, argv: Sequence[str]) -> list[str]:
    """Return a command line that runs `argv` in the network namespace of the process `pid`."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


def _run(argv: Sequence[str], text: str = "") -> str:
    """Run a command with this input, and return its output.

    Raises OSError with the command's message.
    """
    completed = subprocess.run(
        argv, input=text, text=True, capture_output=True, timeout=COMMAND_S, check=False
    )
    if completed.returncode:
        raise OSError(f"{' '.join(argv)}: {(completed.stderr or completed.stdout).strip()}")
    return completed.stdout


def run_batch(program: Literal["ip", "tc"], lines: Iterable[str], pid: int | None = None) -> None:
    """Run the lines with `ip -batch` or `tc -batch`. Raises OSError.

    The lines run in the network namespace of the process `pid`, or else of this process.
    """
    argv = [program, "-batch", "-"]
    if text := "".join(f"{line}\n" for line in lines):
        _run(argv if pid is None else command_in_network(pid, argv), text)


def rate_limit_lines(card: str, rate: str | None) -> list[str]:
    """Return the `tc` lines that limit the rate of an interface; [] if `rate` is None."""
    return [f"qdisc add dev {card} root tbf rate {rate} burst 256kb latency 100ms"] if rate else []


def interface_lines(address: str, interface: str = INTERFACE) -> list[str]:
    """Return the `ip` lines that bring up loopback, and `interface` with the address."""
    return ["link set lo up", f"addr add {address}/24 dev {interface}", f"link set {interface} up"]


def route_lines(root: Path, site: int, site_count: int) -> list[str]:
    """Return the `ip` lines for the routes from a site to all others.

    There is no route out of the lab.
    """
    other_sites = [other for other in range(site_count) if other != site]
    return [
        f"route add {subnet_prefix(root, other)}.0/24 via {subnet_prefix(root, site)}.{ROUTER}"
        for other in other_sites
    ]


def enable_forwarding() -> None:
    """Let the network namespace of this process forward packets.

    /proc is mounted anew, because /proc/sys is read-only in a container.
    """
    unshare(NEWNS)
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    mount("proc", "/proc", "proc")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def neighbour_lines(root: str, address_by_host: dict[str, str]) -> list[str]:
    """Return the `ip` lines that create a permanent ARP entry for each address.

    `address_by_host`: {name: address}. If it has at most MANY_HOSTS addresses, return [].

    The kernel limits the number of ARP entries that are not permanent, for all labs together. 64
    hosts that all know each other have 4,032 entries, which is four times the limit.
    """
    if len(address_by_host) <= MANY_HOSTS:
        return []
    return [
        f"neigh replace {address} lladdr {mac_address(root, name)} dev {INTERFACE} nud permanent"
        for name, address in address_by_host.items()
    ]


def bridge_lines(site_count: int) -> list[str]:
    """Return the `ip` lines that create the bridge of each site."""
    names = [bridge_name(site) for site in range(site_count)]
    return [
        line
        for name in names
        for line in (f"link add {name} type bridge forward_delay 0", f"link set {name} up")
    ]


def mac_address(root: str, name: str) -> str:
    """Return the host's MAC address, which depends only on the lab and the host's name.

    The ARP entries of other hosts therefore stay valid when the host reboots.
    """
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def attach_links(switch_pid: int, root: str, plugs: Sequence[tuple[int, Plug]]) -> None:
    """Create a veth link from the switch to each of the given network namespaces.

    `plugs`: pairs (pid of a process in the namespace, the link).
    """
    lines = []
    for pid, plug in plugs:
        name, address = plug["name"], mac_address(root, plug["name"])
        lines += [
            f"link add {name} type veth peer name {plug['interface']} address {address} netns "
            f"{pid}",
            f"link set {name} master {plug['bridge']} {'up' if plug['up'] else 'down'}",
        ]
    run_batch("ip", lines, switch_pid)
    run_batch(
        "tc",
        [line for _, plug in plugs for line in rate_limit_lines(plug["name"], plug["rate"])],
        switch_pid,
    )


def set_link(switch_pid: int, name: str, *, up: bool) -> None:
    """Set the link of the host `name` up or down, on the switch's side of the link."""
    run_batch("ip", [f"link set {name} {'up' if up else 'down'}"], switch_pid)


def delete_link(switch_pid: int, name: str) -> None:
    """Delete the host's link, if there is one, so that a killed host sends nothing to its peers."""
    with suppress(OSError):
        _run(command_in_network(switch_pid, ["ip", "link", "del", name]))
