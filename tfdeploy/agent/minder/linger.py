"""Decide how long a minder stays after the end of the run: hosts that are cut off do not know yet
how the run ended.

It holds only the mesh's port and seldom sends; a host that returns asks. It ends once every such
host knows, or refuses the mesh's port (it was rebooted), or after a day.
"""

from __future__ import annotations

import time

from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.run.folder import RunPaths

DAY_S = 86400.0
UNCOMMITTED_S = 60.0  # a run that was never committed ends by itself on every host
UNSTARTED_S = 20.0  # nothing was started here
TOLD_S = 1.0  # once the control machine has rolled it back
SELDOM_AFTER_S = 60.0
SOON_S, SELDOM_S = 0.25, 5.0  # between two looks; news wakes it up


class Linger:
    def __init__(self, paths: RunPaths, mesh: Mesh, committed: bool, started: bool = True) -> None:
        self._paths, self._mesh, self._committed = paths, mesh, committed
        self._begun = time.monotonic()
        self._until = self._begun + (
            DAY_S if committed else UNCOMMITTED_S if started else UNSTARTED_S
        )
        self.tick_s = SOON_S

    def is_needed(self) -> bool:
        now = time.monotonic()
        if not self._committed and self._paths.word("abort"):  # it may come at any time
            self._until = min(self._until, now + TOLD_S)
        if now - self._begun >= SELDOM_AFTER_S and self.tick_s != SELDOM_S:
            self.tick_s = SELDOM_S
            self._mesh.ask_seldom()
        return now < self._until and not self._mesh.all_know() and not self._paths.was_removed()
