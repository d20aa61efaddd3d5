"""Who may reach the ports: the strongest level that every host can do, refusals, and what the plan says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import Hindrances, HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan
from tfdeploy.planning.host_parts import shared_part
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

ALL = Hindrances(peers="", firewall="", most_instructions=1250)
PEERS = replace(ALL, firewall="nft is not installed")
NOTHING = replace(PEERS, peers="its kernel takes no filter")


@pytest.fixture
def planned(inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job) -> Callable[..., Plan]:
    def plan(asked: str, can: tuple[Hindrances, Hindrances], mode: str = "async", public: bool = False, **said: Any) -> Plan:
        hosts = inventory(ps="n1", worker="n1 n2")
        facts = {host.name: facts_of(host, protect=each, **said) for host, each in zip(hosts.hosts, can, strict=True)}
        return make_plan(
            hosts,
            replace(job, protect=asked, mode=mode),
            facts,
            release="r",
            sources={"train.py": ""},
            run="r",
            now=0.0,
            operator="o",
            options=Options(allow_public=public),
        )

    return plan


@pytest.mark.parametrize(
    ("asked", "first", "second", "used"),
    [
        ("auto", ALL, ALL, "firewall"),
        ("auto", ALL, PEERS, "peers"),
        ("auto", PEERS, NOTHING, "none"),
        ("auto", ALL, replace(NOTHING, firewall=""), "none"),  # a firewall stands on top of peers
        ("firewall", ALL, ALL, "firewall"),
        ("peers", ALL, ALL, "peers"),
        ("none", ALL, ALL, "none"),
    ],
)
def test_auto_takes_the_strongest_that_every_host_can_do(
    planned: Callable[..., Plan], asked: str, first: Hindrances, second: Hindrances, used: str
) -> None:
    plan = planned(asked, (first, second))
    assert (plan.protect.asked, plan.protect.used) == (asked, used)
    warned = any(note.startswith("warning: protect: none") for note in plan.notes)
    assert warned == (asked == "auto" and used == "none")


@pytest.mark.parametrize("asked", ["peers", "firewall"])
def test_a_named_level_that_a_host_cannot_do_is_refused(planned: Callable[..., Plan], asked: str) -> None:
    with pytest.raises(Refused, match=f"`protect: {asked}`.*n2: ") as refused:
        planned(asked, (ALL, NOTHING))
    assert refused.value.where == "host n2"


def test_a_filter_that_does_not_fit_is_said_before_the_launch(planned: Callable[..., Plan]) -> None:
    with pytest.raises(Refused, match="instructions, and its kernel takes 20"):
        planned("peers", (ALL, replace(ALL, most_instructions=20)), addresses=tuple(f"10.0.{n}.1" for n in range(0, 60, 2)))


def test_each_host_gets_all_addresses_of_all_hosts(planned: Callable[..., Plan]) -> None:
    plan = planned("peers", (ALL, ALL), addresses=("10.0.0.9", "::ffff:10.0.0.8", "fd00::9"))
    shared = shared_part(plan)
    assert shared["protect"] == "peers"
    assert set(shared["allowed"]) == {"192.0.2.1", "192.0.2.2", "10.0.0.9", "10.0.0.8", "fd00::9"}


@pytest.mark.fault("58 a public address on another interface, and ports that are open to everybody")
def test_a_public_address_of_any_interface_wants_a_filter_or_consent(planned: Callable[..., Plan]) -> None:
    public = {"addresses": ("10.0.0.9", "8.8.8.8")}
    with pytest.raises(Refused, match=r"n1 has the public address 8\.8\.8\.8"):
        planned("none", (ALL, ALL), **public)
    kept, left = planned("auto", (ALL, ALL), **public), planned("none", (ALL, ALL), public=True, **public)
    assert (kept.protect.used, left.protect.used) == ("firewall", "none")
    (kept_note,), (left_note,) = (
        [note for note in plan.notes if note.startswith("public addresses on n[1-2]")] for plan in (kept, left)
    )
    assert "turns strangers away there, but not at ports that the program opens" in kept_note
    assert "run graphs from whoever reaches their ports" in left_note


def test_the_port_of_mode_plain_that_no_filter_covers_is_said(planned: Callable[..., Plan]) -> None:
    plan = planned("peers", (ALL, ALL), mode="plain")
    assert any("(MASTER_PORT) stays open to whoever reaches it" in note for note in plan.notes)
