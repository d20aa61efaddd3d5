"""Declare the flags of `tfdeploy completion`."""

from __future__ import annotations

from typing import Literal, get_args

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import CommonFlags

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = get_args(Shell)

_DESCRIPTION = """\
Print the script with which a shell completes verbs, flags, their choices, and the names of hosts,
roles, tasks and runs. The names are those that tfdeploy last read in the folder.

For bash: `tfdeploy completion bash > ~/.tfdeploy.bash`, and the line `. ~/.tfdeploy.bash` in
~/.bashrc.

For zsh: `tfdeploy completion zsh > ~/.tfdeploy.zsh`, and the line `. ~/.tfdeploy.zsh` in ~/.zshrc,
below compinit.

For fish: `tfdeploy completion fish > ~/.config/fish/completions/tfdeploy.fish`.

After an update of tfdeploy, write the script again.
"""


class Flags(CommonFlags):
    description = _DESCRIPTION
    no_selection_reason = "the verb contacts no host"

    shell: Shell | None = argument(
        "SHELL",
        nargs="?",
        choices=SHELLS,
        help=f"{', '.join(SHELLS)} (default: the shell of $SHELL)",
    )
