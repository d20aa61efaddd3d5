"""Run the agent's command line: `serve` for one SSH session, `bound` to it, `minder` for one run
and `sample` beside it, `supervise` for one task.

The root `__main__.py` of the agent's folder calls `main`. Each word loads only what it needs.
"""

from __future__ import annotations

import importlib
import os
import sys

from tfdeploy.agent import AGENT_DIR
from tfdeploy.agent.annotations import List
from tfdeploy.agent.bytecode import mend_truncated

MODULES = {
    "serve": "serve.server",
    "bound": "serve.bound",
    "minder": "minder.minder",
    "sample": "sampling.sampler",
    "supervise": "supervise.supervisor",
}


def main(argv: List[str]) -> int:
    """Run `argv[0]` with the rest as its arguments, and end the process: its threads may be left as
    they are."""
    if not argv or argv[0] not in MODULES:
        sys.stderr.write("usage: (%s) ...\n" % "|".join(MODULES))
        return 2
    # names of files are bytes to us: an old locale must not change them
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", "-S", "-E", AGENT_DIR, *argv])
    mend_truncated()  # the modules imported above are too short to be truncated
    from tfdeploy.agent.ownership import NotOurs, explain

    try:
        code = importlib.import_module("tfdeploy.agent." + MODULES[argv[0]]).main(argv[1:])
    except NotOurs as error:
        what, advice, details = explain(error)
        sys.stderr.write("%s: %s %s\n" % (what, advice, " ".join(map(str, details.values()))))
        code = 3
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(int(code))  # the interpreter's own exit would take longer than many a verb
