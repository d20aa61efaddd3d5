"""Holds the operator's options besides inventory and job file, and facts about the local disk.

Values only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a launch. The defaults are those of a plain `tfdeploy launch`."""

    ps: int | None = None  # --ps N
    workers: int | None = None  # --workers N
    # --ignore-keep: the deciding task may start without the newest checkpoints
    ignore_keep: bool = False
    fresh: bool = False  # --fresh: training starts from zero, and content of `keep` is set aside
    # --allow-public: the cluster may contain public addresses.
    allow_public: bool = False
    allow_open: bool = False  # --allow-open: `protect: auto` may leave the ports of a host open
    # Variables in the caller's environment that the plan sets itself, such as TF_CONFIG.
    preset: tuple[str, ...] = ()
    sync: bool = True  # False: --no-sync, so no host needs rsync
    # Bytes that every host needs at least: the code, and data that it does not have yet.
    needed_bytes: int = 0
    # Every path of the release; empty: not known, so no missing file is refused.
    files: frozenset[str] = frozenset()
    file_data: frozenset[str] = frozenset()  # the data sets whose source is one file
