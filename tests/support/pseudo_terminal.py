"""Run a program on a real terminal (a pty): read its output, send keys, and check how it leaves the
terminal.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.stopwatch import Stopwatch

ALT_ON, ALT_OFF, CURSOR_ON = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
# This text can be no output of a program. It changes nothing on a screen.
LAST = b"\x1b[m\x1b[m\x1b[0m\x1b[m"


class Terminal:
    """A pty that controls a program, as a user's terminal does.

    It records the output of the program.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        columns: int = 100,
        rows: int = 24,
    ) -> None:
        self.control, self.end = pty.openpty()
        self._screen: Any = None
        # How many bytes of the output the emulated screen has processed.
        self._fed = 0
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.end)
        env = {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        env.pop("COLUMNS", None)
        env.pop("LINES", None)
        self.process = subprocess.Popen(
            command,
            stdin=self.end,
            stdout=self.end,
            stderr=self.end,
            env=env,
            cwd=cwd,
            start_new_session=True,
            # With a controlling terminal, Ctrl-C interrupts the program.
            preexec_fn=_control,
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        if self._screen is not None:
            self._screen.resize(rows, columns)
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.control, keys)

    def until(self, text: str, *, within_s: float = 20) -> bytes:
        """Wait until `text` is in the output, and return the output so far."""
        watch = Stopwatch()
        begun = len(self.output)
        while text.encode() not in plain(self.output[begun:]):
            assert watch.seconds < within_s, (
                f"{text!r} is not in {plain(self.output[-3000:]).decode(errors='replace')}"
            )
            self._pump(0.2)
        return self.output[begun:]

    def screen(self) -> list[str]:
        """Return the rows that the terminal shows now, with `_` for the cursor and without blank
        rows at the end.
        """
        import pyte

        if self._screen is None:
            self._screen = pyte.Screen(self.columns, self.rows)
            self._stream = pyte.ByteStream(self._screen)
        screen = self._screen
        self._stream.feed(self.output[self._fed :])
        self._fed = len(self.output)
        rows = list(screen.display)
        at, row = screen.cursor.x, screen.cursor.y
        if not screen.cursor.hidden and at < self.columns:
            rows[row] = f"{rows[row][:at]}_{rows[row][at + 1 :]}"
        return "\n".join(each.rstrip() for each in rows).rstrip().split("\n")

    def shows(self, text: str, *, within_s: float = 20) -> list[str]:
        """Wait until the screen has shown `text` for half a second, and return the screen.

        Within half a second, a display of tfdeploy redraws the whole screen.
        """
        watch, since = Stopwatch(), None
        while since is None or since.seconds < 0.5:
            assert watch.seconds < within_s, "\n".join(
                [f"{text!r} is not on the screen:", *self.screen()]
            )
            self._pump(0.1)
            if not any(text in row for row in self.screen()):
                since = None
            elif since is None:
                since = Stopwatch()
        return self.screen()

    def finish(self, *, within_s: float = 20) -> int:
        """Wait until the program ends, read the rest of its output, and return its exit code."""
        watch = Stopwatch()
        while self.process.poll() is None:
            assert watch.seconds < within_s, "it did not end"
            self._pump(0.05)
        while self._pump(0.0):
            pass
        # The kernel may pass on the last output late. So this text follows it through the terminal.
        os.write(self.end, LAST)
        while not self.output.endswith(LAST):
            assert watch.seconds < within_s, "its output has no end"
            self._pump(0.05)
        self.output = self.output.removesuffix(LAST)
        return self.process.returncode

    def _pump(self, wait_s: float) -> bool:
        ready, _, _ = select.select([self.control], [], [], wait_s)
        if ready:
            self.output += os.read(self.control, 65536)
        return bool(ready)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.control)
        os.close(self.end)


def _control() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(output: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-?]*[ -/]*[@-~]", b"", output)


def restored(terminal: Terminal) -> bool:
    after = terminal.output.rfind(ALT_OFF)
    return (
        terminal.output.count(ALT_ON) == terminal.output.count(ALT_OFF) > 0
        and after > terminal.output.rfind(ALT_ON)
        and CURSOR_ON in terminal.output
        and termios.tcgetattr(terminal.end) == terminal.before
    )
