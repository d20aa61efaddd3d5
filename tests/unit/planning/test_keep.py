"""Test on which host training resumes: the one whose `keep` folder is the newest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.facts import KeepFolderFact
from tfdeploy.model.plan import Plan, without_ssh_settings
from tfdeploy.model.plan_files import plan_to_file, read_untrusted_plan
from tfdeploy.planning.options import Options


def task(plan: Plan, name: str) -> Any:
    return next(planned_task for planned_task in plan.tasks if planned_task.task == name)


def facts_of_kept_files(when: float, checkpoint: str | None = "model.ckpt-7") -> dict[str, Any]:
    return {"keep": (KeepFolderFact(path="checkpoints", newest=when, checkpoint=checkpoint),)}


def test_ages_of_checkpoints_are_corrected_for_clock_skew(make: Callable[..., Plan]) -> None:
    changed_facts = {
        "n2": facts_of_kept_files(1000.0),
        "n3": {**facts_of_kept_files(1500.0), "clock_skew_s": 600.0},
    }
    assert task(make(changed_facts=changed_facts, keep=("checkpoints",)), "worker:0").host == "n2"


def test_checkpoint_takes_precedence_over_newer_files(make: Callable[..., Plan]) -> None:
    plan = make(
        changed_facts={"n1": facts_of_kept_files(9000.0, None), "n3": facts_of_kept_files(1000.0)},
        keep=("checkpoints",),
    )
    assert task(plan, "worker:0").host == "n3"
    assert plan.resume == "checkpoints: model.ckpt-7 on n3"


@pytest.mark.parametrize(("step", "succeeded"), [(80, None), (20, None), (80, 950.0)])
def test_older_checkpoint_of_later_step_is_named(
    make: Callable[..., Plan], step: int, succeeded: float | None
) -> None:
    """The host n3 was away while training went on from an earlier step."""
    older = KeepFolderFact(
        path="checkpoints", newest=900.0, checkpoint=f"model.ckpt-{step}", step=step
    )
    newer = KeepFolderFact(path="checkpoints", newest=1000.0, checkpoint="model.ckpt-22", step=22)
    plan = make(
        changed_facts={
            "n2": {"keep": (newer,), "succeeded": succeeded},
            "n3": {"keep": (older,)},
        },
        keep=("checkpoints",),
    )
    notes = [note for note in plan.notes if "later step" in note]
    assert len(notes) == (step == 80 and succeeded is None)
    assert all("-- touch" in note and "keep/checkpoints/checkpoint" in note for note in notes)


def test_checkpoint_on_other_host_takes_precedence_over_local_files(
    make: Callable[..., Plan],
) -> None:
    with pytest.raises(Refused, match=r"checkpoints: model\.ckpt-7\) is on n1"):
        make(
            changed_facts={
                "n1": facts_of_kept_files(1000.0),
                "n2": facts_of_kept_files(9000.0, None),
            },
            keep=("checkpoints",),
        )


@pytest.mark.parametrize(
    ("checkpoints", "wrote", "host"),
    [
        ((None, None), (True, False), "n2"),
        (("ckpt-7", "ckpt-7"), (True, False), "n3"),
        ((None, "ckpt-7"), (True, False), "n3"),
        ((None, None), (True, True), "n3"),
        # The runs on n3 were removed by `clean`.
        ((None, None), (True, None), "n3"),
        ((None, None), (False, False), "n3"),
    ],
)
def test_files_of_other_workers_do_not_move_the_chief(
    make: Callable[..., Plan],
    checkpoints: tuple[str | None, str | None],
    wrote: tuple[bool | None, bool | None],
    host: str,
) -> None:
    facts = {
        name: {**facts_of_kept_files(when, checkpoint), "wrote_last": has_written}
        for name, when, checkpoint, has_written in zip(
            ("n2", "n3"), (1000.0, 9000.0), checkpoints, wrote, strict=True
        )
    }
    plan = make(changed_facts=facts, keep=("checkpoints",))
    assert task(plan, "worker:0").host == host and plan.resume and plan.resume.endswith(host)


def test_old_copies_of_checkpoints_do_not_count_after_success(make: Callable[..., Plan]) -> None:
    def plan_with(**facts_of_chief: Any) -> Plan:
        return make(
            {"worker": "n1 n2"},
            {"n1": facts_of_chief, "n2": facts_of_kept_files(5000.0)},
            mode="mirrored",
            keep=("checkpoints",),
        )

    # The chief on n1 deleted its checkpoints at the end and kept a model.
    with_model = plan_with(**facts_of_kept_files(9000.0, None), succeeded=9000.0)
    assert (with_model.keep_from, with_model.resume) == (
        "n1",
        "checkpoints: files of an earlier run on n1",
    )
    empty = plan_with(succeeded=9000.0)
    assert (empty.keep_from, empty.resume) == ("n1", None)
    newer_checkpoint = plan_with(**facts_of_kept_files(4000.0, None), succeeded=4000.0)
    assert newer_checkpoint.keep_from == "n2"


def test_plan_may_take_keep_from_host_without_task(
    make: Callable[..., Plan],
) -> None:
    plan = make(
        {"worker": "n1 n2 n3"},
        {"n3": facts_of_kept_files(9000.0)},
        Options(workers=2),
        mode="mirrored",
        keep=("checkpoints",),
    )
    assert (plan.keep_from, [host.host for host in plan.hosts]) == ("n3", ["n1", "n2"])
    assert (
        read_untrusted_plan(
            json.dumps(plan_to_file(without_ssh_settings(plan))).encode(), plan.run, plan.job, {}
        ).keep_from
        == "n3"
    )


def test_keep_folders_not_named_by_job_are_ignored(make: Callable[..., Plan]) -> None:
    plan = make(changed_facts={"n1": facts_of_kept_files(9000.0)})
    assert plan.resume is None


def test_chief_is_placed_at_checkpoint_or_launch_is_refused(make: Callable[..., Plan]) -> None:
    roles = {"ps": "n1", "chief": "n2", "worker": "n3"}
    assert (
        make(roles, {"n2": facts_of_kept_files(1.0)}, keep=("checkpoints",)).resume
        == "checkpoints: model.ckpt-7 on n2"
    )
    with pytest.raises(
        Refused, match=r"model\.ckpt-7.* is on n3, and this host does not have the role chief"
    ):
        make(roles, {"n3": facts_of_kept_files(1.0)}, keep=("checkpoints",))
