"""Test connections that break after a random byte, and answers that are lost. Either one complete
set of processes runs, or no process does, and nothing starts twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.faults.brittle_wire import brittle_wire
from support.faults.lines import variations
from support.faults.lost_answers import agent_that_dies_after
from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
CUTS = 6
# If no client can reach a host, the host itself ends the processes of an uncommitted run within a
# minute.
ROLLED_BACK_S = 75.0


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def one_or_none(operator: Tfdeploy, run: str, job: str, code: int) -> None:
    """Check what the launch has left.

    If the exit code of the launch is 0, exactly one process must be left on each host; then stop
    the run. If the exit code is not 0, nothing may be left.
    """
    if code == 0:
        assert [len(operator.marked(host, run)) for host in operator.lab.hosts] == [1] * len(
            operator.lab.hosts
        )
        operator.run("stop", run, "--now", exit_code=0)
        assert_nothing_left(operator, run, job)
    else:
        # The sync succeeds only if no lock is held.
        operator.run("sync", exit_code=0)
        assert_nothing_left(operator, run, job, within_s=ROLLED_BACK_S)


@pytest.mark.fault("16 the connection dies at six random bytes of a launch")
def test_a_connection_that_dies_at_any_byte_of_a_launch(
    operator: Tfdeploy, record_property: Callable[..., None]
) -> None:
    write_job(operator, "brittle", "quick.py", "--steps=100000")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with brittle_wire(operator, "n3") as wire:
        wire.count()
        operator.run("launch", "--detach", "--name", "brittle-whole", exit_code=0)
        length = wire.count()
        one_or_none(operator, "brittle-whole", "brittle", 0)
        for number in range(CUTS):
            at = chance.randrange(length * number // CUTS, length * (number + 1) // CUTS)
            # This file changes each time, so that each launch has something to send.
            (operator.cwd / "more").write_text(str(number))
            wire.cut_after(at)
            done = operator.run("launch", "--detach", "--name", f"brittle-{number}")
            wire.cut_after(1 << 60)
            said = (
                f"cut after {at} of {length} bytes (seed {seed}): exit "
                f"{done.returncode}\n{done.stderr}"
            )
            assert done.returncode in (0, 4), said
            assert "Traceback" not in done.stderr, said
            assert done.returncode == 0 or ("n3" in done.stderr and "next: " in done.stderr), said
            one_or_none(operator, f"brittle-{number}", "brittle", done.returncode)


@pytest.mark.fault("28 a lost reply to each verb of launch and stop")
@pytest.mark.parametrize(
    "verb", variations(["run.start", "run.commit", "run.prepare", "lock", "release.begin"], core=2)
)
def test_an_answer_that_is_lost_starts_nothing_twice(operator: Tfdeploy, verb: str) -> None:
    job, run = "unheard", "unheard-" + verb.replace(".", "-")
    write_job(operator, job, "quick.py", "--steps=100000")
    (operator.cwd / "new").write_text(verb)
    with agent_that_dies_after(operator, "n2", verb):
        done = operator.run("launch", "--detach", "--name", run)
        assert done.returncode in (0, 4) and "Traceback" not in done.stderr, done.stderr
        if verb.startswith("run."):
            assert done.returncode == 0, done.stderr
        one_or_none(operator, run, job, done.returncode)


@pytest.mark.long
@pytest.mark.fault("16 the connection dies while a stop is carried out")
def test_a_stop_whose_answer_is_lost_has_stopped(operator: Tfdeploy) -> None:
    write_job(operator, "unsaid", "quick.py", "--steps=100000")
    operator.run("launch", "--detach", "--name", "unsaid-1", exit_code=0)
    with agent_that_dies_after(operator, "n2", "run.stop"):
        # The answer is lost, so the client sends the request again.
        operator.run("stop", "unsaid-1", "--now", exit_code=0)
        assert_nothing_left(operator, "unsaid-1", "unsaid")
    operator.run("stop", "unsaid-1", "--now", exit_code=0)
    assert operator.state("unsaid-1") == "stopped"
