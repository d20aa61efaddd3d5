"""Load the job file and the inventory that the command line names, or that a search finds."""

from __future__ import annotations

import contextlib
import os
import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import config
from tfdeploy.cli.output import print_message
from tfdeploy.cli.state import open_run_store, remember_inventory
from tfdeploy.config.foreign.setting_names import SETTING, translate_settings
from tfdeploy.config.inventory import FOLDER
from tfdeploy.config.job import FILE
from tfdeploy.errors import ConfigError, Refused, TfdeployError, UsageError
from tfdeploy.machine.ownership import find_tamper_risk
from tfdeploy.model.inventory import select_hosts

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.config import FoundFile
    from tfdeploy.model.answers.clean import SecretPathsByJob
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job


def load_job(flags: CommonFlags) -> Job:
    """Return the job of the job file.

    Raises ConfigError for an invalid or missing job file, and Refused if another user can change
    it.
    """
    try:
        return _load_found_job(flags, config.find_job(flags.job, Path.cwd()))
    except ConfigError as error:
        raise (_suggest_project_folder(error) if flags.job is None else error) from error


def _suggest_project_folder(error: ConfigError) -> ConfigError:
    """Return `error`, with a hint to a project folder if the job file or the inventory is missing.

    The hint names a folder with a job file, in or beside the current folder, or else the folder of
    the last run. If the current folder has a job file, there is no hint.
    """
    missing = error.what in ("no job file", "no inventory") and not Path(FILE).exists()
    if missing and error.next and "init" in error.next:
        for parent, prefix in ((Path.cwd(), ""), (Path.cwd().parent, "../")):
            folders = (file.parent for file in parent.glob(f"*/{FILE}"))
            near = next((each for each in folders if _has_what_is_missing(each, error)), None)
            if near:
                folder = shlex.quote(prefix + near.name)
                error.next = f"`cd {folder}`; otherwise {error.next}"
                return error
        last_folder = None
        with contextlib.suppress(Refused):  # raised if other users can change the state folder
            last_folder = open_run_store().newest_code_folder()
        if (
            last_folder
            and Path(last_folder) != Path.cwd()
            and _has_what_is_missing(Path(last_folder), error)
        ):
            folder = shlex.quote(str(last_folder))
            error.next = f"`cd {folder}` (the folder of the last run); otherwise {error.next}"
    return error


def _has_what_is_missing(folder: Path, error: ConfigError) -> bool:
    """Return True if the folder has what is missing according to the error: the job file, or a
    folder of inventories. Return False if the folder cannot be read."""
    # Unlike Path.exists, os.path.exists raises no error for a folder of another user.
    return os.path.exists(folder / (FILE if error.what == "no job file" else FOLDER))


def load_job_if_any(flags: CommonFlags) -> Job | None:
    """Return the job of the job file, or None if there is no job file."""
    if flags.job is not None:
        return load_job(flags)
    job_file = config.find_job_at_or_above(Path.cwd())
    return _load_found_job(flags, job_file) if job_file else None


def _load_found_job(flags: CommonFlags, job_file: FoundFile) -> Job:
    """Return the job of `job_file`. Print its path if it was found outside the current folder."""
    path = job_file.path
    if not job_file.named_explicitly and path.parent != Path.cwd():
        _print_file_used(flags, f"job: {os.path.relpath(path)}")
    other = path.with_suffix(".yml")
    if not job_file.named_explicitly and other.is_file():
        _print_file_used(flags, f"job: {os.path.relpath(path)} ({other.name} is not used)")
    inventory_flag = _suggest_inventory_flag(flags, job_file)
    refuse_file_others_control(job_file, f"-j {_quote_relative(path)}{inventory_flag}")
    return config.load_job(path, environ=os.environ)


def load_whole_and_selected_inventory(
    flags: CommonFlags, job: Job | None
) -> tuple[Inventory, Inventory]:
    """Return the whole inventory, and the inventory with only the hosts that --limit and --exclude
    select."""
    whole = load_whole_inventory(flags, job)
    return whole, select_hosts(whole, flags.limit, flags.exclude)


def load_whole_inventory(flags: CommonFlags, job: Job | None) -> Inventory:
    """Return the inventory with all its hosts. Raises UsageError and Refused."""
    inventory = print_inventory_warnings(
        config.load_inventory(find_and_print_inventory_file(flags, job))
    )
    remember_inventory(inventory)
    return inventory


