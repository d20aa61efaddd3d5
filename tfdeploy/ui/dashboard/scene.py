"""Define the data that the dashboard shows (Scene), and the values from which one frame of it is
drawn (Frame)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import Trends
from tfdeploy.model.progress.trouble import TaskTrouble
from tfdeploy.ui.dashboard.happenings import HistoryEntry, RunHistory
from tfdeploy.ui.dashboard.log_buffer import LogBuffer
from tfdeploy.ui.dashboard.view_state import ViewState

# A running task counts as silent if it has written no line and no step for this many seconds.
QUIET_S = 60.0


@dataclass
class Scene:
    """The data that a frame of the dashboard shows. `quiet_s_by_task`: {task: seconds since its
    last line or step, by this machine's clock}. `add_options`: adds the operator's own options,
    such as `-i FILE`, to a command that the dashboard shows, so that the operator can type this
    command."""

    progress: RunProgress
    ring: LogBuffer
    view: ViewState
    trends: Trends = field(default_factory=Trends)
    happenings: RunHistory = field(default_factory=RunHistory)
    quiet_s_by_task: dict[str, float] = field(default_factory=dict)
    unicode: bool = False
    add_options: Callable[[str], str] = str

    @property
    def silent_tasks(self) -> dict[str, float]:
        """Return {task: seconds since its last line or step} for the silent tasks. A running task
        is silent after QUIET_S seconds without a line or step."""
        tasks = self.progress.tasks
        return {
            name: quiet
            for name, quiet in self.quiet_s_by_task.items()
            if quiet > QUIET_S and name in tasks and tasks[name].state == "running"
        }

    @property
    def filtered_history(self) -> list[HistoryEntry]:
        """Return the entries of the history that pass the filter: the cause of the run's failure,
        then all other entries, the newest last."""
        finds, chosen = self.view.parsed.text_test, self.ring.chosen
        return [
            each
            for each in self.happenings.in_order
            if (finds is None or finds(each.folded_text))
            and (chosen is None or not chosen.isdisjoint(each.names))
        ]


class Frame(NamedTuple):
    """The data of the dashboard at one moment, for a screen of `width` columns and `height` rows.
    `shown`: the tasks that pass the filter. `now`: UTC seconds."""

    scene: Scene
    troubles: Mapping[str, TaskTrouble]
    shown: Sequence[str]
    width: int
    height: int
    now: float
