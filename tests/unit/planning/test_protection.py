"""Test which protection a plan chooses for the ports of a run: who may connect to them.

Each host gets the strongest protection that it supports. Some tests check which plans are refused,
and which notes a plan has about protection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts, ProtectionHindrances
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan, without_ssh_settings
from tfdeploy.model.plan_files import plan_to_file, read_untrusted_plan
from tfdeploy.planning.cluster.addresses import MOST_ADDRESSES
from tfdeploy.planning.host_parts import host_parts, shared_part
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

ALL = ProtectionHindrances(peers="", firewall="", most_instructions=1250)
PEERS = replace(ALL, firewall="nft is not installed")
NOTHING = replace(PEERS, peers="its kernel takes no filter")


@pytest.fixture
def planned(
    inventory: Callable[..., Inventory], facts_of: Callable[..., HostFacts], job: Job
) -> Callable[..., Plan]:
    """Return the function `plan` below, which makes the plan of a run on the hosts n1, n2, ..."""

    def plan(
        asked: str,
        can: tuple[ProtectionHindrances, ...],
        mode: str = "async",
        public: bool = False,
        is_open: bool = False,
        where: str = "",
        advertise: Mapping[str, str] = {},
        **facts_of_all: Any,
    ) -> Plan:
        """Return the plan. `can` says, for each host, what prevents each level of protection there.

        `where` is the address of every host. `facts_of_all` are facts of all hosts; its key `of_n2`
        has facts that apply only to n2.
        """
        hosts = inventory(
            ps="n1", worker=" ".join(f"n{number}" for number in range(1, len(can) + 1))
        )
        named = tuple(
            replace(
                host_entry,
                address=where or host_entry.address,
                advertise=advertise.get(host_entry.name),
                ports=(2222 + 10 * number, 2231 + 10 * number),
            )
            for number, host_entry in enumerate(hosts.hosts)
        )
        hosts = replace(hosts, hosts=named)
        facts_by_host = {
            name: facts_of_all.pop(f"of_{name}", {}) for name in (host.name for host in named)
        }
        facts = {
            host.name: facts_of(
                host, protect=hindrances, **{**facts_of_all, **facts_by_host[host.name]}
            )
            for host, hindrances in zip(named, can, strict=True)
        }
        return make_plan(
            hosts,
            replace(job, protect=asked, mode=mode),
            facts,
            release="r",
            sources={"train.py": ""},
            run="r",
            now=0.0,
            operator="o",
            options=Options(allow_public=public, allow_open=is_open),
        )

    return plan


@pytest.mark.parametrize(
    ("asked", "first", "second", "used"),
    [
        ("auto", ALL, ALL, ("firewall", "firewall")),
        ("auto", ALL, PEERS, ("firewall", "peers")),
        ("auto", PEERS, NOTHING, ("peers", "none")),
        # The second host supports the protection `firewall`, but not `peers`. It gets `none`,
        # because `firewall` works only together with `peers`.
        ("auto", ALL, replace(NOTHING, firewall=""), ("firewall", "none")),
        ("firewall", ALL, ALL, ("firewall", "firewall")),
        ("peers", ALL, ALL, ("peers", "peers")),
        ("none", ALL, ALL, ("none", "none")),
    ],
)
def test_auto_uses_strongest_protection_of_each_host(
    planned: Callable[..., Plan],
    asked: str,
    first: ProtectionHindrances,
    second: ProtectionHindrances,
    used: tuple[str, str],
) -> None:
    plan = planned(asked, (first, second), is_open=True)
    assert (plan.protect.asked, plan.protect.used, tuple(plan.protect.hosts.values())) == (
        asked,
        used[1],
        used,
    )
    assert {host: part.protect for host, part in host_parts(plan, {}).items()} == plan.protect.hosts
    shared = shared_part(plan)
    assert shared["guarded"] == [
        host for host, level in plan.protect.hosts.items() if level != "none"
    ]
    assert bool(shared["allowed"]) == bool(shared["guarded"])
    warned = any(note.startswith("warning: protect: none") for note in plan.notes)
    assert warned == (asked == "auto" and "none" in used)


def test_plan_notes_who_may_connect_to_each_host(planned: Callable[..., Plan]) -> None:
    notes = [
        note for note in planned("auto", (ALL, NOTHING), is_open=True).notes if "protect: " in note
    ]
    assert notes == [
        "protect: firewall on n1: only the run's user on the run's hosts, and all users of n2, can "
        "connect to the tasks and the agents at n1:2222-2224",
        "warning: protect: none on n2 (firewall is impossible: on n2, nft is not installed; peers "
        "is impossible: on n2, its kernel takes no filter): every machine that reaches these hosts "
        "can connect to the tasks at n2:2232, and TensorFlow's servers run any graph that they are "
        "sent; `tfdeploy check` and docs/protect.md tell how to prevent this",
    ]


def test_plan_notes_how_to_exclude_other_users_of_hosts(
    planned: Callable[..., Plan],
) -> None:
    (note_text,) = [
        note for note in planned("auto", (PEERS, PEERS, PEERS)).notes if "protect: " in note
    ]
    assert note_text == (
        "protect: peers (firewall is impossible: on n1, nft is not installed; 2 more hosts cannot "
        "do it either): only users of the run's hosts can connect to the tasks at n1:2222-2223, "
        "n2:2232, n3:2242; if other users must not connect, write `protect: firewall` (`tfdeploy "
        "check` tells what the hosts need for this)"
    )


def test_plan_from_host_has_levels_of_hosts_unless_older(
    planned: Callable[..., Plan],
) -> None:
    plan = planned("auto", (ALL, PEERS))
    sent = plan_to_file(without_ssh_settings(plan))
    assert read_untrusted_plan(json.dumps(sent).encode(), plan.run, plan.job, {}).protect.hosts == {
        "n1": "firewall",
        "n2": "peers",
    }
    old = {
        **sent,
        "protect": {key: value for key, value in sent["protect"].items() if key != "hosts"},
    }
    read = read_untrusted_plan(json.dumps(old).encode(), plan.run, plan.job, {}).protect
    assert (read.hosts, read.level_of("n1"), read.level_of("n2")) == ({}, "peers", "peers")
    for hosts in ({"n9": "peers"}, {"n1": "all"}, [], {"n1": None}):
        with pytest.raises(ValueError, match=r"protect|host of the run"):
            read_untrusted_plan(
                json.dumps({**sent, "protect": {**sent["protect"], "hosts": hosts}}).encode(),
                plan.run,
                plan.job,
                {},
            )


@pytest.mark.fault("58 a host that cannot keep strangers out")
def test_auto_needs_consent_to_leave_host_open(
    planned: Callable[..., Plan],
) -> None:
    with pytest.raises(
        Refused, match=r"ports of n2 \(on n2: its kernel takes no filter\)"
    ) as refused:
        planned("auto", (PEERS, NOTHING))
    assert refused.value.where == "host n2" and refused.value.exit_code == 3
    assert "--allow-open" in str(refused.value.next) and "`protect: none`" in str(
        refused.value.next
    )
    assert planned("none", (PEERS, NOTHING)).protect.used == "none"
    # In mode plain, tasks have no ports that the level `peers` could protect.
    assert planned("auto", (NOTHING, NOTHING), mode="plain").protect.used == "none"


def test_loopback_hosts_give_warning(planned: Callable[..., Plan]) -> None:
    plan = planned("auto", (NOTHING, NOTHING), where="127.0.0.1")
    assert plan.protect.hosts == {"n1": "none", "n2": "none"}
    assert any(note.startswith("warning: protect: none (") for note in plan.notes)


def test_host_with_many_addresses_does_not_weaken_others(planned: Callable[..., Plan]) -> None:
    many = tuple(f"fd00:{number:x}::1" for number in range(1, 900))
    plan = planned("auto", (PEERS, PEERS), of_n2={"addresses": many})
    assert plan.protect.hosts == {"n1": "peers", "n2": "peers"}
    assert (
        len(plan.host("n2").addresses) == MOST_ADDRESSES
        and plan.host("n2").addresses[0] == "192.0.2.2"
    )
    assert any(
        note.startswith(
            "n2 has 899 addresses: the other hosts accept connections only from the first 64"
        )
        for note in plan.notes
    )


def test_filter_admits_resolved_addresses_of_names(
    planned: Callable[..., Plan],
) -> None:
    name_fields = {"advertise": {"n2": "two.lan"}, "resolved": {"two.lan": ("10.0.0.2",)}}
    assert planned("auto", (PEERS, PEERS), **name_fields).host("n2").addresses == ("10.0.0.2",)
    lies = {"two.lan": ("10.0.0.2", "10.6.6.6")}
    three = planned("auto", (PEERS, PEERS, PEERS), **name_fields, of_n3={"resolved": lies})
    assert three.host("n2").addresses == ("10.0.0.2",)
    words = (
        "the hosts resolve two.lan (host n2) to different addresses: "
        "10.0.0.2 on n[1-2]; 10.0.0.2, 10.6.6.6 on n3"
    )
    assert words in three.notes


@pytest.mark.parametrize("asked", ["peers", "firewall"])
def test_level_not_supported_by_host_is_refused(planned: Callable[..., Plan], asked: str) -> None:
    with pytest.raises(Refused, match=f"`protect: {asked}`.*on n2, ") as refused:
        planned(asked, (ALL, NOTHING))
    assert refused.value.where == "host n2"


def test_too_long_filter_is_refused_before_launch(planned: Callable[..., Plan]) -> None:
    with pytest.raises(Refused, match="accepts at most 20"):
        planned(
            "peers",
            (ALL, replace(ALL, most_instructions=20)),
            addresses=tuple(f"10.0.{n}.1" for n in range(0, 60, 2)),
        )


def test_each_host_has_addresses_of_all_hosts(planned: Callable[..., Plan]) -> None:
    plan = planned("peers", (ALL, ALL), addresses=("10.0.0.9", "::ffff:10.0.0.8", "fd00::9"))
    shared = shared_part(plan)
    assert set(shared["allowed"]) == {"192.0.2.1", "192.0.2.2", "10.0.0.9", "10.0.0.8", "fd00::9"}


@pytest.mark.fault("58 a public address on another interface, and ports that are open to everybody")
def test_public_address_of_any_interface_needs_filter_or_consent(
    planned: Callable[..., Plan],
) -> None:
    public = {"addresses": ("10.0.0.9", "8.8.8.8")}
    with pytest.raises(Refused, match=r"n1 has the public address 8\.8\.8\.8"):
        planned("none", (ALL, ALL), **public)
    plan_with_filter, plan_without_filter = (
        planned("auto", (ALL, ALL), **public),
        planned("none", (ALL, ALL), public=True, **public),
    )
    assert (plan_with_filter.protect.used, plan_without_filter.protect.used) == ("firewall", "none")
    (kept_note,), (left_note,) = (
        [note for note in plan.notes if note.startswith("public addresses on n[1-2]")]
        for plan in (plan_with_filter, plan_without_filter)
    )
    assert (
        "connect to the tasks' ports on these hosts, but everybody can connect to ports that the "
        "program opens" in kept_note
    )
    assert "run graphs from whoever reaches their ports" in left_note


@pytest.mark.fault("58 a public address on another interface, and ports that are open to everybody")
def test_only_open_host_is_refused_for_public_address(planned: Callable[..., Plan]) -> None:
    public = {"addresses": ("10.0.0.9", "8.8.8.8")}
    assert planned("auto", (PEERS, NOTHING), is_open=True, of_n1=public).protect.used == "none"
    with pytest.raises(Refused, match="n2 has the public address"):
        planned("auto", (PEERS, NOTHING), is_open=True, of_n2=public)


def test_uncovered_port_of_mode_plain_gives_note(planned: Callable[..., Plan]) -> None:
    plan = planned("peers", (ALL, ALL), mode="plain")
    expected_start = (
        "even with `protect: peers`, every machine that reaches n1 can connect to n1:2222 "
        "(MASTER_PORT of worker:0)"
    )
    assert "protect: peers (the job says so): no port of the tasks is protected" in plan.notes
    assert any(
        note.startswith(expected_start) and "`protect: firewall`" in note for note in plan.notes
    ), plan.notes
