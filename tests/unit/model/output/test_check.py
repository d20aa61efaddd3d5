"""Test that a few lines sum up the results of forty thousand connections between hosts."""

from __future__ import annotations

from itertools import permutations

import pytest

from tfdeploy.model.output.check import group_links
from tfdeploy.model.output.rows import LinkRow


def make_link_rows(
    hosts: int, broken: set[tuple[str, str]], reason: str = "no answer", ok: bool = False
) -> list[LinkRow]:
    rows: list[LinkRow] = []
    for source, to in permutations([f"n{number}" for number in range(1, hosts + 1)], 2):
        bad = (source, to) in broken
        row: LinkRow = {
            "from": source,
            "to": to,
            "port": 2222,
            "ok": not bad or ok,
            "why": reason if bad else None,
            "fix": "open it" if bad else None,
            "ms": None,
            "mbit_s": None,
        }
        rows.append(row)
    return rows


def all_pairs(sources: str, targets: str) -> set[tuple[str, str]]:
    return {(source, to) for source in sources.split() for to in targets.split() if source != to}


ALL = "n1 n2 n3 n4 n5"


@pytest.mark.parametrize(
    ("broken", "subjects"),
    [
        (set(), []),
        (all_pairs("n2", "n3"), ["n2 does not reach n3"]),
        (all_pairs(ALL, "n3"), ["no other host reaches n3"]),
        (all_pairs(ALL, "n3 n4"), ["no other host reaches n[3-4]"]),
        (all_pairs("n5", ALL), ["n5 reaches no other host"]),
        (all_pairs("n1 n2", "n4 n5"), ["n[1-2] do not reach n[4-5]"]),
        (all_pairs(ALL, ALL), ["no other host reaches n[1-5]"]),
        (
            all_pairs(ALL, "n3") | all_pairs("n1", "n2"),
            ["no other host reaches n3", "n1 does not reach n2"],
        ),
    ],
)
def test_links_with_same_problem_are_one_line(
    broken: set[tuple[str, str]], subjects: list[str]
) -> None:
    assert sorted(
        link_group.subject for link_group in group_links(make_link_rows(5, broken))
    ) == sorted(subjects)


def test_fix_names_all_hosts_of_line() -> None:
    broken = make_link_rows(5, all_pairs(ALL, "n3 n4") | all_pairs("n5", "n2"))
    for link in broken:
        if link["fix"]:
            link["fix"] = (
                f"tfdeploy exec --limit {link['from']} -- ip route; else tfdeploy exec --limit "
                f"{link['to']} -- ufw"
            )
    assert {link_group.subject: link_group.fix for link_group in group_links(broken)} == {
        "no other host reaches n[3-4]": "tfdeploy exec --limit 'n[1-5]' -- ip route; "
        "else tfdeploy exec --limit 'n[3-4]' -- "
        "ufw",
        "n5 does not reach n2": "tfdeploy exec --limit n5 -- ip route; else "
        "tfdeploy exec --limit n2 -- ufw",
    }


def test_200_hosts_with_some_unreachable_are_few_lines() -> None:
    everyone = " ".join(f"n{number}" for number in range(1, 201))
    groups = group_links(
        make_link_rows(200, all_pairs(everyone, "n7 n9") | all_pairs("n1 n2 n3", "n100 n101"))
    )
    assert [link_group.subject for link_group in groups] == [
        "no other host reaches n[7,9]",
        "n[1-3] do not reach n[100-101]",
    ]


def test_slow_links_are_described_as_slow() -> None:
    (groups,) = group_links(make_link_rows(3, all_pairs("n1 n2 n3", "n3"), reason="slow", ok=True))
    assert groups.ok and groups.subject == "no other host reaches well n3"
