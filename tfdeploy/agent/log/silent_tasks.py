"""Find the tasks whose missing heartbeats made TensorFlow end a program. The program's log names
them at its end.

A worker that is frozen does not die. But the tasks that train with it die seconds later, because
TensorFlow's coordination service (seen in TensorFlow 2.21) misses the worker's heartbeats. Their
exit codes alone would lead an operator to the wrong host.
"""

from __future__ import annotations

import os
import re
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, List, Mapping, Optional
from tfdeploy.agent.log.format import LOG

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Ending

TAIL_BYTES = 128 << 10
_UNHEALTHY = re.compile(
    rb"unhealthy \(stopped sending heartbeats\):((?:\s*/job:\w+/replica:\d+/task:\d+)+)"
)
_TASK = re.compile(rb"/job:(\w+)/replica:\d+/task:(\d{1,9})")


def describe_tasks_without_heartbeat(
    task_dir: str, own_task: str, output_bytes: int, endings: Mapping[str, Ending]
) -> Optional[str]:
    """Return a sentence such as "TensorFlow heard nothing more of worker:1". If one of the silent
    tasks had already succeeded, the sentence says so instead, because that is the cause. Return
    None if the log has no message about missing heartbeats.

    `output_bytes`: how many bytes at the end of the log are the output of this attempt. `endings`:
    task -> how it ended, for the tasks that have ended in the round of this attempt.
    """
    try:
        with open(os.path.join(task_dir, LOG), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - min(TAIL_BYTES, output_bytes)))
            silent = [
                task for task in find_tasks_without_heartbeat(stream.read()) if task != own_task
            ]
    except OSError:
        return None
    done = [task for task in silent if task in endings and endings[task]["outcome"] == "succeeded"]
    if done:
        ended = time.strftime("%H:%M:%S UTC", time.gmtime(endings[done[0]]["time"]))
        return (
            "%s ended with exit code 0 at %s, and %s still waited for it: give all workers the "
            "same number of steps, and let all of them call evaluate and save"
            % (done[0], ended, own_task)
        )
    return "TensorFlow heard nothing more of %s" % ", ".join(silent) if silent else None


def find_tasks_without_heartbeat(output: bytes) -> List[str]:
    """Return the names of the tasks in TensorFlow's last message that tasks have stopped sending
    heartbeats."""
    messages = _UNHEALTHY.findall(output)
    tasks = _TASK.findall(messages[-1]) if messages else []
    return sorted({"%s:%d" % (job.decode("ascii"), int(index)) for job, index in tasks})
