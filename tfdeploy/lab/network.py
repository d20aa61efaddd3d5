"""The isolated lab's network: one bridge in a namespace of its own, a veth to each host and to the operator, shaped links.

Lines for `ip` and `tc`, and the two functions that run them. All names exist inside the lab's own namespaces only.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

BRIDGE = "br0"
INTERFACE = "eth0"
OPERATOR = 254
MOST_HOSTS = 250
MANY_HOSTS = 16
COMMAND_S = 30.0


def subnet(root: Path) -> str:
    """The first three numbers of the lab's 10.x.y.0/24. Two labs may have the same, because they share no namespace."""
    digest = hashlib.sha256(str(root).encode()).digest()
    return f"10.{64 + digest[0] % 128}.{digest[1]}"


def inside(pid: int, argv: Sequence[str]) -> list[str]:
    """A command line that runs argv in the network namespace of that process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


def _batch(argv: Sequence[str], lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")


def ip(lines: Sequence[str]) -> None:
    _batch(["ip", "-batch", "-"], lines)


def tc(lines: Sequence[str]) -> None:
    _batch(["tc", "-batch", "-"], lines)


def shape(card: str, rate: str | None) -> list[str]:
    return [f"qdisc add dev {card} root tbf rate {rate} burst 256kb latency 100ms"] if rate else []


def interface_lines(address: str) -> list[str]:
    return ["link set lo up", f"addr add {address}/24 dev {INTERFACE}", f"link set {INTERFACE} up"]


def neighbour_lines(root: str, addresses: dict[str, str]) -> list[str]:
    """With more than MANY_HOSTS, permanent neighbour entries for all `addresses` (by name). Learned ones fill one table of
    the kernel for all labs together, and the 4,032 pairs of 64 hosts are four times what it holds."""
    if len(addresses) <= MANY_HOSTS:
        return []
    return [
        f"neigh replace {address} lladdr {mac_address(root, name)} dev {INTERFACE} nud permanent"
        for name, address in addresses.items()
    ]


def bridge_lines() -> list[str]:
    return [f"link add {BRIDGE} type bridge forward_delay 0", f"link set {BRIDGE} up"]


def mac_address(root: str, name: str) -> str:
    """The MAC address of that host: the same after each boot, so that neighbours' ARP entries stay valid."""
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def attach(switch: int, root: str, plugs: dict[str, int], unplugged: Sequence[str], rate: str | None) -> None:
    """Gives each process (name -> pid) a veth `eth0`, whose other end `<name>` is on the bridge. `unplugged`: names whose link
    is down. `rate`: as tc writes it."""
    lines = [
        line
        for name, pid in plugs.items()
        for line in (
            f"link add {name} type veth peer name {INTERFACE} address {mac_address(root, name)} netns {pid}",
            f"link set {name} master {BRIDGE} {'down' if name in unplugged else 'up'}",
        )
    ]
    _batch(inside(switch, ["ip", "-batch", "-"]), lines)
    _batch(inside(switch, ["tc", "-batch", "-"]), [line for name in plugs if name != "operator" for line in shape(name, rate)])


def set_link(switch: int, name: str, *, up: bool) -> None:
    _batch(inside(switch, ["ip", "-batch", "-"]), [f"link set {name} {'up' if up else 'down'}"])


def detach(switch: int, name: str) -> None:
    """Deletes the host's link, so that a host that is killed sends nothing to its peers. Does nothing where there is none."""
    subprocess.run(inside(switch, ["ip", "link", "del", name]), capture_output=True, timeout=COMMAND_S, check=False)
