"""Checks that no argument and no environment variable of a task is longer than Linux allows.

Linux refuses to start a program that has a longer argument or variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.plan import TaskPlan

# Linux's limit MAX_ARG_STRLEN (32 pages of 4 KiB) minus the NUL byte that ends each argument.
MOST_BYTES = (128 << 10) - 1
# The runtime copies the variable TF_CONFIG to TFDEPLOY_TASK_TF_CONFIG. The copy must fit too, so
# the check adds the length of this prefix.
_RENAMED_BYTES = len("TFDEPLOY_TASK_")
_SHOWN_CHARS = 40


def check_argument_lengths(job: Job, tasks: Iterable[TaskPlan]) -> Iterator[TaskPlan]:
    """Check the arguments and variables of each task, and yield the task.

    Raises Refused if an argument or variable is too long. The tasks are yielded and not put into a
    list, because there may be thousands, and each contains the addresses of the whole cluster.
    """
    for task in tasks:
        for number, word in enumerate(task.argv, 1):
            _check_length(job, f"word {number} of the command of {task.task}", word, 0)
        for name, value in task.env.items():
            _check_length(job, f"the environment of {task.task}", f"{name}={value}", _RENAMED_BYTES)
        yield task


def _check_length(job: Job, what: str, word: str, extra_bytes: int) -> None:
    if len(word) * 4 + extra_bytes <= MOST_BYTES:
        return
    length = len(word.encode("utf-8", "surrogateescape"))
    if length + extra_bytes > MOST_BYTES:
        raise Refused(
            f"{what} ({word[:_SHOWN_CHARS]}...) has {length:,} bytes, but Linux allows at most "
            f"{MOST_BYTES - extra_bytes:,} in one argument or variable",
            where=job.source or None,
            next="write the long text into a file of the code, and let the program read that file",
        )
