"""Make an agent execute a verb (a request) and die before it answers.

So the verb takes effect, but the control machine gets no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from tfdeploy.agent.serve import server

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
    """Let the agent of `host` execute the next call of `verb`, and then die before it answers. This
    happens only once.
    """
    on_host(operator.lab, host, f"touch /tmp/die-after-{verb}")
    try:
        with tampered_agent(operator.lab, host, {server: DIES}):
            yield
        assert on_host(operator.lab, host, f"ls /tmp/die-after-{verb} 2>/dev/null || true") == "", (
            "it was asked"
        )
    finally:
        on_host(operator.lab, host, "rm -f /tmp/die-after-*")
