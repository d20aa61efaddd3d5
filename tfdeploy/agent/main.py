"""Run the agent's command line. Its commands are `serve` for one SSH session, `bound` for a program
that ends with its session, `minder` and `sample` for one run, and `supervise` for one task.

The root `__main__.py` of the agent's folder calls `main`. Each command loads only the modules it
needs.
"""

from __future__ import annotations

import importlib
import os
import sys

from tfdeploy.agent import AGENT_DIR
from tfdeploy.agent.annotations import List
from tfdeploy.agent.bytecode import recompile_truncated_bytecode

MODULES = {
    "serve": "serve.server",
    "bound": "serve.bound",
    "minder": "minder.minder",
    "sample": "sampling.sampler",
    "supervise": "supervise.supervisor",
}


def main(argv: List[str]) -> int:
    """Run the command `argv[0]` with the other arguments. Then end the process, even if threads
    still run. Return 2 if the command is unknown."""
    if not argv or argv[0] not in MODULES:
        sys.stderr.write("usage: (%s) ...\n" % "|".join(MODULES))
        return 2
    # The agent treats file names as bytes. If Python used the encoding of an old locale, it would
    # change some of these names. So Python is started again with UTF-8.
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", "-S", "-E", AGENT_DIR, *argv])
    # Modules that are imported from here on may have truncated bytecode. The bytecode of the
    # modules above cannot be truncated, because it is shorter than a disk block.
    recompile_truncated_bytecode()
    from tfdeploy.agent.ownership import UntrustedPath, explain

    try:
        code = importlib.import_module("tfdeploy.agent." + MODULES[argv[0]]).main(argv[1:])
    except UntrustedPath as error:
        problem, advice, details = explain(error)
        sys.stderr.write("%s: %s %s\n" % (problem, advice, " ".join(map(str, details.values()))))
        code = 3
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # os._exit ends the process at once. A normal exit of the interpreter would take longer than
        # the work of many verbs (the commands of a session).
        os._exit(int(code))
