"""How this user starts nft, if at all: itself, or by a sudo that asks for no password.

Whether it can make a table is asked of nft and the kernel with the real text: `nft -c` changes
nothing. nft must read commands from its input (`-i`), so that it lives and owns the table.
"""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import Dict, List, Optional, Tuple
from tfdeploy.agent.host.installed import Asked, find_program
from tfdeploy.agent.host.network import nft

# nft 1.0.6 crashes (SIGSEGV) if another program removes a table while it reads all of them.
_TRIES_AFTER_CRASH = 5
_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")  # often not on the PATH of ordinary users
_ERROR = re.compile(r"Error: ([^\n]{1,300})")
_TRIED = nft.table(
    nft.Closed("tfdeploy_check", 1, (1,), ("127.0.0.1", "::1"), (("127.0.0.1", 1), ("::1", 1)))
)


def environment() -> Dict[str, str]:
    """nft writes a history of its input below HOME."""
    return dict(os.environ, HOME="/dev/null", LC_ALL="C", TERM="dumb")


def ways() -> List[List[str]]:
    """The command lines by which nft may be started here, the plain one first."""
    program = next(
        (path for path in map(find_program, ("nft", *(at + "/nft" for at in _FOLDERS))) if path),
        None,
    )
    if program is None:
        return []
    sudo = find_program("sudo") if os.geteuid() != 0 else None
    return [[program]] + ([[sudo, "-n", program]] if sudo else [])


def start() -> List[Tuple[List[str], Asked]]:
    """Asks each way whether it can make a table."""
    return [(way, _ask(way)) for way in ways()]


def _ask(way: List[str]) -> Asked:
    return Asked(way + ["-c", "-i"], input_text=_TRIED, env=environment())


def read(asked: List[Tuple[List[str], Asked]]) -> Tuple[Optional[List[str]], str]:
    """(the command line that starts nft, "") or (None, why there is none)."""
    if not asked:
        return None, "nft is not installed"
    refused = []
    for way, one in asked:
        code, out, errors = one.answer()
        for _ in range(_TRIES_AFTER_CRASH):
            if code is not None and code < 0:
                code, out, errors = _ask(way).answer()
        ended = (
            "killed by signal %d" % -code
            if code is not None and code < 0
            else "exit code %s" % code
        )
        wrong = error_in(out + "\n" + errors) or (
            "" if code == 0 else (errors or out or ended).splitlines()[-1]
        )
        if not wrong:
            return way, ""
        refused.append(
            "%s: %.200s" % ("sudo" if len(way) > 1 else "nft", wrong.replace("sudo: ", "", 1))
        )
    if os.geteuid() != 0 and len(refused) == 1:
        refused.append("there is no sudo")
    return None, "; ".join(refused)


def error_in(output: str) -> str:
    """The first error that nft has printed; "": none."""
    match = _ERROR.search(output)
    return match.group(1).strip() if match else ""
