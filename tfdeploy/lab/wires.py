"""The isolated lab's network: one bridge in a namespace of its own, a veth to each host and to the operator, shaped links.

Words for `ip` and `tc`, and the two calls that hand them over. All names live inside the lab's own namespaces.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

BRIDGE = "br0"
CARD = "eth0"
OPERATOR = 254
MOST_HOSTS = 250
MANY_HOSTS = 16
COMMAND_S = 30.0


def subnet(root: Path) -> str:
    """The first three numbers of the lab's 10.x.y.0/24. No two labs share a namespace: equal ones do no harm."""
    digest = hashlib.sha256(str(root).encode()).digest()
    return f"10.{64 + digest[0] % 128}.{digest[1]}"


def inside(pid: int, argv: Sequence[str]) -> list[str]:
    """argv in the network of that process."""
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


def card_lines(address: str) -> list[str]:
    return ["link set lo up", f"addr add {address}/24 dev {CARD}", f"link set {CARD} up"]


def neighbour_lines(root: str, addresses: dict[str, str]) -> list[str]:
    """With more than MANY_HOSTS, all `addresses` (by name) are known for good: what a card learns goes into one table of the
    kernel, for all labs together, and the 4,032 pairs of 64 hosts are four times what it holds."""
    if len(addresses) <= MANY_HOSTS:
        return []
    return [
        f"neigh replace {address} lladdr {hardware(root, name)} dev {CARD} nud permanent" for name, address in addresses.items()
    ]


def bridge_lines() -> list[str]:
    return [f"link add {BRIDGE} type bridge forward_delay 0", f"link set {BRIDGE} up"]


def hardware(root: str, name: str) -> str:
    """The card's own number: the same after each boot, so that nobody asks for it at a dead card."""
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def plug(switch: int, root: str, plugs: dict[str, int], unplugged: Sequence[str], rate: str | None) -> None:
    """Gives each process its card `eth0`, whose other end `<name>` stands on the bridge; `unplugged`: plugged, but down."""
    lines = [
        line
        for name, pid in plugs.items()
        for line in (
            f"link add {name} type veth peer name {CARD} address {hardware(root, name)} netns {pid}",
            f"link set {name} master {BRIDGE} {'down' if name in unplugged else 'up'}",
        )
    ]
    _batch(inside(switch, ["ip", "-batch", "-"]), lines)
    _batch(inside(switch, ["tc", "-batch", "-"]), [line for name in plugs if name != "operator" for line in shape(name, rate)])


def set_link(switch: int, name: str, *, up: bool) -> None:
    _batch(inside(switch, ["ip", "-batch", "-"]), [f"link set {name} {'up' if up else 'down'}"])


def unplug(switch: int, name: str) -> None:
    """Pulls the cable for good, so that a host that is killed says nothing to its peers. No cable: nothing to do."""
    subprocess.run(inside(switch, ["ip", "link", "del", name]), capture_output=True, timeout=COMMAND_S, check=False)
