"""The job file and the inventory that the command line and the current folder select."""

from __future__ import annotations

import os
import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import config
from tfdeploy.cli.output import say
from tfdeploy.errors import Refused, UsageError
from tfdeploy.machine.ownership import find_exposure
from tfdeploy.model.selection import select

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.config import FoundFile
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job


def load_job(flags: CommonFlags) -> Job:
    """The job file's job. Raises ConfigError, also if there is no job file, and Refused: see
    refuse_files_of_others."""
    return _load_job(flags, config.find_job(flags.job, Path.cwd()))


def job_here(flags: CommonFlags) -> Job | None:
    """The job of the job file, where there is one."""
    found = (
        config.find_job(flags.job, Path.cwd())
        if flags.job is not None
        else config.find_own_job(Path.cwd())
    )
    return _load_job(flags, found) if found else None


def _load_job(flags: CommonFlags, found: FoundFile) -> Job:
    if not found.named and found.path.parent != Path.cwd():
        _say_which(flags, f"job: {os.path.relpath(found.path)}")
    refuse_files_of_others(found, f"-j {_quoted(found.path)}{_inventory_words(flags, found)}")
    return config.load_job(found.path, environ=os.environ)


def load_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """The inventory of `whole_inventory`, with the hosts that --limit and --exclude select."""
    return select(whole_inventory(flags, job), flags.limit, flags.exclude)


def whole_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """The inventory with all its hosts. Raises UsageError and Refused."""
    return config.load_inventory(inventory_file(flags, job))


def inventory_here(flags: CommonFlags) -> Inventory:
    """The selected inventory; the job file names it where there is one."""
    return load_inventory(flags, job_here(flags))


def inventory_file(flags: CommonFlags, job: Job | None) -> Path:
    """The inventory that config.find_inventory finds. Prints which one it is if the command line
    and folder do not show that.

    Raises ConfigError and Refused.
    """
    job_file = config.find_job(flags.job, Path.cwd()) if job else None
    found = config.find_inventory(
        flags.inventory, os.environ, job.inventory if job else None, Path.cwd(), job_file
    )
    if found.unused is not None or not (found.named or found.path.parent.parent == Path.cwd()):
        _say_which(flags, f"inventory: {os.path.relpath(found.path)}{_unused(found)}")
    refuse_files_of_others(found, f"-i {_quoted(found.path)}")
    return found.path


def _unused(found: FoundFile) -> str:
    if found.unused is None:
        return ""
    unused = f"{os.path.relpath(found.unused)} is not used"
    return (
        f" (TFDEPLOY_INVENTORY; the project's {unused})"
        if found.named
        else f" (beside the job file; {unused})"
    )


def refuse_files_of_others(found: FoundFile, words: str) -> None:
    """Raises Refused if another user can change a file that was searched for; prints a warning if
    the file was named.

    `words`: the flags that name the file.
    """
    exposure = find_exposure(found.path)
    if exposure is None:
        return
    itself = Path(exposure.place) == found.path
    harm = (
        "and decides what runs as you"
        if itself
        else f"so {found.path} may be replaced, and it decides what runs as you"
    )
    if found.named:
        _say_once(f"warning: {exposure.what}, {harm}: {exposure.fix}")
        return
    remedy = f"{exposure.fix}; or, if you trust it, name it: {words}"
    raise Refused(f"{exposure.what}, {harm}", where=os.path.relpath(found.path), next=remedy)


def _inventory_words(flags: CommonFlags, job_file: FoundFile) -> str:
    """Return the -i that the next command needs too, if the inventory of this job file is exposed
    as well; else ""."""
    if job_file.named or flags.inventory:
        return ""
    try:
        found = config.find_inventory(None, {}, None, Path.cwd(), job_file)
    except UsageError:
        return ""
    return f" -i {_quoted(found.path)}" if find_exposure(found.path) else ""


def _quoted(path: Path) -> str:
    return shlex.quote(os.path.relpath(path))


_say_once = lru_cache(maxsize=64)(say)


def _say_which(flags: CommonFlags, text: str) -> None:
    if not flags.quiet:
        _say_once(text)


def secret_paths_here(flags: CommonFlags) -> dict[str, dict[str, list[str]]]:
    """Return the `secret_paths` of the job here; {} if there is no job, or its files cannot be
    read."""
    from tfdeploy.operations.sending.withheld_files import secret_paths

    try:
        job = job_here(flags)
        return secret_paths(job, whole_inventory(flags, job).hosts) if job is not None else {}
    except UsageError:
        return {}
