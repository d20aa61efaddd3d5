"""Cut random hosts off the network while a client watches the run.

    python benchmarks/faults/cuts.py --cuts 200                 cuts of 1 to 60 s: nearly two hours
    python benchmarks/faults/cuts.py --cuts 200 --scale 0.1     cuts of 0.1 to 6 s

Repeatedly, one of the hosts n2 to n4, which run the workers, is cut off from all other hosts and
then reconnected. The client that watches is `launch --wait --events`. The benchmark counts lost
runs and lost or duplicated bytes of logs, and measures the seconds from the reconnection until the
client receives a line from the host.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from misfortune import Events, Tfdeploy, figure, operators, options, spread

from support.waiting import wait_for  # isort: skip
from support.lab.jobs import write_job  # isort: skip

JOB, RUN = "cuts", "cuts-1"
SHORTEST_S, LONGEST_S, PAUSE_S = 1.0, 60.0, 3.0
SEEN_S = 60.0
LOST_S = 15.0  # the watcher must show a host as unreachable within this time
POLL_S = 0.05


def main() -> int:
    args = options(__doc__, cuts=200)
    chance = random.Random(args.seed)
    with operators(4) as (operator,):
        write_job(operator, JOB, "quick.py", "--steps=1000000000", "--pause=0.05")
        events = operator.home / "events"
        watching = operator.start(
            "launch", "--wait", "--name", RUN, "--events", str(events), stdout=subprocess.DEVNULL
        )
        story = Story(events)
        wait_for(lambda: story.count("n4"), SEEN_S, "the run prints")
        back, shown, long_enough, lost = [], [], 0, 0
        for number in range(args.cuts):
            host = chance.choice(operator.lab.hosts[1:])
            length = chance.uniform(SHORTEST_S, LONGEST_S) * args.scale
            time.sleep(chance.uniform(0, PAUSE_S) * args.scale)
            seen = cut(operator, story, host, length)
            if seen is not None:
                shown.append(seen)
            long_enough += length > LOST_S
            back.append(heal(operator, story, host))
            lost += watching.poll() is not None
            print(
                f"cut {number + 1}: {host} for {length:.1f} s, back after {back[-1]:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        state = operator.state(RUN)
        operator.run("stop", RUN, exit_code=0)
        watching.wait(60)
        wrong = compare(operator, story)
    figure("cuts", args.cuts)
    figure("runs lost", lost + (state != "running"))
    figure("log bytes lost or doubled", wrong)
    figure("lines again after the heal", spread(back))
    figure(
        f"a host shown as unreachable ({long_enough} cuts were longer than {LOST_S:g} s)",
        spread(shown),
    )
    return int(bool(lost or wrong or state != "running"))


class Story:
    """What the watcher's events file contains so far: the lines of each host, and the changes of
    the hosts' states."""

    def __init__(self, path: Path) -> None:
        self._events = Events(path)
        self.lines: dict[str, list[tuple[int, str, str]]] = {}  # host -> (offset, task, line)
        self.news: list[tuple[str, str]] = []  # (host, its new state)

    def read(self) -> None:
        for event in self._events.fresh():
            if event["kind"] == "line":
                row = (event["data"]["offset"], event["task"], event["data"]["line"])
                self.lines.setdefault(event["host"], []).append(row)
            elif event["kind"] == "host":
                self.news.append((event["host"], str(event["data"].get("state", event["data"]))))

    def count(self, host: str) -> int:
        self.read()
        return len(self.lines.get(host, ()))


def cut(operator: Tfdeploy, story: Story, host: str, length: float) -> float | None:
    """Cut the host off for `length` seconds.

    Return the seconds until the watcher showed the host as unreachable, or None if the cut ended
    before that.
    """
    before = len(story.news)
    began = time.monotonic()
    operator.lab.cut(host)
    shown = None
    while time.monotonic() - began < length:
        story.read()
        if shown is None and any(
            each == host and "unreachable" in what for each, what in story.news[before:]
        ):
            shown = time.monotonic() - began
        time.sleep(POLL_S)
    return shown


def heal(operator: Tfdeploy, story: Story, host: str) -> float:
    """Reconnect the host. Return the seconds until a new line from it is seen."""
    before = story.count(host)
    operator.lab.heal(host)
    began = time.monotonic()
    again: Callable[[], bool] = lambda: story.count(host) > before  # noqa: E731
    wait_for(again, SEEN_S, f"lines of {host} again")
    return time.monotonic() - began


def compare(operator: Tfdeploy, story: Story) -> int:
    """Compare the hosts' logs with the lines that the watcher wrote. Return the number of bytes
    that differ, plus the number of steps that are out of order."""
    story.read()
    wrong = 0
    for host, task in (("n2", "worker:0"), ("n3", "worker:1"), ("n4", "worker:2")):
        followed = "".join(f"{line}\n" for _, _, line in story.lines[host])
        stored = operator.run("logs", RUN, "--task", task, "--output", "raw", exit_code=0).stdout
        wrong += abs(len(stored) - len(followed)) or sum(
            one != two for one, two in zip(stored, followed, strict=True)
        )
        steps = [int(step) for step in re.findall(r"^step (\d+)", stored, re.MULTILINE)]
        wrong += sum(one != two for one, two in zip(steps, range(1, len(steps) + 1), strict=True))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
