"""The part of a probe that only a preflight needs: limits, memory, file systems, quota, driver,
what logout does.

Gathers facts and judges none: planning/preflight does, on the control machine.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional, Tuple
from tfdeploy.agent.host import limits, logind, mounts, quota
from tfdeploy.agent.host.installed import Asked, read_driver, start_driver
from tfdeploy.agent.run.find import list_names

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_DISPLAY = "0x03"  # PCI class of display controllers and of 3D controllers
_NVIDIA = "0x10de"
_PCI = "/sys/bus/pci/devices"


def start(gpus: bool) -> Dict[str, Optional[Asked]]:
    """Programs that must be asked, running."""
    return {"quota": quota.start(), "driver": start_driver() if gpus else None}


def facts(
    workdir: str, user: str, ports: Tuple[int, int], asked: Dict[str, Optional[Asked]]
) -> Answer:
    mount = mounts.mount_of(workdir)
    return {
        "limits": limits.limits(),
        "available_bytes": limits.available_bytes(),
        "shared_memory": limits.folder_space("/dev/shm"),
        "temporary": limits.folder_space(limits.temporary_folder()),
        "mount": mount,
        "workdir_mode": _mode(workdir),
        "quota": quota.read(asked["quota"], mount["source"]) if mount else None,
        "driver": read_driver(asked["driver"]),
        "nvidia_devices": _nvidia_devices(),
        "logout": logind.at_logout(user),
        "ephemeral_ports": _ephemeral(ports),
    }


def _mode(path: str) -> Optional[int]:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _nvidia_devices() -> int:
    """GPUs of NVIDIA on the bus, whether or not there is a driver for them."""
    return sum(
        _word(os.path.join(_PCI, each, "vendor")) == _NVIDIA
        and _word(os.path.join(_PCI, each, "class")).startswith(_DISPLAY)
        for each in list_names(_PCI)
    )


def _ephemeral(ports: Tuple[int, int]) -> int:
    """How many of these ports the kernel may give to any outgoing connection."""
    words = _word("/proc/sys/net/ipv4/ip_local_port_range").split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0
    first, last = max(ports[0], int(words[0])), min(ports[1], int(words[1]))
    reserved = _ranges(_word("/proc/sys/net/ipv4/ip_local_reserved_ports"))
    return sum(
        not any(low <= port <= high for low, high in reserved) for port in range(first, last + 1)
    )


def _ranges(text: str) -> List[Tuple[int, int]]:
    """Of "8080,9000-9010"."""
    ranges = []
    for word in text.split(","):
        low, _, high = word.partition("-")
        if low.isdigit() and (high or low).isdigit():
            ranges.append((int(low), int(high or low)))
    return ranges


def _word(path: str) -> str:
    try:
        with open(path) as one:
            return one.read(1 << 16).strip()
    except (OSError, ValueError):
        return ""
