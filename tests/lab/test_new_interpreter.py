"""Test every verb (subcommand) of tfdeploy in a new interpreter, as if a user had started it.

In other tests, tfdeploy is forked from a running process (support/lab/forked_client.py).
"""

from __future__ import annotations

from collections.abc import Callable

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from tfdeploy.cli.verb_table import VERBS
from tfdeploy.lab import Lab

RUN = "interpreter-1"
# {verb: (expected exit code, further arguments...)}
CALLS = {
    "init": (0,),
    "inventory": (0,),
    "trust": (0,),
    "check": (0,),
    "sync": (0,),
    "setup": (2,),
    "launch": (0, "--dry-run"),
    "logs": (0, RUN),
    "status": (0, RUN),
    "stop": (0, RUN),
    "runs": (0,),
    "report": (0, RUN),
    "compare": (2, RUN, RUN),
    "clean": (0, "--dry-run"),
    "audit": (0,),
    "fetch": (0, RUN),
    "tensorboard": (2, "nobody-1"),
    "exec": (0, "--", "echo", "in"),
    "ssh": (0, "n1", "--", "true"),
    "lab": (2, "status"),
    "docs": (0,),
    "completion": (0, "bash"),
}
ALSO_FORKED = ("inventory", "trust", "logs", "status", "exec", "docs")


def test_every_verb_starts_in_a_new_interpreter(
    loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(loopback_lab)
    write_job(operator, "interpreter", "quick.py", "--steps=2", "--pause=0")
    operator.run("launch", "--wait", "--name", RUN, exit_code=0)
    assert CALLS.keys() == VERBS.keys()
    for verb, (code, *args) in CALLS.items():
        operator.cold = True
        new = operator.run(verb, *args, exit_code=code)
        operator.cold = False
        if verb in ALSO_FORKED:
            forked = operator.run(verb, *args, exit_code=code)
            assert (forked.stdout, forked.stderr) == (new.stdout, new.stderr)
