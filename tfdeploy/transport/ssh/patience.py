"""How long to ask an sshd again that turns connections away, and when the operator is told."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tfdeploy.transport.ssh.closings import Closing

NOTICE_S = 2.0  # a burst of connections is let in earlier: nobody needs to hear of it
MAX_DOUBLINGS = 4


class Patience:
    """The wait for one host. `tell` gets the notice of the first closing that lasts."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._began: float | None = None
        self._tries = 0
        self._told = False

    @property
    def waited_s(self) -> float:
        """Return the seconds since the first time that the host turned a connection away."""
        return 0.0 if self._began is None else self._clock() - self._began

    def delay_s(self, closing: Closing) -> float | None:
        """Return the seconds to wait until the next try, with jitter; None: it is time to give up."""
        if self._began is None:
            self._began = self._clock()
        if self.waited_s >= closing.patience_s:
            return None
        if closing.notice and not self._told and self.waited_s >= NOTICE_S:
            self._told = True
            self._tell(closing.notice.format(patience=closing.patience_s))
        self._tries += 1
        return random.uniform(0.05, 0.15) * 2.0 ** min(self._tries, MAX_DOUBLINGS)
