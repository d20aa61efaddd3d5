"""Kill launches with SIGKILL at random moments between the locking of the hosts and the commit of
the run.

    python benchmarks/faults/kills.py --launches 1000
    python benchmarks/faults/kills.py --launches 50 --scale 0.1     hosts wait 6 s for a launch,
                                                                    not a minute

It counts what is left on the hosts 90 s later. In this time no client connects to the workdirs of
the killed launch, because the session of a client removes what an interrupted launch has left. The
next launches use other workdirs: many operators share one lab, each with separate workdirs. If the
commit of a run reached a host before the kill, the run may be alive, but then on all hosts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from misfortune import Events, Tfdeploy, figure, operators, options
from slots import GRACE_S, Slots

JOB = "kills"
STEPS = ("probe", "plan", "sync", "prepare", "start", "commit")
AT_ONCE = 4
WAITS_S, SLACK_S = 60.0, 30.0


def hasty(wait_s: float) -> str:
    """Return a Python program that runs tfdeploy with a shorter time limit: during a launch, the
    hosts wait only `wait_s` seconds for the next step."""
    return f"""import sys
from tfdeploy.agent.record import replace
from tfdeploy.cli.main import main
from tfdeploy.planning import host_parts
whole = host_parts._host_part
host_parts._host_part = lambda *plan: replace(
    whole(*plan), start_within_s={wait_s}, commit_within_s={wait_s}
)
sys.exit(main())
"""


@dataclass
class Killed:
    run: str
    slot: int
    at: float  # when the launch was killed, in monotonic seconds
    step: str  # the last step that the launch reported, and the step's state (begin or done)


Step = tuple[str, str, float]  # name of the step, its state (begin or done), UTC seconds


def _steps(events: Events) -> list[Step]:
    """Return the steps that were reported since the last call."""
    return [
        (each["data"]["step"], each["data"]["state"], each["time"])
        for each in events.fresh()
        if each["kind"] == "step"
    ]


class Field(Slots):
    """Starts a launch for each of many operators, and kills each launch at a random moment."""

    def __init__(self, first: Tfdeploy, slots: int, wait_s: float, seed: int) -> None:
        super().__init__(first, JOB, slots, hasty(wait_s))
        self.took_s: dict[str, float] = {}  # step -> moving average of its seconds
        self.chance = random.Random(seed)
        self.number = 0

    def launch_and_kill(self) -> Killed | None:
        """Kill a launch at a random moment of a random step.

        Return None if the launch ended before the kill.
        """
        with self.lock:
            slot = self.free.pop()
            self.number += 1
            run, step, part = (
                f"{JOB}-{self.number}",
                self.chance.choice(STEPS),
                self.chance.random(),
            )
        operator = self.operators[slot]
        path = operator.home / f"{run}.events"
        events = Events(path)
        with (operator.home / "said").open("w") as said:
            process = operator.start(
                "launch", "--detach", "--name", run, "--events", str(path), stdout=said
            )
        steps = self._until(process, events, step)
        deadline = time.monotonic() + part * self.took_s.get(step, 0.3)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        over = process.poll()
        if over is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        operator.running.clear()
        steps += _steps(events)
        path.unlink(missing_ok=True)
        self._learn(steps)
        if over is not None:
            self._too_late(operator, slot, run, over)
            return None
        return Killed(run, slot, time.monotonic(), " ".join(steps[-1][:2]) if steps else "")

    def _until(self, process: subprocess.Popen[str], events: Events, step: str) -> list[Step]:
        seen: list[Step] = []
        while process.poll() is None and not any(each[:2] == (step, "begin") for each in seen):
            seen += _steps(events)
            time.sleep(0.005)
        return seen

    def _learn(self, steps: list[Step]) -> None:
        begun = {name: at for name, state, at in steps if state == "begin"}
        with self.lock:
            for name, state, at in steps:
                if state == "done":
                    self.took_s[name] = 0.5 * self.took_s.get(name, at - begun[name]) + 0.5 * (
                        at - begun[name]
                    )

    def _too_late(self, operator: Tfdeploy, slot: int, run: str, code: int) -> None:
        if code:
            print(
                f"{run} ended by itself with {code}: {(operator.home / 'said').read_text()[-400:]}",
                file=sys.stderr,
            )
        if code == 2:
            raise SystemExit("no launch can be made")
        operator.run("stop", run, "--now")
        with self.lock:
            self.free.append(slot)


class Tally:
    def __init__(self, field: Field) -> None:
        self.field = field
        self.kills = self.whole = self.halves = self.left = 0
        self.at: dict[str, int] = {}

    def judge(self, killed: list[Killed]) -> None:
        for each in killed:
            self.kills += 1
            self.at[each.step] = self.at.get(each.step, 0) + 1
        for run, hosts in self.field.list_remains({each.run: each.slot for each in killed}).items():
            one = next(each for each in killed if each.run == run)
            running = [host for host, about in hosts.items() if about["tasks"]]
            left = {host: about["left"] for host, about in hosts.items() if about["left"]}
            if running and len(running) == len(hosts) and one.step.startswith("commit"):
                self.whole += 1
            elif running:
                self.halves += 1
                print(
                    f"{run} (killed at {one.step}) runs on {running} only",
                    file=sys.stderr,
                    flush=True,
                )
            elif left:
                self.left += 1
                print(
                    f"left of {run} (killed at {one.step}): {json.dumps(left)}",
                    file=sys.stderr,
                    flush=True,
                )
            if running or left:
                self.field.operators[one.slot].run("stop", run, "--now")
            with self.field.lock:
                self.field.free.append(one.slot)


def main() -> int:
    args = options(__doc__, launches=1000, slots=80)
    wait_s = WAITS_S * args.scale
    due_s = wait_s + SLACK_S + GRACE_S
    with operators(3) as (first,), ThreadPoolExecutor(AT_ONCE) as pool:
        field = Field(first, args.slots, wait_s, args.seed)
        tally = Tally(field)
        waiting: list[Killed] = []
        going: list[Any] = []
        while tally.kills < args.launches:
            while (
                len(going) < AT_ONCE
                and field.free
                and tally.kills + len(waiting) + len(going) < args.launches
            ):
                going.append(pool.submit(field.launch_and_kill))
            waiting += [
                killed for each in going if each.done() and (killed := each.result()) is not None
            ]
            going = [each for each in going if not each.done()]
            due = [each for each in waiting if time.monotonic() - each.at >= due_s]
            if len(due) >= min(args.slots // 4, args.launches - tally.kills) or (
                due and not field.free and not going
            ):
                waiting = [each for each in waiting if each not in due]
                tally.judge(due)
                print(
                    f"{tally.kills} kills, {tally.left} with something left, {tally.halves} halves",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(0.02)
    figure("launches killed between lock and commit", tally.kills)
    for step, count in sorted(tally.at.items()):
        figure(f"  after: {step}", count)
    figure("of them whole, because the commit was on its way", tally.whole)
    figure("halves", tally.halves)
    figure(f"with a process, secret, half folder or file left {due_s:g} s later", tally.left)
    return int(bool(tally.halves or tally.left))


if __name__ == "__main__":
    sys.exit(main())
