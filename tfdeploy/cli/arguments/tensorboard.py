"""Declare the flags of `tfdeploy tensorboard`."""

from __future__ import annotations

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import port


class Flags(OneRunFlags):
    description = (
        "Start TensorBoard on the host of the chief (without a chief: of worker:0), and print the "
        "address for a browser on this machine. Ctrl-C ends TensorBoard."
    )

    host: str | None = option(
        "--host",
        metavar="HOST",
        help="start TensorBoard on another host of the run: a name, or a pattern that matches "
        "one host",
    )
    port: int | None = option(
        "--port",
        type=port,
        metavar="N",
        help="the port on this machine (default: 6006, or any free port)",
    )
    open: bool = switch("--open", help="open TensorBoard in the browser")
