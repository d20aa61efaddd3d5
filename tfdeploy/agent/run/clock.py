"""The run's own clock: what died first on two hosts is a question of milliseconds, and hosts' clocks differ by seconds.

Every time in the files of a run (state.json, status.json, what minders tell each other) is of this clock. Log lines carry
the host's.
"""

from __future__ import annotations

import time

from tfdeploy.agent import wire


def now(part: wire.HostPart) -> float:
    """UTC seconds, as the launch found this host's clock to differ from the others'. A clock set since then is off by that."""
    return of(part, time.time())


def of(part: wire.HostPart, host_time: float) -> float:
    """The same for a time of this host's clock, of a file say."""
    return host_time - part.ahead_s
