"""The limit for the bytes that one host may send."""

from pathlib import Path

import pytest

from tfdeploy.errors import HostFailed
from tfdeploy.operations.copy.fetch_budget import FetchBudget


def test_refusal_names_a_lower_bound_because_other_parts_may_follow(tmp_path: Path) -> None:
    budget = FetchBudget("n1", 1000)
    budget.check_fits(600, tmp_path)
    budget.count_received(600)
    with pytest.raises(HostFailed, match="at least 1200 bytes") as refused:
        budget.check_fits(600, tmp_path)
    assert "a larger --max (at least 1200B)" in (refused.value.next or "")
