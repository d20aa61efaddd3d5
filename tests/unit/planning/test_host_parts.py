"""Test the part of a plan that each host gets."""

from __future__ import annotations

from collections.abc import Callable

from tfdeploy.agent import wire
from tfdeploy.model.job import DataSource
from tfdeploy.model.plan import Plan
from tfdeploy.planning.host_parts import host_parts, shared_part


def complete_part(plan: Plan, part: wire.HostPart) -> wire.HostPart:
    """Return `part`, a host's part of the plan, as the host completes it: with the texts that are
    the same for all hosts and therefore sent separately.
    """
    return wire.from_wire(wire.HostPart, {**wire.to_wire(part), **shared_part(plan)})


def test_part_has_own_tasks_and_all_peers(make: Callable[..., Plan]) -> None:
    plan = make(
        keep=("checkpoints",),
        data={"digits": DataSource(path="/code/data/digits")},
        stop_grace_s=3.0,
    )
    parts = host_parts(plan, {"n2": 1.5})
    assert {name: [spec.task for spec in part.tasks] for name, part in parts.items()} == {
        "n1": ["ps:0"],
        "n2": ["worker:0"],
        "n3": ["worker:1"],
    }
    part = complete_part(plan, parts["n2"])
    assert [(peer.task, peer.host, peer.deciding) for peer in part.peers] == [
        ("ps:0", "n1", False),
        ("worker:0", "n2", True),
        ("worker:1", "n3", False),
    ]
    assert (part.mesh[0].host, part.mesh[0].address, part.mesh[0].port) == ("n1", "192.0.2.1", 2223)
    assert (part.keep, part.links, part.stop_grace_s) == (
        ["checkpoints"],
        {"data/digits": "digits"},
        3.0,
    )
    assert part.plan_digest == plan.digest
    assert {name: part.ahead_s for name, part in parts.items()} == {"n1": 0.0, "n2": 1.5, "n3": 0.0}


def test_parts_have_traits_of_mode(make: Callable[..., Plan]) -> None:
    ordinary = complete_part(make(mode="sync"), host_parts(make(mode="sync"), {})["n2"])
    assert (ordinary.lockstep, ordinary.tasks[0].traits) == (True, ["synchronous", "lasting_ps"])
    assert (ordinary.tasks[0].runtime, ordinary.tasks[0].port, ordinary.tasks[0].own_port) == (
        True,
        2222,
        None,
    )
    assert not any(peer.own_port for peer in ordinary.peers)
    assert complete_part(make(), host_parts(make(), {})["n2"]).lockstep is False

    plan = make(mode="plain")
    parts = {name: complete_part(plan, part) for name, part in host_parts(plan, {}).items()}
    assert [(part.tasks[0].port, part.tasks[0].own_port) for part in parts.values()] == [
        (None, 2222),
        (None, None),
    ]
    assert {
        (part.lockstep, part.tasks[0].runtime, *part.tasks[0].traits) for part in parts.values()
    } == {(True, False)}
    peer_fields = [
        (peer.task, peer.address, peer.own_port, peer.on_death, peer.gang, peer.deciding)
        for peer in parts["n3"].peers
    ]
    assert peer_fields == [
        ("worker:0", "192.0.2.2:2222", True, "gang", True, True),
        ("worker:1", "", False, "gang", True, True),
    ]
