"""End a process when the process that started it dies, for example when pytest is killed."""

from __future__ import annotations

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. For `preexec_fn` of subprocess."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
