"""A synchronous worker that is a step behind when the chief has finished ends with exit code 0.

When the chief stops, its queue runner closes the queue of tokens. A worker that read the global
step a moment too early asks for one more token and gets OutOfRangeError ("FIFOQueue
'_0_sync_token_q' is closed and has insufficient elements"). MonitoredTrainingSession and
managed_session treat that as the end of training. In a plain loop
(`sv.prepare_or_wait_for_session`) nothing catches it: the worker exits with 1, and the run fails
though training has succeeded. Only errors that the program did not catch count, and never the
chief's.
"""

from __future__ import annotations

import sys
from typing import Any

from . import no_more_tokens, task


def install() -> None:
    """Installs an excepthook that checks the last exception before the existing hook."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        if is_end_of_training(error):
            task.say("the chief has finished and closed the queue of tokens: this worker ends too")
            raise SystemExit(0)  # from here it ends the interpreter in the ordinary way
        before(kind, error, trace)

    sys.excepthook = hook


def is_end_of_training(error: BaseException) -> bool:
    own = task.role() == "worker" and (
        task.index() not in (0, None) or no_more_tokens.chief_has_finished()
    )
    return (
        own
        and type(error).__name__ == "OutOfRangeError"
        and "sync_token_q' is closed" in str(error)
    )
