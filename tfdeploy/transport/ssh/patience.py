"""Compute the delays between retries if sshd closes connections before login.

If the retries take long, the operator is notified.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tfdeploy.transport.ssh.closings import EarlyClosing

# The operator gets a notice if the retries take this many seconds. They take less if sshd refuses
# connections only because many come at once.
NOTICE_S = 2.0
MAX_DOUBLINGS = 4  # the delay does not grow after this many retries


class RetrySchedule:
    """The retries of one host.

    `notify`: called once, with a notice for the operator, after NOTICE_S seconds.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        # Monotonic time at which the host closed the first connection before login.
        self._first_closing: float | None = None
        self._tries = 0
        self._has_notified = False

    @property
    def waited_s(self) -> float:
        """Return the seconds since the host first closed a connection, or 0.0 if it closed none."""
        return 0.0 if self._first_closing is None else time.monotonic() - self._first_closing

    def delay_s(self, closing: EarlyClosing) -> float | None:
        """Return the seconds to wait before the next attempt, with jitter, or None to give up."""
        if self._first_closing is None:
            self._first_closing = time.monotonic()
        if self.waited_s >= closing.patience_s:
            return None
        if closing.notice and not self._has_notified and self.waited_s >= NOTICE_S:
            self._has_notified = True
            self._notify(closing.notice.format(patience=closing.patience_s))
        self._tries += 1
        return random.uniform(0.05, 0.15) * 2.0 ** min(self._tries, MAX_DOUBLINGS)
