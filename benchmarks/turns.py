"""Measure whole processes in turns (A B A B), so that other load affects all of them alike.

The measurement does not depend on what the processes do.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND_S = 600.0
_SHOWN_BYTES = 2000


@dataclass(frozen=True)
class Spent:
    """The cost of one process. `cpu_s`: the CPU time of the process and its children on this
    machine. `peak_bytes`: the peak memory of the process itself, measured only if its output goes
    to a pipe."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    output: bytes = b""
    beside: dict[str, float] = field(default_factory=dict)  # more figures of the same run


def spend(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: bytes = b"",
    may_fail: bool = False,
    piped: bool = False,
) -> Spent:
    """Run a process to its end and return its cost.

    Its standard output goes to a file, or, if `piped` is True, to a pipe that is read without
    delay. Raises SystemExit with the output if the process fails, because the cost of a failed
    process means nothing.
    """
    with (
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        words.write(stdin)
        words.seek(0)
        began = time.monotonic()
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=words,
            stdout=subprocess.PIPE if piped else out,
            stderr=err,
        )
        try:
            blocks, peak_bytes = _blocks(process) if piped else ([], 0)
            # The usage includes the children of the process.
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - began
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = b"".join(blocks) if piped else out.read()
        err.seek(0)
        if process.returncode and not may_fail:
            said = (output + err.read())[-_SHOWN_BYTES:].decode(errors="replace")
            raise SystemExit(f"{' '.join(argv)}: exit {process.returncode}\n{said}")
    return Spent(
        seconds=seconds, cpu_s=usage.ru_utime + usage.ru_stime, peak_bytes=peak_bytes, output=output
    )


def _blocks(process: subprocess.Popen[bytes]) -> tuple[list[bytes], int]:
    """Read the process's output to its end. Return the blocks of output and the peak memory of the
    process. The peak that rusage reports is not used, because it includes the size of this program
    at the fork."""
    assert process.stdout is not None
    blocks, peak_kib = [], 0
    with process.stdout as pipe:
        while block := os.read(pipe.fileno(), 1 << 20):
            blocks.append(block)
            match = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            peak_kib = int(match[1]) if match else peak_kib
    return blocks, peak_kib * 1024


def in_turns(rivals: Mapping[str, Callable[[], Spent]], rounds: int) -> dict[str, list[Spent]]:
    """Run each rival once to warm the caches, then all of them in turns, `rounds` times. Return
    {name of the rival: its cost in each round}, without the first run."""
    for run in rivals.values():
        run()
    spent_by_tool: dict[str, list[Spent]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, run in rivals.items():
            spent_by_tool[name].append(run())
    return spent_by_tool


def median(
    runs: Sequence[Spent], what: Callable[[Spent], float] = lambda run: run.seconds
) -> float:
    return statistics.median(what(run) for run in runs)


def ratio(ours: Sequence[Spent], theirs: Sequence[Spent]) -> float:
    """In each round, divide the seconds of `ours` by the seconds of `theirs`. Return the median of
    these ratios.

    A slowdown that affects a whole round does not change the ratio of that round.
    """
    return statistics.median(a.seconds / b.seconds for a, b in zip(ours, theirs, strict=True))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, computed by ranks. If there are fewer than
    six values, it is the whole range of the values."""
    ordered, count = sorted(values), len(values)
    below = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2) - 1) if count > 5 else 0
    return ordered[below], ordered[count - 1 - below]
