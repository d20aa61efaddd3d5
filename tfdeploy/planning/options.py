"""The operator's options beside inventory and job file, and facts of the control machine's disk.
Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Defaults are those of a plain `tfdeploy launch`."""

    ps: int | None = None  # --ps N
    workers: int | None = None  # --workers N
    # --ignore-keep: the deciding task may start without the newest checkpoints
    ignore_keep: bool = False
    fresh: bool = False  # --fresh: training starts from zero, and what lies in `keep` is set aside
    # --allow-public: addresses of the public internet may stand in the cluster
    allow_public: bool = False
    allow_open: bool = False  # --allow-open: `protect: auto` may leave the ports of a host open
    # variables in the caller's environment that the plan sets by itself: TF_CONFIG
    preset: tuple[str, ...] = ()
    sync: bool = True  # False: --no-sync, so that no host needs rsync
    # what every host needs at least: the code, and data that it does not have yet
    needed_bytes: int = 0
    # every path of the release; empty: not known, and nothing is refused for it
    files: frozenset[str] = frozenset()
    file_data: frozenset[str] = frozenset()  # the data sets whose source is one file
