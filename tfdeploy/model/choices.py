"""Define the values that the job file accepts for some keys, such as the names of the modes.

`--help` of a verb imports this module, so the module itself imports little.
"""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["async", "sync", "mirrored", "coordinator", "ingraph", "local", "plain"]
MODES: tuple[Mode, ...] = get_args(Mode)
Flags = Literal["auto", "classic", "none"]
Compat = Literal["auto", "v1", "none"]
Written = Literal["planned", "program"]
StallAction = Literal["report", "restart"]
STALL_ACTIONS: tuple[StallAction, ...] = ("report", "restart")
Split = Literal["none", "worker"]
SPLITS: tuple[Split, ...] = get_args(Split)
Others = Literal["none", "all"]
OTHERS: tuple[Others, ...] = get_args(Others)
Via = Literal["auto", "rsync"]
VIAS: tuple[Via, ...] = get_args(Via)
