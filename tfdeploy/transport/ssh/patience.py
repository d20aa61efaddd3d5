"""Compute the backoff for an sshd that closes connections before login, and notify the operator."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tfdeploy.transport.ssh.closings import Closing

# Seconds until the operator gets a notice. sshd admits a burst of connections in less time.
NOTICE_S = 2.0
MAX_DOUBLINGS = 4  # after this many retries, the delay grows no longer


class Patience:
    """The retries of one host. `tell` gets one notice, after NOTICE_S seconds of retries."""

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._clock = tell, clock
        self._first_closing: float | None = None  # when the first connection was closed
        self._tries = 0
        self._has_notified = False

    @property
    def waited_s(self) -> float:
        """Return the seconds since the host first closed a connection, or 0.0 before that."""
        return 0.0 if self._first_closing is None else self._clock() - self._first_closing

    def delay_s(self, closing: Closing) -> float | None:
        """Return the seconds to wait before the next try, with jitter, or None to give up."""
        if self._first_closing is None:
            self._first_closing = self._clock()
        if self.waited_s >= closing.patience_s:
            return None
        if closing.notice and not self._has_notified and self.waited_s >= NOTICE_S:
            self._has_notified = True
            self._tell(closing.notice.format(patience=closing.patience_s))
        self._tries += 1
        return random.uniform(0.05, 0.15) * 2.0 ** min(self._tries, MAX_DOUBLINGS)
