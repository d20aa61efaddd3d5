"""Show how many hosts have finished a command of tfdeploy. On a terminal, one line is overwritten;
elsewhere, a line is written every 10 s."""

from __future__ import annotations

import time

from tfdeploy.ui.amounts import format_count
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Terminal

# Seconds before the first line. If all hosts finish in less time, no line is written.
FIRST_S = 2.0
# Seconds between two lines if the output is not a terminal.
EVERY_S = 10.0
# Seconds between two updates of the line on a terminal.
EVERY_ON_TERMINAL_S = 0.2


class HostCountLine:
    """The progress of `tfdeploy stop` over `total` hosts: "stopped 160 of 200 hosts ..."."""

    def __init__(self, terminal: Terminal, total: int) -> None:
        self._terminal, self._total = terminal, total
        self._done: set[str] = set()
        self._next = time.monotonic() + FIRST_S
        self._shown = False

    def mark_done(self, host: str) -> None:
        self._done.add(host)
        now = time.monotonic()
        if now < self._next or len(self._done) == self._total:
            return
        self._next = now + (EVERY_S if self._terminal.width is None else EVERY_ON_TERMINAL_S)
        self._write(f"{self.text} ...", is_permanent=self._terminal.width is None)

    def report_retry(self, reasons: dict[str, str]) -> None:
        """Write that the hosts in `reasons` are asked once more. The line has only the reason of
        the first of these hosts. `reasons`: {host: reason}."""
        first, why = next(iter(reasons.items()))
        others = f" and {format_count(len(reasons) - 1, 'more host')}" if len(reasons) > 1 else ""
        self._write(f"{self.text}; trying {first}{others} again: {clean(why)}", is_permanent=True)

    def erase(self) -> None:
        """Erase the line about the progress from the terminal."""
        if self._shown:
            self._terminal.write("\r\x1b[K")
        self._shown = False

    @property
    def text(self) -> str:
        return f"stopped {len(self._done)} of {format_count(self._total, 'host')}"

    def _write(self, text: str, *, is_permanent: bool) -> None:
        self.erase()
        width = self._terminal.width
        self._terminal.write(
            (text if width is None or is_permanent else text[: width - 1])
            + ("\n" if is_permanent else "")
        )
        self._shown = not is_permanent
