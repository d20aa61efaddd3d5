"""The isolated lab's network: a bridge for each site in a namespace of its own, a veth to each host
and to the operator, shaped links, and a router between sites.

Lines for `ip` and `tc`, and the two functions that run them. All names exist inside the lab's own
namespaces only.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from tfdeploy.lab.orders import Plug
from tfdeploy.lab.syscalls import NEWNS, PRIVATE, RECURSIVE, mount, unshare

INTERFACE = "eth0"
OPERATOR, ROUTER = 254, 253  # last numbers of their addresses
MOST_HOSTS = 250
MANY_HOSTS = 16
COMMAND_S = 30.0


class Carried(TypedDict):
    """Bytes over one link, with their headers."""

    to_bytes: int  # towards the host
    from_bytes: int


def subnet(root: Path, site: int = 0) -> str:
    """The first three numbers of a site's 10.x.y.0/24. Two labs may have the same, because they
    share no namespace."""
    digest = hashlib.sha256(str(root).encode()).digest()
    return f"10.{64 + digest[0] % 128}.{(digest[1] + site) % 256}"


def bridge(site: int) -> str:
    return f"br{site}"


def inside(pid: int, argv: Sequence[str]) -> list[str]:
    """A command line that runs argv in the network namespace of that process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


def _batch(argv: Sequence[str], lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    done = subprocess.run(
        argv, input=text, text=True, capture_output=True, timeout=COMMAND_S, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")


def ip(lines: Iterable[str]) -> None:
    _batch(["ip", "-batch", "-"], lines)


def tc(lines: Iterable[str]) -> None:
    _batch(["tc", "-batch", "-"], lines)


def shape(card: str, rate: str | None) -> list[str]:
    return [f"qdisc add dev {card} root tbf rate {rate} burst 256kb latency 100ms"] if rate else []


def interface_lines(address: str, interface: str = INTERFACE) -> list[str]:
    return ["link set lo up", f"addr add {address}/24 dev {interface}", f"link set {interface} up"]


def route_lines(root: Path, site: int, sites: int) -> list[str]:
    """From a site to all others. There is no way out of the lab."""
    others = [other for other in range(sites) if other != site]
    return [
        f"route add {subnet(root, other)}.0/24 via {subnet(root, site)}.{ROUTER}"
        for other in others
    ]


def forward() -> None:
    """Makes a router of the namespace of this process. By a /proc of its own: in a container,
    /proc/sys is read-only."""
    unshare(NEWNS)
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    mount("proc", "/proc", "proc")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def neighbour_lines(root: str, addresses: dict[str, str]) -> list[str]:
    """With more than MANY_HOSTS, permanent neighbour entries for all `addresses` (by name). Learned
    ones fill one table of the kernel for all labs together, and the 4,032 pairs of 64 hosts are
    four times what it holds."""
    if len(addresses) <= MANY_HOSTS:
        return []
    return [
        f"neigh replace {address} lladdr {mac_address(root, name)} dev {INTERFACE} nud permanent"
        for name, address in addresses.items()
    ]


def bridge_lines(sites: int) -> list[str]:
    names = [bridge(site) for site in range(sites)]
    return [
        line
        for name in names
        for line in (f"link add {name} type bridge forward_delay 0", f"link set {name} up")
    ]


def mac_address(root: str, name: str) -> str:
    """The MAC address of that host: the same after each boot, so that neighbours' ARP entries stay
    valid."""
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def attach(switch: int, root: str, plugs: Sequence[tuple[int, Plug]]) -> None:
    """Gives each process (by its pid) the veth of its plug, whose other end is on a bridge of the
    switch."""
    lines = []
    for pid, plug in plugs:
        name, address = plug["name"], mac_address(root, plug["name"])
        lines += [
            f"link add {name} type veth peer name {plug['interface']} address {address} netns "
            f"{pid}",
            f"link set {name} master {plug['bridge']} {'up' if plug['up'] else 'down'}",
        ]
    _batch(inside(switch, ["ip", "-batch", "-"]), lines)
    _batch(
        inside(switch, ["tc", "-batch", "-"]),
        [line for _, plug in plugs for line in shape(plug["name"], plug["rate"])],
    )


def carried(switch: int) -> dict[str, Carried]:
    """What each link has carried, by name, as the kernel counts it at the switch. Raises
    OSError."""
    words = inside(switch, ["ip", "-json", "-statistics", "link"])
    done = subprocess.run(words, text=True, capture_output=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    counted = {row["ifname"]: row["stats64"] for row in json.loads(done.stdout) if "master" in row}
    return {
        name: {"to_bytes": row["tx"]["bytes"], "from_bytes": row["rx"]["bytes"]}
        for name, row in counted.items()
    }


def set_link(switch: int, name: str, *, up: bool) -> None:
    _batch(inside(switch, ["ip", "-batch", "-"]), [f"link set {name} {'up' if up else 'down'}"])


def detach(switch: int, name: str) -> None:
    """Deletes the host's link, so that a host that is killed sends nothing to its peers. Does
    nothing where there is none."""
    subprocess.run(
        inside(switch, ["ip", "link", "del", name]),
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
    )
