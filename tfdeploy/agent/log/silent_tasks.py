"""Find the tasks whose missing heartbeats made TensorFlow end a program. The program's output names
them at its end. The functions have no side effects.

A worker that is frozen does not die. But the tasks that train with it die seconds later, because
TensorFlow's coordination service (seen in TensorFlow 2.21) misses the worker's heartbeats. Their
exit codes alone would lead an operator to the wrong host.
"""

from __future__ import annotations

import re
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Mapping, Optional

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Ending

TAIL_CHARS = 128 << 10  # how many characters at the end of an attempt's output are searched
_UNHEALTHY = re.compile(
    r"unhealthy \(stopped sending heartbeats\):((?:\s*/job:\w+/replica:\d+/task:\d+)+)"
)
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d{1,9})")


def describe_tasks_without_heartbeat(
    output: str, own_task: str, endings: Mapping[str, Ending]
) -> Optional[str]:
    """Return a sentence such as "TensorFlow heard nothing more of worker:1". If one of the silent
    tasks had already succeeded, the sentence says so instead, because that is the cause. Return
    None if the output has no message about missing heartbeats.

    `output`: what this attempt has printed. `endings`: task -> how it ended, for the tasks that
    have ended in the round of this attempt.
    """
    silent = [task for task in find_tasks_without_heartbeat(output) if task != own_task]
    done = [task for task in silent if task in endings and endings[task]["outcome"] == "succeeded"]
    if done:
        ended = time.strftime("%H:%M:%S UTC", time.gmtime(endings[done[0]]["time"]))
        return (
            "%s ended with exit code 0 at %s, and %s still waited for it: give all workers the "
            "same number of steps, and let all of them call evaluate and save"
            % (done[0], ended, own_task)
        )
    return "TensorFlow heard nothing more of %s" % ", ".join(silent) if silent else None


def find_tasks_without_heartbeat(output: str) -> List[str]:
    """Return the names of the tasks in TensorFlow's last message that tasks have stopped sending
    heartbeats."""
    messages = _UNHEALTHY.findall(output[-TAIL_CHARS:])
    tasks = _TASK.findall(messages[-1]) if messages else []
    return sorted({"%s:%d" % (job, int(index)) for job, index in tasks})
