"""Run `tfdeploy init`: write a commented tfdeploy.yaml and inventory to a folder.

The verb asks questions only on a terminal, and overwrites no file.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tfdeploy import config
from tfdeploy.cli.arguments.init import INVENTORY, Flags
from tfdeploy.cli.options import env_default, unknown_choice_error
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.project import print_inventory_warnings
from tfdeploy.config import find_job_above
from tfdeploy.config.file_schemas import file_schema_text
from tfdeploy.config.foreign.host_list import is_host_list
from tfdeploy.config.templates import inventory_text, job_text, quoted, settings_as_yaml
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.job import MODES, Mode
from tfdeploy.model.modes import rules_of
from tfdeploy.planning.folder_programs import FolderProgram, find_programs
from tfdeploy.text.allowed import NAME, is_ip
from tfdeploy.text.nexts import did_you_mean
from tfdeploy.text.units import format_count
from tfdeploy.ui.question import ask

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import InitAnswer

Checked = TypeVar("Checked")
JOB_FILE = "tfdeploy.yaml"
SCHEMA_FOLDER = ".tfdeploy"  # never sent as a part of a job's code
_SCHEMAS = {JOB_FILE: "job-file", INVENTORY: "inventory-file"}
# Addresses reserved for documentation: no host has them.
EXAMPLE_HOSTS = "192.0.2.10,192.0.2.11"
_FIRST_COMMANDS = "`tfdeploy check`, `tfdeploy launch --dry-run`"
_HOSTS_FORM = "write ml@192.0.2.10,192.0.2.11:2200 or gpu[01-08], or the path of an inventory file"
# A text with one of these endings is taken for the name of a file, not of a host.
_FILE_ENDINGS = (".ini", ".cfg", ".txt", ".yaml", ".yml")
# A program with one of these names is clearly the one to start, so the operator is not asked for
# the command.
_CLEAR_NAMES = ("train.py", "main.py")
_MOST_SOURCES = 500
_MAX_SOURCE_BYTES = 1 << 20


def run(flags: Flags) -> int:
    folder = Path(flags.folder)
    if not folder.is_dir():
        path = shlex.quote(flags.folder)
        what, remedy = "no such folder", f"`mkdir {path}`"
        if folder.exists():
            what = "a file, not a folder"
            remedy = f"`tfdeploy init --hosts {path}` reads the hosts in this file"
        raise UsageError(what, where=flags.folder, next=remedy)
    named = flags.inventory if flags.hosts is None else None
    if named:
        _print_used_inventory(flags)
        hosts = None
    elif flags.hosts is None and (folder / INVENTORY).exists():
        hosts = ""  # The existing inventory is kept, so there is no question about hosts.
    else:
        question = "Hosts (ml@n1,n2:2200, a range gpu[01-08], or an inventory file)"
        hosts = _ask_or_default(flags, flags.hosts, question, EXAMPLE_HOSTS, _make_inventory_text)
    texts = {JOB_FILE: _make_job_text(flags, folder)}
    if hosts is not None:
        texts[INVENTORY] = hosts
    written = [folder / name for name, text in texts.items() if _write_new_file(folder, name, text)]
    kept = [folder / name for name in texts if folder / name not in written]
    has_hosts = folder / INVENTORY in kept or hosts != _make_inventory_text(EXAMPLE_HOSTS)
    next_step = flags.add_file_flags(_FIRST_COMMANDS)
    if not named:
        next_step = _describe_next_step(folder / INVENTORY, has_hosts)
    _print_result(flags, written, kept, next_step)
    return 0


def _make_job_text(flags: Flags, folder: Path) -> str:
    """Return the text of the job file, from the flags, the programs in the folder and the
    operator's answers. Raises UsageError."""
    programs = _find_programs(folder)
    # The mode, `keep` and data of the job are those of the program that the command names.
    programs.sort(key=lambda each: not _is_named(each, flags.command or ""))
    program = programs[0] if programs else _guess_program(folder)
    if program.mode is not None and flags.mode is None:
        mode = program.mode
    else:
        question, default = f"Mode ({', '.join(MODES)})", "local" if programs else "async"
        mode = _ask_or_default(flags, flags.mode, question, default, _check_mode)
    if programs and not (flags.quiet or flags.json):
        reason = program.reason or "the program names no other machine"
        if program.mode is None:
            shown = f"these lines do not decide the mode: {program.reason}"
            reason = shown if program.reason else "the program shows no mode"
            reason = f"a guess, because {reason}. --mode changes it"
        others = ", ".join(each.path for each in programs[1:])
        also = f"; also there: {others}" if others else ""
        print_message(f"program: {program.path} (mode {mode}: {reason}){also}")
    name = folder.resolve().name
    name = name if NAME.match(name) else "job"
    data = [(Path(path).stem, flag, path) for path, flag in program.data]
    # If each program serves one job only, the ps gets a command of its own.
    is_worker = program.server_job not in ("", "ps") and "ps" in rules_of(mode).usable_roles
    of_ps = (each.command for each in programs if is_worker and each.server_job == "ps")
    ps_command = next(of_ps, ())

    def read_command(line: str) -> str:
        if flags.command is None and any(_is_named(each, line) for each in programs[1:]):
            return _make_job_text(replace(flags, command=line), folder)
        sets = {
            name: f"./{path}" for name, flag, path in data if not flag or f"{{data.{name}}}" in line
        }
        text = job_text(
            name=name,
            mode=mode,
            command=_split_command(line),
            keep=program.keep,
            data_paths=sets,
            env=program.env,
            ps_command=ps_command,
        )
        return _require_valid_file_text(JOB_FILE, text, "--command")

    arguments = [f"{flag}={{data.{name}}}" for name, flag, _ in data if flag]
    guess = shlex.join([*program.command, *arguments, *program.arguments])
    is_clear = program.path in _CLEAR_NAMES or not any(each.reason for each in programs[1:])
    if programs and is_clear and flags.command is None:
        return read_command(guess)
    text = _ask_or_default(flags, flags.command, "Command", guess, read_command)
    is_guess = not programs and flags.command is None and text == read_command(guess)
    if is_guess and not (flags.quiet or flags.json):
        print_message(f"no program was found here; the job file names {program.path}: correct it")
    return text


