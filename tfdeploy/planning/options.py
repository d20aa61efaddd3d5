"""Holds the options of a launch: the values of its flags, and facts about the local files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a launch. The defaults are those of `tfdeploy launch` without flags."""

    ps: int | None = None  # --ps N
    workers: int | None = None  # --workers N
    # --ignore-keep: training may start without the newest checkpoints.
    ignore_keep: bool = False
    fresh: bool = False  # --fresh: training starts from zero, and `keep` folders are renamed
    # --allow-public: the cluster may contain public addresses.
    allow_public: bool = False
    allow_open: bool = False  # --allow-open: `protect: auto` may leave the ports of a host open
    # --force: the program may be written for another mode than the mode of the job.
    any_mode: bool = False
    # Names of variables, such as TF_CONFIG, that the plan sets but that are already set in the
    # user's environment.
    preset: tuple[str, ...] = ()
    sync: bool = True  # False with --no-sync: no files are sent, so hosts do not need rsync
    # How many bytes of disk space every host needs at least, for the code and for data it lacks.
    needed_bytes: int = 0
    # The paths of all files of the code. If there are none, the paths are unknown, and the checks
    # for missing files are skipped.
    files: frozenset[str] = frozenset()
    file_data: frozenset[str] = frozenset()  # the data sets whose source is one file
