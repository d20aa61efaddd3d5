"""Run `tfdeploy init`: write a commented tfdeploy.yaml and inventory to a folder.

The verb asks questions only on a terminal, and overwrites no file.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import config
from tfdeploy.cli.arguments.init import INVENTORY, Flags
from tfdeploy.cli.options import unknown_choice_error
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.config import find_job_above
from tfdeploy.config.templates import inventory_text, job_text
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.inventory import NAME
from tfdeploy.model.job import MODES
from tfdeploy.model.text.units import count
from tfdeploy.ui.question import ask

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import InitAnswer

JOB_FILE = "tfdeploy.yaml"
# No host has these addresses, which are reserved for documentation.
EXAMPLE_HOSTS = "192.0.2.10,192.0.2.11"
_FIRST_COMMANDS = "tfdeploy check, tfdeploy launch --dry-run"
_HOST_PATTERN = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d+))?\Z"
)


def run(flags: Flags) -> int:
    folder = Path(flags.folder)
    if not folder.is_dir():
        raise UsageError(
            "no such folder", where=flags.folder, next=f"mkdir {shlex.quote(flags.folder)}"
        )
    name = folder.resolve().name if NAME.match(folder.resolve().name) else "job"

    def read_command(line: str) -> str:
        return _check_file_text(
            JOB_FILE, job_text(name=name, mode=mode, command=_split_command(line)), "--command"
        )

    named = flags.inventory if flags.hosts is None else None
    if named:
        _print_used_inventory(flags, Path(named))
        hosts = None
    else:
        hosts = _ask_or_default(
            flags,
            flags.hosts,
            "Hosts ([user@]host[:port], with commas)",
            EXAMPLE_HOSTS,
            _make_inventory_text,
        )
    mode = _ask_or_default(flags, flags.mode, f"Mode ({', '.join(MODES)})", "async", _check_mode)
    job = _ask_or_default(
        flags,
        flags.command,
        "Command",
        f"python {shlex.quote(_guess_program(folder))}",
        read_command,
    )
    texts = {folder / JOB_FILE: job, **({} if hosts is None else {folder / INVENTORY: hosts})}
    written = [path for path, text in texts.items() if _write_new_file(path, text)]
    kept = [path for path in texts if path not in written]
    has_hosts = folder / INVENTORY in kept or hosts != _make_inventory_text(EXAMPLE_HOSTS)
    next_step = (
        flags.full_command(_FIRST_COMMANDS)
        if named
        else _describe_next_step(folder / INVENTORY, has_hosts)
    )
    _print_result(flags, written, kept, next_step)
    return 0


def _print_used_inventory(flags: Flags, path: Path) -> None:
    """Print that `path` is used as the inventory, so that no new inventory is written.

    Raises UsageError, ConfigError.
    """
    path = Path.cwd() / path.expanduser()
    source = (
        "TFDEPLOY_INVENTORY" if flags.inventory == os.environ.get("TFDEPLOY_INVENTORY") else "-i"
    )
    if not path.exists():
        raise UsageError(
            f"no such inventory (named by {source})",
            where=str(path),
            next="tfdeploy init --hosts LIST",
        )
    hosts = count(len(config.load_inventory(path).hosts), "host")
    if not (flags.quiet or flags.json):
        print_message(
            f"inventory: {os.path.relpath(path)} ({source}): {hosts}; init writes no other"
        )


def _ask_or_default(
    flags: Flags,
    value: str | None,
    question: str,
    default: str,
    check_and_format: Callable[[str], str],
) -> str:
    """Return the value from the command line, else the operator's answer, else the default.

    `check_and_format` checks the value. After an invalid answer the question is asked again, until
    the terminal's input ends. Raises UsageError.
    """
    if (
        value is not None
        or flags.yes
        or flags.json
        or not (sys.stdin.isatty() and sys.stderr.isatty())
    ):
        return check_and_format(value if value is not None else default)

    while True:
        answer = ask(f"{question} [{default}]:")
        try:
            return check_and_format(answer or default)
        except UsageError as error:
            if answer is None:
                raise
            print_message(f"{error.what}: {error.next}")


def _make_inventory_text(text: str) -> str:
    """Return the text of an inventory with the hosts of a --hosts list. Raises UsageError."""
    return _check_file_text(INVENTORY, inventory_text(_parse_hosts(text)), "--hosts")


def _check_mode(text: str) -> str:
    """Return the mode if it exists. Raises UsageError otherwise."""
    if text not in MODES:
        raise unknown_choice_error(text, MODES, "--mode")
    return text


def _parse_hosts(text: str) -> dict[str, dict[str, str]]:
    """Return {"n1": its settings, ...} from a list such as ml@192.0.2.10,192.0.2.11:2200."""
    hosts = {}
    for number, word in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        match = _HOST_PATTERN.match(word)
        if match is None:
            raise UsageError(
                f"{word!r} is not [user@]host[:port]",
                where="--hosts",
                next="--hosts ml@192.0.2.10,192.0.2.11:2200",
            )
        hosts[f"n{number}"] = {key: match[key] for key in ("address", "user", "port") if match[key]}
    if not hosts:
        raise UsageError(
            "no host named", where="--hosts", next="--hosts ml@192.0.2.10,192.0.2.11:2200"
        )
    return hosts


def _split_command(line: str) -> list[str]:
    """Return the arguments of a command line. Raises UsageError."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"{line!r} cannot be split into words: {error}",
            where="--command",
            next="close the quotes",
        ) from error


def _guess_program(folder: Path) -> str:
    """Return the only Python file of the folder, else train.py."""
    programs = sorted(path.name for path in folder.glob("*.py"))
    return programs[0] if len(programs) == 1 else "train.py"


def _check_file_text(name: str, text: str, flag: str) -> str:
    """Return `text` if it is valid as the content of the file `name`.

    Otherwise raise UsageError, which names `flag`, because `text` was made from the value of
    `flag`.
    """
    with tempfile.TemporaryDirectory(prefix="tfdeploy-init-") as folder:
        draft = Path(folder, Path(name).name)
        draft.write_text(text, encoding="utf-8")
        try:
            config.load_job(draft, environ={}) if name == JOB_FILE else config.load_inventory(draft)
        except ConfigError as error:
            raise UsageError(
                error.what, where=flag, next=error.next or "tfdeploy init --help"
            ) from error
    return text


def _write_new_file(path: Path, text: str) -> bool:
    """Write a new file and return True, or return False if the file exists already."""
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            next="name a folder that you may write to",
        ) from error
    return True


def _print_result(flags: Flags, written: list[Path], kept: list[Path], next_step: str) -> None:
    if flags.json:
        answer: InitAnswer = {
            "written": [str(path) for path in written],
            "kept": [str(path) for path in kept],
        }
        print_json(answer)
        return
    for path in written:
        print(path)
    for path in kept:
        print_message(f"{path} exists already and was not changed")
    above = find_job_above(Path(flags.folder).resolve())
    if written and above is not None and not flags.quiet:
        print_message(
            f"{os.path.relpath(above)} exists too; in {flags.folder} only the new one counts"
        )
    if written and not flags.quiet:
        print_message(f"next: {next_step}")


def _describe_next_step(inventory: Path, has_hosts: bool) -> str:
    """Return what the operator does next.

    `has_hosts`: True if the inventory has real hosts, False if it has EXAMPLE_HOSTS.
    """
    python = "the Python that has TensorFlow there as `python:`"
    what = f"write {python}" if has_hosts else f"write your hosts, and {python},"
    return f"{what} into {inventory}, then tfdeploy trust, {_FIRST_COMMANDS}"
