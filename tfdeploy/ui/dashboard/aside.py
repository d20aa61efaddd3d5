"""Write the log on the terminal's normal screen, from which the operator can copy text. Meanwhile,
the dashboard is not shown."""

from __future__ import annotations

import os
import select
from typing import IO

from tfdeploy.ui.dashboard.view_state import ViewState
from tfdeploy.ui.sanitise import clean_line

# The maximum number of lines of the log that are written.
MOST_LINES = 2000


def write_log_lines(stream: IO[str], view: ViewState) -> None:
    """Write the newest lines of the log that pass the filter. If the log is paused or scrolled, the
    last line that is written is the last line that the dashboard showed. The lines have no task
    name before them, and the terminal wraps them."""
    lines = (
        view.snapshot[: view.bottom]
        if view.snapshot is not None
        else view.ring.all_lines(view.followed)
    )[-MOST_LINES:]
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        stream.write(clean_line(line.text).encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


def wait_for_enter(stream: IO[str], fd: int) -> None:
    """Wait until `fd` delivers a line break or reaches its end."""
    stream.write("-- Enter goes back to the dashboard --\n")
    stream.flush()
    while True:
        select.select([fd], [], [])
        if os.read(fd, 1)[-1:] in (b"", b"\n", b"\r"):
            return
