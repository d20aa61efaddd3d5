"""What `tfdeploy tensorboard` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import port


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "Starts TensorBoard on the host of the run's deciding task and prints where it is seen "
        "here. Ctrl-C ends it."
    )

    host: str | None = option(
        "--host",
        metavar="HOST",
        help="another host of the run, as a name or a pattern that fits one",
    )
    port: int | None = option(
        "--port", type=port, metavar="N", help="the port here (default: 6006, or any that is free)"
    )
    open: bool = switch("--open", help="open it in the browser")
