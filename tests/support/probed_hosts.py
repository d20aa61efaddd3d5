"""Healthy hosts as a preflight sees them. Facts of one of them, n2, may be replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfdeploy.model.facts import (
    FolderSpace,
    Gpu,
    HostFacts,
    LogoutPolicy,
    PreflightFacts,
    ProtectionHindrances,
    WorkdirMount,
)
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.output.check import Check
from tfdeploy.model.plan import Plan
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.preflight.judge import (
    ProbedHost,
)

MIB = 1 << 20
HEALTHY = PreflightFacts(
    limits={"open files": 1024, "processes": 95_000},
    available_bytes=8 << 30,
    shared_memory=FolderSpace("/dev/shm", True, 4 << 30),
    temporary=FolderSpace("/tmp", True, 4 << 30),
    mount=WorkdirMount("/dev/sda1", "/", "ext4", ("rw", "relatime")),
    workdir_mode=0o700,
    quota=None,
    driver=None,
    nvidia_devices=0,
    logout=LogoutPolicy(kills=False, removes_ipc=False),
    ephemeral_ports=0,
)
CARD = Gpu(index=0, name="H200", memory_mib=143771, used_mib=0)
MOUNT = HEALTHY.mount
assert MOUNT is not None

NO_FILTER = ProtectionHindrances(peers="no such filter", firewall="", most_instructions=4096)
SHORT_FILTER = ProtectionHindrances(peers="", firewall="", most_instructions=8)
NO_NFT = ProtectionHindrances(peers="", firewall="nft is not installed", most_instructions=4096)
ALL = ProtectionHindrances(peers="", firewall="", most_instructions=4096)
FactsOf = Callable[..., HostFacts]


def seen_of(
    facts_of: FactsOf, hosts: int = 3, *, entry: dict[str, Any] | None = None, **of_n2: Any
) -> dict[str, ProbedHost]:
    """Return facts about the hosts n1, n2, ... All hosts are healthy, except that some facts of n2
    are replaced.

    `of_n2`: the replaced fields and their values. They are fields of ProbedHost, PreflightFacts or
    HostFacts. `entry`: fields of n2's entry in the inventory (Host).
    """
    seen_by_host = {}
    for number in range(1, hosts + 1):
        changed_facts, keys = (of_n2, entry or {}) if number == 2 else ({}, {})
        host = replace(Host(name=f"n{number}", address=f"192.0.2.{number}"), **keys)
        preflight_fields = {
            key: value
            for key, value in changed_facts.items()
            if key in PreflightFacts.__dataclass_fields__
        }
        fact_fields = {
            key: value
            for key, value in changed_facts.items()
            if key in HostFacts.__dataclass_fields__
        }
        facts = replace(
            facts_of(host, boot_id=str(number)),
            preflight=replace(HEALTHY, **preflight_fields),
            **fact_fields,
        )
        seen_by_host[host.name] = ProbedHost(
            host, facts, changed_facts.get("skew_s", 0.0), changed_facts.get("noise", "")
        )
    return seen_by_host


def failed_checks(checks_by_host: dict[str, tuple[Check, ...]]) -> list[tuple[str, str, str, str]]:
    return [
        (host, check.check, check.level, check.detail)
        for host, checks in checks_by_host.items()
        for check in checks
        if not check.ok
    ]


def plan_for(hosts: Inventory, job: Job, seen: dict[str, ProbedHost]) -> Plan:
    """Return the plan of a launch on the probed hosts, with ports open to everybody."""
    return make_plan(
        hosts,
        job,
        {host: each.facts for host, each in seen.items()},
        release="r",
        sources={"train.py": ""},
        run="r",
        now=0.0,
        operator="o",
        options=Options(allow_open=True),
    )
