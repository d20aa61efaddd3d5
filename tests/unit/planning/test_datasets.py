"""Test what a plan says about the parts of a data set."""

from __future__ import annotations

from dataclasses import replace

from support.status_answers import PLAN
from tfdeploy.model.plan import PartPlan
from tfdeploy.planning.datasets import with_part_sizes


def test_unequal_numbers_of_files_are_noted() -> None:
    parts = {"numbers": (PartPlan("worker:0", "n2"), PartPlan("worker:1", "n3"))}
    plan = replace(PLAN, parts=parts)
    assert with_part_sizes(plan, {"numbers": [(3, 90), (3, 90)]}).notes == plan.notes
    [note] = with_part_sizes(plan, {"numbers": [(3, 90), (2, 60)]}).notes
    assert note.startswith("data numbers: the workers get 2 to 3 files; ")
