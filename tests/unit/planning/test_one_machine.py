"""Test that a launch is refused if two hosts in the inventory are in fact the same machine.

Two different machines that only look alike are accepted.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.planning import host_checks

USUAL = {"boot_id": "b1", "hostname": "ubuntu", "user": "ml", "workdir": "/home/ml/tfdeploy"}


def facts(**other: str) -> Any:
    return SimpleNamespace(**{**USUAL, **other})


@pytest.mark.fault("3 one machine under two names")
def test_two_names_for_one_machine_are_refused() -> None:
    with pytest.raises(
        Refused, match="n1 and alias are one machine: ubuntu, user ml, /home/ml/tfdeploy"
    ) as caught:
        host_checks.refuse_same_machine(
            {"n1": facts(), "n2": facts(boot_id="b2"), "alias": facts()}
        )
    assert caught.value.next is not None and "--exclude alias" in caught.value.next


@pytest.mark.parametrize(
    "other", [{"boot_id": "b2"}, {"hostname": "n2"}, {"user": "me"}, {"workdir": "/other"}]
)
def test_clones_containers_and_second_accounts_are_separate_hosts(
    other: dict[str, str],
) -> None:
    host_checks.refuse_same_machine({"n1": facts(), "n2": facts(**other)})
    host_checks.refuse_same_machine({"n1": facts(boot_id=""), "n2": facts(boot_id="")})
