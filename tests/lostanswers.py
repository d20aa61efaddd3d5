"""An agent that does what it is asked and dies before it answers: what a lost reply looks like from the control machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from commandline import Tfdeploy
from hostside import on_host

DIES = """
import os as _os
_find = find_verb
def find_verb(name):
    verb = _find(name)
    def then_dies(call):
        value = verb(call)
        try:
            _os.unlink("/tmp/die-after-%s" % name)
        except OSError:
            return value
        _os._exit(9)
    return then_dies
"""


@contextmanager
def agent_that_dies_after(operator: Tfdeploy, host: str, verb: str) -> Iterator[None]:
    """On that host the agent does what the verb says, once, and dies before it answers."""
    operator.run("runs", exit_code=0)  # the agent lies there
    modules = "~/tfdeploy/.agent/*/tfdeploy/agent/verbs.py"
    on_host(operator.lab, host, f"for each in {modules}; do cp -p $each $each.whole; cat >> $each <<'EOF'\n{DIES}\nEOF\ndone")
    on_host(operator.lab, host, f"touch /tmp/die-after-{verb}")
    try:
        yield
        assert on_host(operator.lab, host, f"ls /tmp/die-after-{verb} 2>/dev/null || true") == "", "it was asked"
    finally:
        on_host(operator.lab, host, f"rm -f /tmp/die-after-*; for each in {modules}; do mv $each.whole $each; done")
