"""Launch runs in which one host is slow at one random point.

    python benchmarks/faults/slow.py --launches 500 --scale 0.05    delays of 0 to 6 s, and all
                                                                    times in proportion
    python benchmarks/faults/slow.py --launches 20                  delays of 0 to 120 s

If a launch exits with code 0, the run must be up on all hosts. Otherwise it must be up on no host.
The agent of the slow host waits before it executes a request, before it answers a request, or
before it starts the minder of a new run (the process that looks after the run on the host).
"""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from misfortune import Tfdeploy, figure, operators, options
from slots import GRACE_S, Slots

from support.lab.hosts import on_host  # isort: skip

JOB = "slow"
AT_ONCE = 4
LONGEST_S, WAITS_S, SLACK_S = 120.0, 60.0, 30.0
VERBS = (
    "lock",
    "probe",
    "release.state",
    "run.prepare",
    "run.links",
    "ping",
    "run.start",
    "run.status",
    "run.renew",
    "run.commit",
)
POINTS = [
    *((when, verb) for verb in VERBS for when in ("before", "after")),
    ("within", "run.prepare"),
]
SLOW = """
import json as _json, time as _time
_find = find_verb
def find_verb(name):
    verb = _find(name)
    def slowly(call):
        try:
            workdir = call.context.workdir
            with open(workdir + "/../slow-" + workdir.rpartition("/")[2]) as said:
                when, which, seconds = _json.load(said)
        except OSError:
            return verb(call)
        if which != name:
            return verb(call)
        if when == "within":
            from tfdeploy.agent.serve.run import prepare as run_prepare
            start = run_prepare.start_minder
            def later(*words):
                run_prepare.start_minder = start
                _time.sleep(seconds)
                return start(*words)
            run_prepare.start_minder = later
        _time.sleep(seconds if when == "before" else 0)
        value = verb(call)
        _time.sleep(seconds if when == "after" else 0)
        return value
    return slowly
"""


def program(scale: float) -> str:
    """Return a program that runs tfdeploy with slow agents, and with all times of a launch
    multiplied by `scale`."""
    return f"""import sys
from tfdeploy.agent.record import replace
from tfdeploy.cli.main import main
from tfdeploy.operations import launch
from tfdeploy.operations.launching import renewal, rollback
from tfdeploy.planning import host_parts
from tfdeploy.transport.agent import archive
scale = {scale}
members = archive._read_members
def slow(package):
    for name, text in members(package):
        if name == "tfdeploy/agent/serve/server.py":
            text += {SLOW.encode()!r}
        if name == "tfdeploy/agent/mesh/mesh.py":
            text = text.replace(
                b"NO_MINDER_AFTER_S = 6.0", b"NO_MINDER_AFTER_S = %r" % (6.0 * scale)
            )
        yield name, text
archive._read_members = slow
whole = host_parts._host_part
host_parts._host_part = lambda *plan: replace(
    whole(*plan), start_within_s={WAITS_S} * scale, commit_within_s={WAITS_S} * scale
)
renewal.EVERY_S *= scale
call = launch.call_all
def call_all(*words, timeout_s=60.0, **more):
    return call(*words, timeout_s=max(5.0, timeout_s * scale), **more)
launch.call_all = rollback.call_all = call_all
sys.exit(main())
"""


class Field(Slots):
    """Launches several operators' runs, each with one slow host."""

    def __init__(self, first: Tfdeploy, slots: int, scale: float, seed: int) -> None:
        super().__init__(first, JOB, slots, program(scale))
        self.scale, self.chance, self.number = scale, random.Random(seed), 0
        self.up = self.failed = self.halves = self.left = 0

    def launch(self) -> None:
        with self.lock:
            slot = self.free.pop()
            self.number += 1
            run, host, (when, verb) = (
                f"{JOB}-{self.number}",
                self.chance.choice(self.lab.hosts),
                self.chance.choice(POINTS),
            )
            seconds = self.chance.uniform(0, LONGEST_S) * self.scale
        words = json.dumps([when, verb, seconds])
        on_host(self.lab, host, f"echo '{words}' > ~/slow-k{slot}")
        done = self.operators[slot].run("launch", "--detach", "--name", run, timeout_s=3600)
        self._judge(
            run, slot, done.returncode, f"{host} {seconds:.1f} s {when} {verb}", done.stderr
        )
        on_host(self.lab, host, f"rm -f ~/slow-k{slot}")
        self.operators[slot].run("stop", run, "--now")
        with self.lock:
            self.free.append(slot)

    def _judge(self, run: str, slot: int, code: int, how: str, message: str) -> None:
        """Check and count the result of one launch. After exit code 0, every host must run its
        task. After any other exit code, no task may run once the hosts no longer wait for the
        launch."""
        give_up = time.monotonic() + WAITS_S * self.scale + SLACK_S + GRACE_S
        running = self._running(run, slot)
        while code and running and time.monotonic() < give_up:
            time.sleep(1.0)
            running = self._running(run, slot)
        half = code == 0 and len(running) < len(self.lab.hosts)
        with self.lock:
            self.up += code == 0 and not half
            self.failed += code != 0
            self.halves += half
            self.left += bool(code and running)
        if half or (code and running) or "Traceback" in message:
            print(
                f"{run} ({how}): exit {code}, runs on {running}\n{message[-1500:]}",
                file=sys.stderr,
                flush=True,
            )
        if code == 2:
            raise SystemExit(message)

    def _running(self, run: str, slot: int) -> list[str]:
        return [
            host for host, about in self.list_remains({run: slot})[run].items() if about["tasks"]
        ]


def main() -> int:
    args = options(__doc__, launches=500)
    with operators(3) as (first,), ThreadPoolExecutor(AT_ONCE) as pool:
        field = Field(first, AT_ONCE, args.scale, args.seed)
        going = [pool.submit(field.launch) for _ in range(args.launches)]
        for number, each in enumerate(going, 1):
            each.result()
            if number % 10 == 0:
                print(
                    f"{number}: {field.up} up, {field.failed} failed, {field.halves} halves",
                    file=sys.stderr,
                    flush=True,
                )
    figure(
        f"launches with one host slower by 0 to {LONGEST_S * args.scale:g} s",
        field.up + field.failed + field.halves,
    )
    figure("of them came up whole", field.up)
    figure("failed, and nothing ran within the time that hosts wait", field.failed - field.left)
    figure("exit 0 with a host missing", field.halves)
    figure("failed, and something ran on", field.left)
    return int(bool(field.halves or field.left))


if __name__ == "__main__":
    sys.exit(main())
