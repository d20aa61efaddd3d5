"""Find out how this user can start nft: directly, or through a sudo that asks for no password.

`nft -c` only checks a table and changes nothing, so it shows whether nft and the kernel would let
this user create a table. nft must read its commands from standard input (`-i`), because then it
stays alive and remains the owner of the table.
"""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import Dict, List, Optional, Tuple
from tfdeploy.agent.host.installed import StartedProgram, find_program
from tfdeploy.agent.host.network import nft

# How often nft is started again after a crash. nft 1.0.6 crashes (SIGSEGV) if another program
# removes a table while nft reads all tables.
_TRIES_AFTER_CRASH = 5
# These folders are often missing from an ordinary user's PATH.
_PATHS = ("nft", "/usr/sbin/nft", "/sbin/nft", "/usr/local/sbin/nft")
_ERROR = re.compile(r"Error: ([^\n]{1,300})")
_TRIED = nft.build_table(
    nft.ClosedPorts("tfdeploy_check", 1, (1,), ("127.0.0.1", "::1"), (("127.0.0.1", 1), ("::1", 1)))
)


def nft_environment() -> Dict[str, str]:
    """Return the environment for nft. HOME is /dev/null, because nft would write a history of its
    input to $HOME."""
    return dict(os.environ, HOME="/dev/null", LC_ALL="C", TERM="dumb")


def command_lines() -> List[List[str]]:
    """Return the command lines that may start nft on this host. The first one is without sudo."""
    program = next(filter(None, map(find_program, _PATHS)), None)
    if program is None:
        return []
    sudo = find_program("sudo") if os.geteuid() != 0 else None
    return [[program]] + ([[sudo, "-n", program]] if sudo else [])


def start_checks() -> List[Tuple[List[str], StartedProgram]]:
    """Start one check for each way to run nft (see `command_lines`). The check shows whether nft,
    run in this way, may create a table of firewall rules."""
    return [(command, _start_check(command)) for command in command_lines()]


def _start_check(command: List[str]) -> StartedProgram:
    return StartedProgram(command + ["-c", "-i"], input_text=_TRIED, env=nft_environment())


def find_working_command(
    checks: List[Tuple[List[str], StartedProgram]],
) -> Tuple[Optional[List[str]], str]:
    """Return (the command line that starts nft, ""). If none works, return (None, the reason)."""
    if not checks:
        return None, "nft is not installed"
    refused = []
    for command, check in checks:
        code, out, errors = check.read_output()
        for _ in range(_TRIES_AFTER_CRASH):
            if code is not None and code < 0:
                code, out, errors = _start_check(command).read_output()
        reason = first_error(out + "\n" + errors)
        if not reason and code == 0:
            return command, ""
        if not reason:
            ending = "exit code %s" % code
            if code is not None and code < 0:
                ending = "killed by signal %d" % -code
            reason = (errors or out or ending).splitlines()[-1]
        program = "sudo" if len(command) > 1 else "nft"
        refused.append("%s: %.200s" % (program, reason.replace("sudo: ", "", 1)))
    if os.geteuid() != 0 and len(refused) == 1:
        refused.append("there is no sudo")
    return None, "; ".join(refused)


def first_error(output: str) -> str:
    """Return the first error in nft's output; "" if there is none."""
    match = _ERROR.search(output)
    return match.group(1).strip() if match else ""
