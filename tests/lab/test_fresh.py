"""Test `launch --fresh`: training starts at step 0, and the earlier checkpoints are kept under
another name, or restored after a failed launch.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host, set_inventory
from support.lab.jobs import write_job
from support.waiting import wait_for
from tfdeploy.lab import Lab


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def saved(operator: Tfdeploy, job: str) -> dict[str, dict[str, str]]:
    """Return {host: {folder of checkpoints: the step saved in it}}."""
    look = f"cd ~/tfdeploy/{job}/keep 2>/dev/null && grep -sH . */step || true"
    words_by_host = {host: on_host(operator.lab, host, look).split() for host in operator.lab.hosts}
    return {
        host: dict(line.split("/step:") for line in lines) for host, lines in words_by_host.items()
    }


def launch(
    operator: Tfdeploy, job: str, run: str, steps: int, *flags: str, exit_code: int = 0
) -> str:
    """Launch a run, and return the step at which worker:0 began. If `exit_code` says that the
    launch must fail, return its error output."""
    more = ("--failat=1", "--unready=ps:0") if exit_code else ()
    command = ("quick.py", f"--steps={steps}", "--save", "--pause=0.01", *more)
    write_job(operator, job, *command, keep=["checkpoints"], ready={"after": "60s"})
    done = operator.run("launch", "--wait", "-q", "--name", run, *flags, exit_code=exit_code)
    return (
        done.stderr
        if exit_code
        else operator.run("logs", run, "--grep", "starting at", exit_code=0).stdout.split()[-1]
    )


def test_training_starts_from_zero_and_goes_on_from_there(operator: Tfdeploy) -> None:
    """`--fresh` also finds checkpoints on a host without a role. They are there because the second
    run uses another host than the first one.
    """
    set_inventory(operator, roles={"ps": ["n1"], "worker": ["n2"]})
    launch(operator, "fresh", "one", 7)
    assert saved(operator, "fresh")["n2"] == {"checkpoints": "7"}
    set_inventory(operator, roles={"ps": ["n1"], "worker": ["n3"]})
    assert "tfdeploy launch --fresh" in operator.run("launch", "--dry-run", exit_code=3).stderr
    shown = operator.run("launch", "--fresh", "--dry-run", "--name", "two", exit_code=0).stdout
    assert (
        "--fresh deletes nothing, but renames these folders to NAME.before-two: "
        "keep/checkpoints (1 file, 2 B) on n2 (docs/" in shown
    )
    assert saved(operator, "fresh")["n2"] == {"checkpoints": "7"}

    assert launch(operator, "fresh", "two", 3, "--fresh") == "0"
    assert saved(operator, "fresh") == {
        "n1": {},
        "n2": {"checkpoints.before-two": "7"},
        "n3": {"checkpoints": "3"},
    }
    set_inventory(operator, roles={"ps": ["n1"], "worker": ["n2", "n3"]})
    # This run's worker is on n3 again, and continues from the checkpoint there.
    assert launch(operator, "fresh", "three", 4, "--workers", "1") == "3"

    page = (Path(__file__).parents[2] / "docs/fetch.md").read_text(encoding="utf-8")
    command = page[page.index("tfdeploy exec -- 'cd ") :].partition("\n\n")[0]
    words = shlex.split(command.replace("JOB", "fresh").replace("RUN", "two"))[1:]
    for _ in range(2):
        operator.run(*words, exit_code=0)
        assert saved(operator, "fresh")["n2"] == {"checkpoints": "7"}
    # This run's worker is on n2. n3 has a role in the inventory, but no task.
    assert launch(operator, "fresh", "four", 8, "--workers", "1") == "7"
    assert launch(operator, "fresh", "five", 2, "--workers", "1", "--fresh") == "0"
    checkpoints = saved(operator, "fresh")
    assert (
        checkpoints["n2"]["checkpoints"],
        checkpoints["n2"]["checkpoints.before-five"],
        checkpoints["n3"].get("checkpoints"),
    ) == (
        "2",
        "8",
        None,
    )
    on_host(
        operator.lab,
        "n3",
        "mkdir -p ~/tfdeploy/fresh/keep/checkpoints; echo 9 > "
        "~/tfdeploy/fresh/keep/checkpoints/step",
    )
    assert launch(operator, "fresh", "six", 3, "--workers", "1", "--fresh") == "0"
    assert saved(operator, "fresh")["n3"]["checkpoints.before-six"] == "9"


def test_a_launch_that_is_rolled_back_puts_them_back(operator: Tfdeploy) -> None:
    set_inventory(operator, roles={"ps": ["n1"], "worker": ["n2"]})
    launch(operator, "fresh-back", "b1", 5)
    assert "worker:0" in launch(operator, "fresh-back", "b2", 9, "--fresh", exit_code=1)
    assert saved(operator, "fresh-back")["n2"] == {"checkpoints": "5"}
    assert launch(operator, "fresh-back", "b3", 6) == "5"


def test_a_killed_launch_is_undone_when_the_run_is_stopped(operator: Tfdeploy) -> None:
    """The stop restores the checkpoints at once. Without it, the hosts would restore them after a
    minute."""
    set_inventory(operator, roles={"ps": ["n1"], "worker": ["n2"]})
    launch(operator, "fresh-kill", "k1", 5)
    command = ("quick.py", "--gate=2", "--save", "--unready=ps:0")
    write_job(operator, "fresh-kill", *command, keep=["checkpoints"], ready={"after": "60s"})
    begun = operator.start("launch", "--fresh", "--detach", "--name", "k2")
    wait_for(
        lambda: (
            saved(operator, "fresh-kill")["n2"]
            == {"checkpoints": "2", "checkpoints.before-k2": "5"}
        ),
        30.0,
        "step 2",
    )
    begun.kill()
    operator.run("stop", "k2", "--now", exit_code=0)
    assert saved(operator, "fresh-kill")["n2"] == {"checkpoints": "5", "checkpoints.undone-k2": "2"}
