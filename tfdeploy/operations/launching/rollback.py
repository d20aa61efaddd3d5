"""Roll a prepared run back on its hosts when a later step of the launch fails before the commit."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_ABORT
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.operations.emit import emit_note, step
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.ask import ask_all
from tfdeploy.transport.protocols import Fleet


class Prepared:
    """The prepared run of `plan`.

    `step_begun` is the newest step that has begun. It decides what a rollback removes and reports.
    """

    def __init__(self, fleet: Fleet, plan: Plan, emit: Emit) -> None:
        self.plan = plan
        self.step_begun: Literal["prepare", "start", "commit"] = "prepare"
        self._fleet, self._emit = fleet, emit

    def on_exit(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Roll the run back if there is an error. An exit callback of an ExitStack."""
        if error is not None:
            purge, committing = self.step_begun == "prepare", self.step_begun == "commit"
            roll_back(
                self._fleet,
                self.plan,
                self._emit,
                _reason(error),
                purge=purge,
                committing=committing,
            )


def roll_back(
    fleet: Fleet, plan: Plan, emit: Emit, reason: str, *, purge: bool, committing: bool = False
) -> None:
    """End the run on all hosts, and emit a warning for each unreachable host.

    On an unreachable host the run ends by itself within a minute, unless the commit arrived there.
    `purge`: also remove the run's folder. `committing`: the commit may have reached some hosts.
    """
    otherwise = (
        f"if the commit reached it, the run continues: `tfdeploy stop {plan.run}`"
        if committing
        else "the run ends by itself within 60 s"
    )
    with step(emit, "rollback", plan.run):
        args = {"reason": reason, "purge": purge, "plan_digest": plan.digest}
        _, bad = split_outcomes(ask_all(fleet, plan, RUN_ABORT, args, patience_s=30, timeout_s=90))
        for host, error in bad.items():
            emit_note(
                emit,
                f"the rollback did not reach this host ({error.what}); {otherwise}",
                level="warning",
                host=host,
            )


def _reason(error: BaseException) -> str:
    """Return the reason for the rollback in one line."""
    return (
        error.what.splitlines()[0] if isinstance(error, TfdeployError) else "launch was interrupted"
    )
