"""Fixtures of the planning tests.

The hosts have addresses 192.0.2.x, all ports of their ranges are free, and TensorFlow is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.model.facts import Gpu, HostFacts, ProtectionHindrances
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

FACTS = HostFacts(
    host="",
    hostname="",
    user="ml",
    home="/home/ml",
    workdir="/home/ml/tfdeploy",
    python="/usr/bin/python3",
    python_version="3.11.2",
    cores=2,
    free_disk_bytes=100 << 30,
    free_inodes=1_000_000,
    boot_id="b",
    clock=0.0,
    tensorflow="2.21.0",
    rsync="3.2.7",
    protect=ProtectionHindrances(peers="", firewall="nft is not installed", most_instructions=1250),
)


def make_facts(host: Host, gpus: int = 0, **changed_facts: Any) -> HostFacts:
    gpus_of_host = tuple(
        Gpu(index=index, name="H200", memory_mib=143771, used_mib=0) for index in range(gpus)
    )
    free = tuple(range(host.ports[0], host.ports[1] + 1))
    return replace(
        FACTS,
        **{
            "host": host.name,
            "hostname": host.name,
            "gpus": gpus_of_host,
            "free_ports": free,
            **changed_facts,
        },
    )


def make_inventory(**roles: str) -> Inventory:
    """Return an inventory with these roles. For example, make_inventory(ps="n1", worker="n2 n3")
    has three hosts.
    """
    names = list(
        dict.fromkeys(name for host_names in roles.values() for name in host_names.split())
    )
    hosts = tuple(
        Host(name=name, address=f"192.0.2.{number}") for number, name in enumerate(sorted(names), 1)
    )
    return Inventory(hosts, {role: tuple(host_names.split()) for role, host_names in roles.items()})


@pytest.fixture(scope="session")
def facts_of() -> Callable[..., HostFacts]:
    return make_facts


@pytest.fixture(scope="session")
def inventory() -> Callable[..., Inventory]:
    return make_inventory


@pytest.fixture(scope="session")
def job() -> Job:
    return Job(name="digits", mode="async", command=("python", "train.py"), code="/code")


@pytest.fixture
def make(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> Callable[..., Plan]:
    """Return a function that makes a plan.

    A call is make(roles={...}, changed_facts={host: {fact: value}}, options=Options(...), ...).
    Other keywords set fields of the job.
    """

    def made(
        roles: dict[str, str] | None = None,
        changed_facts: dict[str, dict[str, Any]] | None = None,
        options: Options | None = None,
        **fields: Any,
    ) -> Plan:
        hosts = inventory(**(roles or {"ps": "n1", "worker": "n2 n3"}))
        facts = {
            host.name: facts_of(host, **(changed_facts or {}).get(host.name, {}))
            for host in hosts.hosts
        }
        return make_plan(
            hosts,
            replace(job, **fields),
            facts,
            release="c0ffee",
            sources={"train.py": "p.add_argument('--job_name')"},
            run="digits-1",
            now=1.0,
            operator="ml@desk",
            options=options or Options(),
        )

    return made
