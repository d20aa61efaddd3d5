"""How an operator enters a host: the login shell there, and the reason why not."""

from __future__ import annotations

from contextlib import AbstractContextManager

from support.lab.commandline import Tfdeploy
from support.lab.hosts import changed_host
from support.stopwatch import Stopwatch
from tfdeploy.lab import Lab

SET_SHELL = "sed -i 's,^\\(lab:.*:\\)[^:]*$,\\1{shell},' /etc/passwd"
LAB_S = 30.0  # of starting an interpreter on a busy machine


def login_shell(lab: Lab, host: str, shell: str) -> AbstractContextManager[None]:
    return changed_host(
        lab, host, SET_SHELL.format(shell=shell), SET_SHELL.format(shell="/bin/bash")
    )


def reason(operator: Tfdeploy, *, code: int = 4) -> str:
    """Why n1 cannot be entered; at once, and without a question."""
    watch = Stopwatch()
    done = operator.run("exec", "--limit", "n1", "--", "true", exit_code=code)
    assert watch.seconds < LAB_S
    assert "assword" not in done.stderr and "Traceback" not in done.stderr
    return done.stderr
