"""Define an error as the agent sends it (see agent/call.py), and hold the lines of advice: what to
type next after such an error.

A host never sends a line of advice itself. It sends the key of a line in LINES, and the details to
insert into the line. Each detail is checked by its kind and quoted for a shell. If a detail fails
its check, the line is not shown. The functions are pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated

from msgspec import Meta

from tfdeploy.text.allowed import PROGRAM, is_host_path, is_printable_text, is_run_id
from tfdeploy.text.typed import Answer, Code, Scalar, Text

_Few = Annotated[list[Scalar], Meta(max_length=10_000)]
_Fields = Annotated[dict[Text, Scalar], Meta(max_length=1000)]


class Failure(Answer):
    code: Code
    what: Text
    where: Text | None = None
    advice: Code | None = None  # the key of a line of advice in LINES
    details: Annotated[dict[Text, Scalar | _Few | _Fields], Meta(max_length=1000)] = {}


_WORKDIR = (
    "write `workdir: ~/tfdeploy` in the inventory, or another folder that only you may replace"
)
LINES = {
    "again": "wait until no operation has the lock, then type the same command again",
    "wait": "wait until that operation has ended, or end it",
    "status": "`tfdeploy status`",
    "status_of_run": "`tfdeploy status {run}`",
    "list_runs": "`tfdeploy status` shows which tasks still run, `tfdeploy runs` lists all runs",
    "remove_damaged_run": "when all processes of the run have ended, remove the run's folder on "
    "the host",
    "stop_run": "`tfdeploy stop {run}`",
    "stop_run_or_kill": "`tfdeploy stop {run}`, or `tfdeploy exec --limit {host} -- kill {pid}`",
    "sync": "`tfdeploy sync`",
    "launch_with_sync": "launch without --no-sync",
    "another_run_name": "`tfdeploy launch --name ANOTHER`",
    "another_data_name": "move that file or folder away, or give the data set another name",
    "move_away": "move that link or folder away",
    "free_space": "free some space on that disk, lower `reserve:` if it is set, or set another "
    "workdir",
    "free_inodes": "delete files on that disk to free inodes, or set another workdir",
    "free_disk": "free some space or inodes on that disk, or set another workdir",
    "free_quota": "you are over your quota on that disk: free some space, or set another workdir",
    "writable_workdir": "set a workdir on a disk that can be written to",
    "give_access": "give the user access to that path, or set another workdir",
    "local_workdir": "the workdir's filesystem has no locks (flock) or "
    "named pipes: set `workdir:` to a local disk",
    "name_python": "write `python: PATH` for this host in the inventory, or install python3 there",
    "newer_python": "write `python: PATH` of a newer Python for this host in the inventory",
    "install_venv": "as root on {host}: apt-get install python3-venv; or install uv there",
    "download_wheels": "on this machine, beside the job file: `pip download -d wheels -r "
    "requirements.txt` (by a pip of the hosts' Python version), and write `setup: "
    "{requirements: requirements.txt, wheels: ./wheels}`",
    "install_tensorboard": "add tensorboard to the requirements of `setup:`, or: `tfdeploy exec "
    "--limit {host} -- {path} -m pip install tensorboard`",
    "protect_peers": "write `protect: peers` in the job file, or allow this user to run nft as "
    "docs/protect.md describes",
    "name_file": "name the file itself: {path}",
    "see_command": "see `command` and `code` of the job file",
    "make_executable": "`chmod +x {file}`",
    "unix_line_ends": "`sed -i 's/\\r$//' {file}`",
    "similar_program": "did you mean {program}?",
    "install_program": "install {program} on the host, or write its whole "
    "path, or ./{program} if it is in the code",
    # agent/mending.py sends the names of the following lines:
    "install_agent_again": "any tfdeploy command for this host installs the agent again",
    "mend_mapping": "set `workdir:` to a folder on a local disk in the inventory, or ask the file "
    "server's administrator to correct its mapping of users",
    "own_workdir": _WORKDIR,
    "real_workdir": "write `workdir: {workdir}` in the inventory",
    "close_folder": "`tfdeploy exec --limit {host} -- chmod go-w {path}`",
    "remove_agent": "`tfdeploy exec --limit {host} -- rm -r {agent}`",
    "set_aside": "`tfdeploy exec --limit {host} -- mv {path} {path_aside}`",
}
_AGENT_FOLDER = re.compile(r".*/\.agent(/[\w.-]+)?\Z", re.ASCII)


def _is_path(text: str) -> bool:
    return text.startswith("/") and is_printable_text(text)


# {placeholder in a line of advice: function that checks a host's value for the placeholder}
_CHECKS: dict[str, Callable[[str], object]] = {
    "host": bool,
    "run": is_run_id,
    # Pid 1 is refused, because it is the init process.
    "pid": re.compile(r"(?!1\Z)[1-9][0-9]{0,9}\Z", re.ASCII).match,
    "path": _is_path,
    "path_aside": _is_path,
    "file": is_printable_text,
    "program": PROGRAM.match,
    "workdir": is_host_path,
    "agent": lambda text: _is_path(text) and _AGENT_FOLDER.match(text),
}
_FIELD = re.compile(r"\{(\w+)\}")


def format_advice(host: str, advice: str | None, details: Mapping[str, object]) -> str | None:
    """Return the line of advice that a host's error names. Return None if the error names no known
    line, or if a detail fails its check."""
    line = LINES.get(advice or "")
    if line is None:
        return None
    known = {**details, "host": host}
    for name in _FIELD.findall(line):
        value = known.get(name)
        if type(value) not in (str, int) or not _CHECKS[name](str(value)):
            return None
    line = _FIELD.sub(lambda field: shlex.quote(str(known[field[1]])), line)
    if details.get("or_another_run_name") is True:
        line += ", or launch with another --name"
    return line


def quote_host_text(host: str, text: str) -> str:
    """Return a host's text with each line marked as the host's, so that no line looks like a
    message of tfdeploy."""
    lines = filter(str.strip, text.replace('"', "'").splitlines())
    return f'{host} says: "' + "\n> ".join(lines) + '"'


def prefix_with_host(host: str, text: str) -> str:
    """Return the text with the host's name before it, unless it begins with that name."""
    return text if text.startswith(f"{host} says: ") else f"{host}: {text}"
