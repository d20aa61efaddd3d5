"""Define what the dashboard shows, and the values from which one frame of it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import Trends
from tfdeploy.model.progress.trouble import Mark
from tfdeploy.ui.dashboard.happenings import Happening, Happenings
from tfdeploy.ui.dashboard.log_buffer import LogBuffer
from tfdeploy.ui.dashboard.view_state import ViewState

QUIET_S = 60.0  # a running task that is silent for longer is pointed out


@dataclass
class Scene:
    """All that a frame shows. `quiet`: task -> seconds since its last line, by the viewer's
    clock."""

    progress: RunProgress
    ring: LogBuffer
    view: ViewState
    trends: Trends = field(default_factory=Trends)
    happenings: Happenings = field(default_factory=Happenings)
    quiet: dict[str, float] = field(default_factory=dict)
    unicode: bool = False
    typed: Callable[[str], str] = str  # makes a command complete, so that it can be typed

    @property
    def silent(self) -> dict[str, float]:
        """Return the running tasks that have been quiet for more than QUIET_S."""
        tasks = self.progress.tasks
        return {
            name: quiet
            for name, quiet in self.quiet.items()
            if quiet > QUIET_S and name in tasks and tasks[name].state == "running"
        }

    @property
    def passing(self) -> list[Happening]:
        """Return what has happened and passes the filter: the first cause, then the others, the
        newest last."""
        finds, chosen = self.view.parsed.finds, self.ring.chosen
        return [
            each
            for each in self.happenings.in_order
            if (finds is None or finds(each.folded_text))
            and (chosen is None or not chosen.isdisjoint(each.names))
        ]


class Frame(NamedTuple):
    """A scene at one moment. `shown`: the tasks that pass the filter. `now`: UTC seconds."""

    scene: Scene
    marks: Mapping[str, Mark]
    shown: Sequence[str]
    width: int
    height: int
    now: float
