"""`tfdeploy init`: a commented tfdeploy.yaml and inventory in a folder. Asks on a terminal only; overwrites nothing."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, finish_parser
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.job import MODES

if TYPE_CHECKING:
    from tfdeploy.model.printed import InitAnswer

JOB = "tfdeploy.yaml"
INVENTORY = "inventories/hosts.yaml"
_HOST = re.compile(r"(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d+))?\Z")


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    unbounded = "it asks no host"

    folder: str = "."
    hosts: str | None = None
    mode: str | None = None
    command: str | None = None


def add(subparsers: Any) -> None:
    text = "write a commented tfdeploy.yaml and inventory"
    parser = subparsers.add_parser(
        "init", help=text, description=f"Writes tfdeploy.yaml and {INVENTORY}, with every key explained."
    )
    parser.add_argument("folder", nargs="?", default=".", help="where (default: here)")
    parser.add_argument(
        "--hosts", metavar="LIST", help="[user@]host[:port], several with commas; the first is ps, the others workers"
    )
    parser.add_argument("--mode", choices=MODES, help="how the tasks train together (default async)")
    parser.add_argument("--command", metavar="LINE", help="the program's words (default: python and the program found here)")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.config.templates import inventory_text, job_text
    from tfdeploy.model.inventory import NAME

    folder = Path(flags.folder)
    if not folder.is_dir():
        raise UsageError("no such folder", where=flags.folder, next=f"mkdir {shlex.quote(flags.folder)}")
    hosts = _hosts(_answer(flags, flags.hosts, "Hosts ([user@]host[:port], with commas)", "192.0.2.10,192.0.2.11"))
    name = folder.resolve().name
    job = job_text(
        name=name if NAME.match(name) else "job",
        mode=_answer(flags, flags.mode, f"Mode ({', '.join(MODES)})", "async"),
        command=_split(_answer(flags, flags.command, "Command", f"python {shlex.quote(_program(folder))}")),
    )
    texts = {folder / JOB: job, folder / INVENTORY: inventory_text(hosts)}
    _check(texts)
    written = [path for path, text in texts.items() if _write(path, text)]
    _report(flags, written, [path for path in texts if path not in written])
    return 0


def _answer(flags: Flags, given: str | None, question: str, default: str) -> str:
    """The value from the command line, else the answer on the terminal, else the default."""
    if given is not None or flags.yes or flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return given if given is not None else default
    print(f"{question} [{default}]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default


def _hosts(text: str) -> dict[str, dict[str, str]]:
    hosts = {}
    for number, word in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        match = _HOST.match(word)
        if match is None:
            raise UsageError(f"{word!r} is not [user@]host[:port]", where="--hosts", next="--hosts ml@192.0.2.10,192.0.2.11:2200")
        hosts[f"n{number}"] = {key: match[key] for key in ("address", "user", "port") if match[key]}
    if not hosts:
        raise UsageError("no host named", where="--hosts", next="--hosts ml@192.0.2.10,192.0.2.11:2200")
    return hosts


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r} cannot be split into words: {error}", where="--command", next="close the quotes") from error


def _program(folder: Path) -> str:
    """train.py, or the only program of the folder."""
    found = sorted(path.name for path in folder.glob("*.py"))
    return found[0] if len(found) == 1 else "train.py"


def _check(texts: dict[Path, str]) -> None:
    """Checks that tfdeploy can read the texts before it writes them. Raises UsageError that names the flag."""
    from tfdeploy import config

    with tempfile.TemporaryDirectory(prefix="tfdeploy-init-") as place:
        for path, text in texts.items():
            draft = Path(place, path.name)
            draft.write_text(text, encoding="utf-8")
            flag = "--command" if path.name == JOB else "--hosts"
            try:
                config.load_job(draft, environ={}) if path.name == JOB else config.load_inventory(draft)
            except ConfigError as error:
                raise UsageError(error.what, where=flag, next=error.next or "tfdeploy init --help") from error


def _write(path: Path, text: str) -> bool:
    """False where the file is there already."""
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(path), next="name a folder that you may write to"
        ) from error
    return True


def _report(flags: Flags, written: list[Path], kept: list[Path]) -> None:
    if flags.json:
        answer: InitAnswer = {"written": [str(path) for path in written], "kept": [str(path) for path in kept]}
        print(json.dumps(answer))
        return
    for path in written:
        print(path)
    for path in kept:
        print(f"{path} is there already: left as it is", file=sys.stderr)
    if written and not flags.quiet:
        print("next: put your hosts in, then tfdeploy inventory, tfdeploy trust, tfdeploy launch --dry-run", file=sys.stderr)
