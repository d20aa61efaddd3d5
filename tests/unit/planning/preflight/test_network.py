"""Test what a preflight says about the ports of a host and their protection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.probed_hosts import (
    ALL,
    NO_FILTER,
    NO_NFT,
    SHORT_FILTER,
    FactsOf,
    failed_checks,
    plan_for,
    seen_of,
)
from tfdeploy.model.facts import (
    ProtectionHindrances,
)
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import AskedLevel, Job
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import (
    ProbeResults,
    check_hosts,
)


def test_single_free_port_is_described_in_singular(facts_of: FactsOf) -> None:
    problems = failed_checks(
        check_hosts(
            ProbeResults(seen_of(facts_of, free_ports=(2222,), ephemeral_ports=1)), ("ports",)
        )
    )
    assert [detail for *_, detail in problems] == [
        "1 port of 2222-2299 is free",
        "1 port of 2222-2299 may be given to any outgoing connection",
    ]


@pytest.mark.parametrize(
    ("asked", "others", "of_n2", "expected"),
    # (protection that the operator asks for, what hinders n1 and n3, what hinders n2, result). The
    # result is (level, part of the detail, part of the fix) of the check, or None if it succeeds.
    [
        (
            "auto",
            ALL,
            NO_NFT,
            (
                "warning",
                "supports only `protect: peers` (nft is not installed), "
                "but most hosts support `protect: firewall`",
                "ml ALL=(root) NOPASSWD",
            ),
        ),
        # Only n2 can use nft.
        ("auto", NO_NFT, ALL, None),
        (
            "auto",
            ALL,
            NO_FILTER,
            ("warning", "(no such filter): whoever reaches the ports", "uname -r"),
        ),
        (
            "firewall",
            ALL,
            NO_NFT,
            ("error", "`protect: firewall`: nft is not installed", "or write `protect: auto`"),
        ),
        ("firewall", ALL, NO_FILTER, ("error", "`protect: firewall`: no such filter", "uname -r")),
        (
            "firewall",
            ALL,
            SHORT_FILTER,
            ("error", "`protect: firewall`: a filter for the addresses", "optmem_max"),
        ),
        ("peers", ALL, NO_NFT, None),
        ("peers", ALL, NO_FILTER, ("error", "`protect: peers`: no such filter", "uname -r")),
        ("none", ALL, NO_FILTER, None),
    ],
)
def test_unsupported_protection_is_reported(
    facts_of: FactsOf,
    asked: AskedLevel,
    others: ProtectionHindrances,
    of_n2: ProtectionHindrances,
    expected: tuple[str, str, str] | None,
) -> None:
    seen_with_others = {
        host: replace(seen_host, facts=replace(seen_host.facts, protect=others))
        for host, seen_host in seen_of(facts_of).items()
    }
    seen = {
        **seen_with_others,
        "n2": replace(
            seen_with_others["n2"], facts=replace(seen_with_others["n2"].facts, protect=of_n2)
        ),
    }
    checks_by_host = check_hosts(ProbeResults(seen, Needs(protect=asked)))
    failures = [
        (host, check) for host, checks in checks_by_host.items() for check in checks if not check.ok
    ]
    if expected is None:
        assert failures == []
        return
    [(host, failure)] = failures
    assert (
        (host, failure.check, failure.level) == ("n2", "protect", expected[0])
        and expected[1] in failure.detail
        and expected[2] in (failure.fix or "")
    ), failure
    # The run has no task on n2.
    assert (
        failed_checks(check_hosts(ProbeResults(seen, Needs(protect=asked, hosts=("n1", "n3")))))
        == []
    )


def test_host_that_launch_would_refuse_is_error(
    facts_of: FactsOf, job: Job, inventory: Callable[..., Inventory]
) -> None:
    seen = seen_of(facts_of, protect=NO_FILTER)
    hosts = inventory(ps="n1", worker="n2 n3")
    plan = plan_for(hosts, job, seen)
    [(host, failure)] = [
        (host, check)
        for host, checks in check_hosts(ProbeResults(seen, Needs(plan=plan))).items()
        for check in checks
        if not check.ok
    ]
    assert (host, failure.check, failure.level) == (
        "n2",
        "protect",
        "error",
    ) and "--allow-open" in (failure.fix or "")