def print_inventory_warnings(inventory: Inventory) -> Inventory:
    """Print the notes of the inventory as warnings, and return the inventory."""
    for note in inventory.notes:
        _print_once(f"warning: {note}")
    return inventory


def load_selected_inventory(flags: CommonFlags) -> Inventory:
    """Return the selected hosts of the inventory. The job file may name the inventory file."""
    return load_whole_and_selected_inventory(flags, load_job_if_any(flags))[1]


def find_and_print_inventory_file(flags: CommonFlags, job: Job | None) -> Path:
    """Return the path of the inventory.

    Prints the path if the file was found outside the current folder, or if the project has another
    inventory, which is then not used. Raises ConfigError and Refused.
    """
    cwd = Path.cwd()
    job_file = config.find_job(flags.job, cwd) if job else None
    try:
        file = config.find_inventory(
            flags.inventory, os.environ, job.inventory if job else None, cwd, job_file
        )
    except ConfigError as error:
        raise _suggest_project_folder(error) from error
    reason = ""
    if file.unused_inventory is not None:
        origin = (
            "TFDEPLOY_INVENTORY; the project's"
            if file.named_explicitly
            else "next to the job file;"
        )
        reason = f" ({origin} {os.path.relpath(file.unused_inventory)} is not used)"
    if reason or not (file.named_explicitly or file.path.parent.parent == cwd):
        shown = min(os.path.relpath(file.path), str(file.path), key=len)
        _print_file_used(flags, f"inventory: {shown}{reason}")
    refuse_file_others_control(file, f"-i {_quote_relative(file.path)}")
    return file.path


def adapt_advice(flags: CommonFlags, text: str) -> str:
    """Return what to type next, with the -i and -j of this command line in tfdeploy's commands.

    Settings of hosts get the names that the inventory's format uses.
    """
    if SETTING.search(text):
        with contextlib.suppress(TfdeployError):
            text = translate_settings(
                text, find_and_print_inventory_file(flags, load_job_if_any(flags))
            )
    return flags.add_file_flags(text)


def refuse_file_others_control(file: FoundFile, naming_flags: str) -> None:
    """Raise Refused if another user can change a file that tfdeploy found by itself.

    If the operator named the file, only a warning is printed. `naming_flags`: the flags that name
    the file. The error suggests repeating the command with these flags.
    """
    exposure = find_tamper_risk(file.path)
    if exposure is None:
        return
    itself = Path(exposure.path) == file.path
    replaced = "" if itself else f", so others can replace {file.path}"
    what = f"{exposure.what}{replaced}; this file decides what runs under your account"
    if file.named_explicitly:
        _print_once(f"warning: {what}: `{exposure.fix}`")
        return
    remedy = f"`{exposure.fix}`; or, if you trust the file, name it with {naming_flags}"
    raise Refused(what, where=os.path.relpath(file.path), next=remedy)


def _suggest_inventory_flag(flags: CommonFlags, job_file: FoundFile) -> str:
    """Return " -i PATH" if another user can change the project's inventory, else "".

    The error about the job file suggests -j. With -j alone, tfdeploy would then refuse the
    inventory, so the error must suggest -i too. If the command line already names the job file or
    the inventory, the result is "".
    """
    if job_file.named_explicitly or flags.inventory:
        return ""
    try:
        file = config.find_inventory(None, {}, None, Path.cwd(), job_file)
    except UsageError:
        return ""
    return f" -i {_quote_relative(file.path)}" if find_tamper_risk(file.path) else ""


def _quote_relative(path: Path) -> str:
    return shlex.quote(os.path.relpath(path))


_print_once = lru_cache(maxsize=64)(print_message)


def _print_file_used(flags: CommonFlags, text: str) -> None:
    if not flags.quiet:
        _print_once(text)


def possibly_sent_project_secrets(flags: CommonFlags) -> SecretPathsByJob:
    """Return the secret files that an older tfdeploy may have sent for the job of the project.

    Return {} if there is no job or its files cannot be read.
    """
    from tfdeploy.operations.sending.withheld_files import possibly_sent_secret_paths

    try:
        if (job := load_job_if_any(flags)) is not None:
            return possibly_sent_secret_paths(job, load_whole_inventory(flags, job).hosts)
    except UsageError:
        pass
    return {}
