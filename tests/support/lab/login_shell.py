"""Change the login shell of a host's user. Check how tfdeploy fails if it cannot connect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from support.lab.commandline import Tfdeploy
from support.lab.hosts import host_changed_by_scripts
from support.stopwatch import Stopwatch
from tfdeploy.lab import Lab

SET_SHELL = "sed -i 's,^\\(lab:.*:\\)[^:]*$,\\1{shell},' /etc/passwd"
# A limit for commands of tfdeploy. On a busy machine, the interpreter alone takes long to start.
LAB_S = 30.0


def login_shell(lab: Lab, host: str, shell: str) -> AbstractContextManager[None]:
    return host_changed_by_scripts(
        lab, host, SET_SHELL.format(shell=shell), SET_SHELL.format(shell="/bin/bash")
    )


def find_refusal_reason(operator: Tfdeploy, *, code: int = 4) -> str:
    """Check that `tfdeploy exec` on n1 fails within LAB_S seconds and asks for no password. Return
    its error output, which names the reason.
    """
    watch = Stopwatch()
    done = operator.run("exec", "--limit", "n1", "--", "true", exit_code=code)
    assert watch.seconds < LAB_S
    assert "assword" not in done.stderr and "Traceback" not in done.stderr
    return done.stderr
