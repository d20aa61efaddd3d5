"""Decide how long a minder (the agent's daemon for one run on one host) stays alive after the end
of the run. It stays because hosts that are cut off from the network do not know yet how the run
ended.

During this time the minder listens on the mesh's port, so that a host that is no longer cut off can
connect to it. The minder itself seldom connects to other hosts. The minder ends when each host on
which a task may still run either knows how the run ended, or refuses connections to the mesh's port
(for example after a reboot). It ends after a day at the latest.
"""

from __future__ import annotations

import time

from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.run.folder import RunPaths

# After the end of the run, the minder stays at most this many seconds. There is a limit for each
# way in which a run can end.
DAY_S = 86400.0  # limit for a run that was committed
UNCOMMITTED_S = 60.0  # limit for a run that was not committed: every host ends it by itself
UNSTARTED_S = 20.0  # limit for a run that was never started on this host
ROLLED_BACK_S = 1.0  # limit for a run that is rolled back, counted from the order to do so
SELDOM_AFTER_S = 60.0  # after this many seconds, the pause is SELDOM_S instead of SOON_S
# The pause between two calls of `decide_stay_and_tick`: SOON_S at first, later SELDOM_S. A change
# ends the pause early.
SOON_S, SELDOM_S = 0.25, 5.0


class MinderLinger:
    def __init__(self, paths: RunPaths, mesh: Mesh, committed: bool, started: bool) -> None:
        self._paths, self._mesh, self._committed = paths, mesh, committed
        self._begun = time.monotonic()
        self._until = self._begun + (
            DAY_S if committed else UNCOMMITTED_S if started else UNSTARTED_S
        )
        self.tick_s = SOON_S

    def decide_stay_and_tick(self) -> bool:
        """Return True if the minder must stay alive. Also set `tick_s`, the pause before the next
        call."""
        now = time.monotonic()
        # The order to roll the run back may arrive at any time, so it is looked for in each call.
        if not self._committed and self._paths.minder_order("abort"):
            self._until = min(self._until, now + ROLLED_BACK_S)
        if now - self._begun >= SELDOM_AFTER_S and self.tick_s != SELDOM_S:
            self.tick_s = SELDOM_S
            self._mesh.reduce_connection_rate()
        return (
            now < self._until
            and not self._mesh.have_peers_same_state()
            and not self._paths.was_removed()
        )
