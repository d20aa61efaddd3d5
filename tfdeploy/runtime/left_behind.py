"""Let a synchronous worker end with exit code 0 if the chief has finished before it.

When the chief stops, its queue runner closes the queue of tokens. A worker that has read the global
step a moment too early requests one more token and gets OutOfRangeError ("FIFOQueue
'_0_sync_token_q' is closed and has insufficient elements"). MonitoredTrainingSession and
managed_session treat this error as the end of training. A plain loop
(`sv.prepare_or_wait_for_session`) does not catch the error: the worker exits with 1, and the run
fails although training has succeeded.

If the program of a worker does not catch the error, the patch ends the worker with exit code 0. In
the chief, the error stays an error.
"""

from __future__ import annotations

import sys
from typing import Any

from . import no_more_tokens, task


def install() -> None:
    """Install an excepthook that ends the program with exit code 0 if an uncaught exception means
    the end of training. All other exceptions go to the previous hook."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        if is_end_of_training(error):
            task.print_once(
                "the chief has finished and closed the queue of tokens: this worker ends too"
            )
            # A SystemExit that is raised in an excepthook ends the interpreter as usual.
            raise SystemExit(0)
        before(kind, error, trace)

    sys.excepthook = hook


def is_end_of_training(error: BaseException) -> bool:
    """Return True if the error means that the chief has finished and closed the queue of tokens.

    Worker 0 may itself be the chief. So in worker 0, the error counts only if the chief is known to
    have finished."""
    is_counted = task.role() == "worker" and (
        task.index() not in (0, None) or no_more_tokens.chief_has_finished()
    )
    return (
        is_counted
        and type(error).__name__ == "OutOfRangeError"
        and "sync_token_q' is closed" in str(error)
    )