def _is_named(program: FolderProgram, line: str) -> bool:
    """Return whether a command line starts the program, as a file or as a module.

    Raises UsageError.
    """
    module = program.path.removesuffix(".py").replace("/", ".")
    names = (program.path, f"-m {module}", f"-m {module.removeprefix('src.')}")
    words = f" {' '.join(map(os.path.normpath, _split_command(line)))} "
    return any(f" {name} " in words for name in names)


def _find_programs(folder: Path) -> list[FolderProgram]:
    """Return the programs in the folder and in its subfolders, the most likely one first."""

    def has_files(path: str) -> bool | None:
        place = folder / path
        if not NAME.match(place.stem) or not place.is_dir() or any(place.glob("*.py")):
            return None
        return any(place.glob("[!.]*"))

    sources = _read_texts(folder, "*.py", "*/*.py")
    documents = (
        "README*",
        "Makefile",
        "*.sh",
        "*/*.sh",
        "*.sbatch",
        "*.y*ml",
        "con*/*.*",
        "con*/*/*.*",
    )
    texts = _read_texts(folder, *documents)
    # Reading deeper folders takes long, so they are read only if the files above show no program.
    return find_programs(sources, texts, has_files) or find_programs(
        sources | _read_texts(folder, "*/*/*.py"), texts, has_files
    )


def _read_texts(folder: Path, *patterns: str) -> dict[str, str]:
    """Return {path: text} of each file that matches a pattern."""
    paths = [
        path
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
        if not path.relative_to(folder).parts[0].startswith((".", "__"))
        and not (path.parent / "pyvenv.cfg").exists()
        and path.is_file()
        and path.stat().st_size < _MAX_SOURCE_BYTES
    ]
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="replace")
        for path in paths[:_MOST_SOURCES]
    }


def _guess_program(folder: Path) -> FolderProgram:
    """Return the only Python file of the folder, else train.py, as a program of unknown mode."""
    files = [path.name for path in folder.glob("*.py")]
    path = files[0] if len(files) == 1 else "train.py"
    return FolderProgram(path, ("python", path), None, "", (), (), (), uses_tensorflow=False)


def _print_used_inventory(flags: Flags) -> None:
    """Print that no new inventory is written, because -i or TFDEPLOY_INVENTORY names one.

    Raises UsageError, ConfigError.
    """
    source = "TFDEPLOY_INVENTORY" if flags.inventory == env_default("inventory") else "-i"
    path = config.find_inventory(flags.inventory, os.environ, None, Path.cwd()).path
    shown = os.path.relpath(path) if path.exists() else str(path)
    hosts = format_count(len(config.load_inventory(path).hosts), "host")
    if not (flags.quiet or flags.json):
        print_message(f"init writes no inventory, because {source} already gives {hosts}: {shown}")


def _ask_or_default(
    flags: Flags,
    value: str | None,
    question: str,
    default: str,
    check_and_format: Callable[[str], Checked],
) -> Checked:
    """Return the value from the command line, else the operator's answer, else the default.

    `check_and_format` checks the value. After an invalid answer the question is asked again, until
    the terminal's input ends. Raises UsageError.
    """
    if value is not None:
        return check_and_format(value)
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not (flags.yes or flags.json)
    while True:
        answer = ask(f"{question} [{default}]:") if asks else None
        try:
            return check_and_format(answer or default)
        except UsageError as error:
            if answer is None:
                raise
            print_message(f"{error.what}: {error.next}")


