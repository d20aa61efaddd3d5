"""Gathers the facts about a host that only a preflight needs (`tfdeploy check`, or the checks
before a launch): limits, memory, file systems, quota, driver, and what happens to processes at
logout.

Does not judge the facts: planning/preflight does so on the control machine.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional, Tuple
from tfdeploy.agent.host import limits, logind, mounts, quota
from tfdeploy.agent.host.atomic import list_names, read_text
from tfdeploy.agent.host.installed import StartedProgram, read_driver_version, start_driver_query

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

_DISPLAY = "0x03"  # PCI class of display controllers and of 3D controllers
_NVIDIA = "0x10de"
_PCI = "/sys/bus/pci/devices"


def start_quota_and_driver_queries(with_driver: bool) -> Dict[str, Optional[StartedProgram]]:
    """Start the programs that ask for the disk quota and, if `with_driver`, for the GPU driver.
    `gather_facts` reads their output later."""
    return {
        "quota": quota.start_quota_query(),
        "driver": start_driver_query() if with_driver else None,
    }


def gather_facts(
    workdir: str,
    user: str,
    port_range: Tuple[int, int],
    programs: Dict[str, Optional[StartedProgram]],
) -> Answer:
    """Return the fields of model.facts.PreflightFacts. `programs`: what
    `start_quota_and_driver_queries` returned."""
    mount, temporary = mounts.find_mount(workdir), limits.temporary_folder()
    return {
        "limits": limits.read_soft_limits(),
        "available_bytes": limits.available_memory_bytes(),
        "shared_memory": limits.read_space_and_access("/dev/shm"),
        "temporary": limits.read_space_and_access(temporary)
        or {"path": temporary, "writable": False, "free_bytes": 0},
        "mount": mount,
        "workdir_mode": _permission_bits(workdir),
        "quota": quota.read_quota(programs["quota"], mount["source"]) if mount else None,
        "driver": read_driver_version(programs["driver"]),
        "nvidia_devices": _nvidia_devices(),
        "logout": logind.logout_effects(user),
        "ephemeral_ports": _count_ephemeral_ports(port_range),
    }


def _permission_bits(path: str) -> Optional[int]:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _nvidia_devices() -> int:
    """Return the number of NVIDIA GPUs on the bus, with or without a driver."""
    return sum(
        read_text(os.path.join(_PCI, each, "vendor")) == _NVIDIA
        and read_text(os.path.join(_PCI, each, "class")).startswith(_DISPLAY)
        for each in list_names(_PCI)
    )


def _count_ephemeral_ports(port_range: Tuple[int, int]) -> int:
    """Return how many of these ports the kernel may assign to any outgoing connection."""
    bounds = read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
    if len(bounds) != 2 or not all(bound.isdigit() for bound in bounds):
        return 0
    first, last = max(port_range[0], int(bounds[0])), min(port_range[1], int(bounds[1]))
    reserved = _parse_ranges(read_text("/proc/sys/net/ipv4/ip_local_reserved_ports"))
    return sum(
        not any(low <= port <= high for low, high in reserved) for port in range(first, last + 1)
    )


def _parse_ranges(text: str) -> List[Tuple[int, int]]:
    """Parse a text such as "8080,9000-9010" into (first, last) of each range."""
    ranges = []
    for range_text in text.split(","):
        low, _, high = range_text.partition("-")
        if low.isdigit() and (high or low).isdigit():
            ranges.append((int(low), int(high or low)))
    return ranges
