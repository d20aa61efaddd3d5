"""Run `tfdeploy completion`: print the script with which a shell completes command lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.completion import SHELLS, Flags, Shell
from tfdeploy.cli.completion.script import make_script
from tfdeploy.cli.output import print_json
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import CompletionAnswer


def run(flags: Flags) -> int:
    shell = flags.shell or _find_own_shell()
    script = make_script(shell)
    if flags.json:
        answer: CompletionAnswer = {"shell": shell, "script": script}
        print_json(answer)
    else:
        print(script, end="")
    return 0


def _find_own_shell() -> Shell:
    """Return the shell that $SHELL names. Raises UsageError if it is none of SHELLS."""
    path = os.environ.get("SHELL", "")
    for shell in SHELLS:
        if shell == os.path.basename(path):
            return shell
    raise UsageError(
        f"$SHELL is {path!r}, for which there is no script",
        where="tfdeploy completion",
        next=f"`tfdeploy completion bash`, or with another of: {', '.join(SHELLS)}",
    )
