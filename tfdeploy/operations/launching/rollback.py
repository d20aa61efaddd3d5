"""Roll a prepared run back on its hosts if a step of the launch fails before the commit is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_ABORT
from tfdeploy.model.events import Emit
from tfdeploy.model.plan import Plan
from tfdeploy.operations.emit import emit_note, emit_warning, step_events
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.transport.protocols import Fleet


@dataclass
class PreparedRun:
    """The prepared run of `plan`.

    `step_begun` is the last step of the launch that has begun. A rollback in the step "prepare"
    also removes the run's folder. In the step "commit", a host may already have the commit.
    """

    fleet: Fleet
    plan: Plan
    emit: Emit
    step_begun: Literal["prepare", "start", "commit"] = "prepare"

    def roll_back_on_error(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Roll the run back on all hosts if `error` is not None. ExitStack calls this on exit.

        If no task has been started yet, the run's folder is removed too. Emits a warning for each
        unreachable host. On such a host, the run ends by itself within a minute, unless the host
        has received the commit.
        """
        if error is None:
            return
        run = self.plan.run
        with step_events(self.emit, "rollback", run):
            args = {
                "reason": error.what.splitlines()[0]
                if isinstance(error, TfdeployError)
                else "launch was interrupted",
                "purge": self.step_begun == "prepare",
                "plan_digest": self.plan.digest,
            }
            answers = call_all(self.fleet, self.plan, RUN_ABORT, args, patience_s=30, timeout_s=90)
            otherwise = (
                f"if the host got the commit, the run continues; `tfdeploy stop {run}` ends the run"
                if self.step_begun == "commit"
                else "the run ends by itself within 60 s"
            )
            failures = split_outcomes(answers)[1]
            if not (failures or isinstance(error, TfdeployError)):
                emit_note(
                    self.emit,
                    "all hosts undid the launch: no task is running; `tfdeploy launch` starts anew",
                    run=run,
                )
            for host, failure in failures.items():
                emit_warning(
                    self.emit,
                    f"the rollback did not reach this host ({failure.what}); {otherwise}",
                    host=host,
                )
