"""Declare the flags of `tfdeploy init`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument, option
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.model.choices import MODES

INVENTORY = "inventories/hosts.yaml"


class Flags(CommonFlags):
    description = f"Write tfdeploy.yaml and {INVENTORY}, with every key explained."
    no_selection_reason = "the verb contacts no host"

    folder: str = argument(
        "DIR",
        nargs="?",
        default=".",
        help="write the files to this folder (default: the current one)",
    )
    hosts: str | None = option(
        "--hosts",
        metavar="LIST",
        help="names like [user@]host[:port], separated by commas; or a range gpu[01-08]; or an "
        "inventory file. If no roles are given, the first host is ps in modes with a ps, and all "
        "other hosts are workers",
    )
    mode: str | None = option(
        "--mode",
        choices=MODES,
        help="how the tasks train together (default: the mode that the program's code shows)",
    )
    command: str | None = option(
        "--command",
        metavar="LINE",
        help="the command of the program (default: python and the program in the folder)",
    )
