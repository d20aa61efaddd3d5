"""Decide how long a minder stays after the end of the run, because hosts that are cut off do not
know yet how the run ended.

The minder then holds only the mesh's port and seldom connects; a host that returns connects to it.
The minder ends once every such host knows the end or refuses the mesh's port (after a reboot), and
after a day at the latest.
"""

from __future__ import annotations

import time

from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.run.folder import RunPaths

# The longest stay in seconds, for each kind of run:
DAY_S = 86400.0  # committed
UNCOMMITTED_S = 60.0  # never committed: it ends by itself on every host
UNSTARTED_S = 20.0  # never started on this host
TOLD_S = 1.0  # rolled back by the control machine, from then on
SELDOM_AFTER_S = 60.0  # after so many seconds, the pauses become longer
# The pauses between two calls of `is_needed`, at first and later. A change ends a pause early.
SOON_S, SELDOM_S = 0.25, 5.0


class Linger:
    def __init__(self, paths: RunPaths, mesh: Mesh, committed: bool, started: bool = True) -> None:
        self._paths, self._mesh, self._committed = paths, mesh, committed
        self._begun = time.monotonic()
        self._until = self._begun + (
            DAY_S if committed else UNCOMMITTED_S if started else UNSTARTED_S
        )
        self.tick_s = SOON_S

    def is_needed(self) -> bool:
        """Return True if the minder must stay. Also sets `tick_s`, the pause before the next
        call."""
        now = time.monotonic()
        # The abort may arrive at any time.
        if not self._committed and self._paths.word("abort"):
            self._until = min(self._until, now + TOLD_S)
        if now - self._begun >= SELDOM_AFTER_S and self.tick_s != SELDOM_S:
            self.tick_s = SELDOM_S
            self._mesh.ask_seldom()
        return now < self._until and not self._mesh.all_know() and not self._paths.was_removed()