def _make_inventory_text(text: str) -> str:
    """Return the text of an inventory with these hosts.

    `text`: a list of hosts, or the path of an inventory. Raises UsageError.
    """
    is_file = os.path.isfile(text)
    if not is_file and text.endswith(_FILE_ENDINGS):
        files = [each.name for each in Path(text).absolute().parent.glob("*.*")]
        hint = did_you_mean(os.path.basename(text), files, _HOSTS_FORM)
        raise UsageError("no such file", where=text, next=hint)
    source = text if is_file or is_host_list(text) else f"{text},"
    if not (is_file or is_host_list(source)):
        raise UsageError(f"{text!r} is not a list of hosts", where="--hosts", next=_HOSTS_FORM)
    try:
        read = config.load_inventory_file(Path(source))
    except ConfigError as error:
        where = error.where if is_file else "--hosts"
        raise UsageError(error.what, where=where, next=_HOSTS_FORM) from error
    hosts = {}
    for number, host in enumerate(print_inventory_warnings(read.inventory).hosts, 1):
        name, settings = host.name, settings_as_yaml(host, read.settings[host.name])
        if not is_file and is_ip(host.address):
            name, settings = f"n{number}", {"address": quoted(host.address), **settings}
        hosts[name] = settings
    text = inventory_text(hosts, read.inventory.roles)
    return _require_valid_file_text(INVENTORY, text, "--hosts")


def _check_mode(text: str) -> Mode:
    """Return the mode if it exists. Raises UsageError otherwise."""
    if text not in MODES:
        raise unknown_choice_error(text, MODES, "--mode")
    return text


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


def _require_valid_file_text(name: str, text: str, flag: str) -> str:
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
                error.what, where=flag, next=error.next or "`tfdeploy init --help`"
            ) from error
    return text


def _write_new_file(folder: Path, name: str, text: str) -> bool:
    """Write a new file and return True, or return False if the file exists already.

    The first line of the new file names a JSON Schema for editors. The schema is written with the
    new file. If the file exists already, an existing schema is renewed, and a missing one is not
    written.
    """
    path, schema = folder / name, folder / SCHEMA_FOLDER / f"{_SCHEMAS[name]}.schema.json"
    line = f"# yaml-language-server: $schema={os.path.relpath(schema, path.parent)}\n"
    is_new = False
    try:
        path.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(line + text)
            is_new = True
        if is_new or schema.exists():
            schema.parent.mkdir(exist_ok=True)
            schema.write_text(file_schema_text(_SCHEMAS[name]), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}",
            where=error.filename,
            next="name a folder that you may write to",
        ) from error
    return is_new


def _print_result(
    flags: Flags, written_files: list[Path], existing_files: list[Path], next_step: str
) -> None:
    if flags.json:
        answer: InitAnswer = {
            "written": [str(path) for path in written_files],
            "kept": [str(path) for path in existing_files],
        }
        print_json(answer)
        return
    for path in written_files:
        print(path)
    for path in existing_files:
        old = shlex.quote(str(path))
        print_message(
            f"{path} exists already and was not changed; to get a new one, type "
            f"`mv {old} {old}.old` and repeat the command"
        )
        if flags.hosts is not None and path.name == Path(INVENTORY).name:
            print_message(f"the hosts of --hosts were not written: add them to {old}")
    above = find_job_above(Path(flags.folder).resolve())
    if written_files and above is not None and not flags.quiet:
        print_message(
            f"{os.path.relpath(above)} exists too, but tfdeploy does not use it in the folder of "
            "the new job file"
        )
    if written_files and not flags.quiet:
        print_message(f"next: {next_step}")


def _has_python(inventory: Path) -> bool:
    """Return whether the inventory states the interpreter of every host."""
    try:
        given = config.load_inventory_file(inventory).settings
    except ConfigError:
        return False
    return all("python" in settings for settings in given.values())


def _describe_next_step(inventory: Path, has_hosts: bool) -> str:
    """Return a text that says what the operator should do next.

    `has_hosts`: True if the inventory has real hosts, False if it has EXAMPLE_HOSTS.
    """
    if has_hosts and _has_python(inventory):
        return f"`tfdeploy trust`, {_FIRST_COMMANDS}"
    python = "set `python:` of each host to a Python that has the packages of the program"
    what = python if has_hosts else f"write your hosts, and {python}"
    return f"in {inventory}, {what}; then type `tfdeploy trust`, {_FIRST_COMMANDS}"
