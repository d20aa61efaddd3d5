"""Installs the packages of one Python environment: by uv if this host has it, else by venv and pip.
Each line that these programs print is sent to the caller.

uv and pip run in a process session of their own, and are killed when the session of serve ends.
They read no input, and change only the environment's folder and their own cache. If a folder of
wheels is given, they work offline.
"""

from __future__ import annotations

import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
from collections import deque

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Any, Deque, Dict, Iterable, List
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.host.installed import StartedProgram, find_uv
from tfdeploy.agent.serve.env.environments import is_valid_pin

SHOWN = 12  # how many of the installer's last lines an error shows
LONGEST_LINE = 2000
POLL_S = 0.2
UV_OLDEST = (3, 8)
PIP_WITH_PYTHON = (22, 3)  # the first version of pip that can install for another interpreter
_UNSET = (
    "PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX PIP_TARGET PIP_PREFIX PIP_PYTHON "
)
_UNSET_OFFLINE = """
    PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_FIND_LINKS UV_INDEX UV_INDEX_URL
    UV_DEFAULT_INDEX
"""
_SET = {
    "NO_COLOR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_USER": "0",
    "PYTHONUNBUFFERED": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
# Settings of the host may name other sources than the wheels, so pip and uv are told not to read
# these settings.
_OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "UV_NO_CONFIG": "1",
}
# Finds the messages that pip and uv print on a host that reaches no package index.
_NO_INDEX = re.compile(
    r"(?i)failed to establish a new connection|name resolution|dns error|tcp connect "
    r"error|network is unreachable"
    r"|connection (?:refused|timed out)|connecttimeout|error sending request"
)
_NO_WHEEL = re.compile(
    r"No matching distribution found|not found in the provided package locations|were not found "
    r"in the"
)
_PRINT_ABILITIES = r"""
import importlib.util, json, re
def have(name): return importlib.util.find_spec(name) is not None
try:
    import pip
    version = [int(word) for word in re.findall(r"\d+", pip.__version__)[:2]]
except Exception:
    version = None
print("=tfdeploy-able=" + json.dumps(
    {"venv": have("venv"), "ensurepip": have("ensurepip"), "pip": version}))
"""


def install_requirements(
    call: Call, base_python: str, python_version: str, folder: str, lock_descriptor: int
) -> str:
    """Install the requirements, and return the name of the installer: "uv" or "pip".
    `lock_descriptor`: the descriptor of a lock that the installer inherits, so that the lock is
    held while any process of the installer lives.

    Raises VerbError no_venv, setup_failed, cancelled, bad_argument; OSError.
    """
    runner = _Runner(call, lock_descriptor)
    uv = find_uv() if tuple(map(int, python_version.split(".")[:2])) >= UV_OLDEST else None
    if uv:
        runner.run([uv, "venv", "--python", base_python, folder])
        command = [uv, "pip", "install", "--python", os.path.join(folder, "bin", "python")]
    else:
        command = _make_with_venv(runner, base_python, folder)
    # Give the installer a temporary folder on the disk: /tmp is often in memory, and too small for
    # the files that pip unpacks.
    temporary = os.path.join(folder, "tmp")
    os.mkdir(temporary)
    wanted, pins = _write_requirements(call, folder), _write_constraints(call, folder)
    try:
        runner.run(command + wanted + pins, cwd=folder, TMPDIR=temporary)
    except VerbError as error:
        if not pins or error.code != "setup_failed":
            raise
        # Try again without the pins. They may be the cause of the failure. If the second try fails
        # too, its error names only versions that the user has written.
        runner.run(command + wanted, cwd=folder, TMPDIR=temporary)
    shutil.rmtree(temporary, ignore_errors=True)
    return "uv" if uv else "pip"


def _make_with_venv(runner: "_Runner", base_python: str, folder: str) -> List[str]:
    """Make the environment by venv. Return the command that installs packages into it. The command
    uses the base interpreter's pip if that is new enough, otherwise the environment's own pip."""
    abilities = _probe_venv_and_pip(base_python)
    has_newer_pip = tuple(abilities["pip"] or ()) >= PIP_WITH_PYTHON
    if not abilities["venv"] or not (abilities["ensurepip"] or has_newer_pip):
        lacks = "ensurepip" if abilities["venv"] else "venv"
        what = "%s cannot make environments: it has no module %s, and this host has no uv"
        raise VerbError("no_venv", what % (base_python, lacks), advice="install_venv")
    python, make = os.path.join(folder, "bin", "python"), [base_python, "-m", "venv", folder]
    if not has_newer_pip:
        runner.run(make)
        return [python, "-m", "pip", "install"]
    runner.run([*make, "--without-pip"])
    return [base_python, "-m", "pip", "--python", python, "install"]


def installed_packages(folder: str) -> Dict[str, str]:
    """Return {name: version} of the installed packages. Names are in lower case with dashes. pip,
    setuptools and wheel are left out, because the user did not ask for them."""
    packages = {}
    pattern = os.path.join(glob.escape(folder), "lib/python*/site-packages/*.dist-info")
    for path in glob.glob(pattern):
        name, _, version = os.path.basename(path)[: -len(".dist-info")].partition("-")
        packages[re.sub(r"[-_.]+", "-", name).lower()] = version
    return {
        name: version
        for name, version in sorted(packages.items())
        if name not in ("pip", "setuptools", "wheel") and is_valid_pin(name, version)
    }


def _probe_venv_and_pip(python: str) -> Dict[str, Any]:
    """Return {"venv", "ensurepip", "pip"} for a Python interpreter. `venv` and `ensurepip`: True if
    the interpreter has the module. `pip`: the version of its pip as a list of numbers, or None if
    it has no pip."""
    program = StartedProgram([python, "-c", _PRINT_ABILITIES])
    printed, problem = program.read_marked_line("=tfdeploy-able=")
    if printed is None:
        raise VerbError("setup_failed", "%s does not answer: %s" % (python, problem))
    abilities: Dict[str, Any] = json.loads(printed)
    return abilities


def _write_requirements(call: Call, folder: str) -> List[str]:
    """Write the requirements files into the environment's folder, where they also document the
    environment. Return the options by which the installer reads these files."""
    files, main = call.table("files"), call.text("main")
    if main not in files:
        raise VerbError("bad_argument", "the call does not contain the requirements file %r" % main)
    root = os.path.join(folder, "requirements")
    for path, text in files.items():
        if not isinstance(text, str) or not is_safe_relative_path(path):
            raise VerbError("bad_argument", "the path %r leads out of the environment" % path)
        full_path = os.path.join(root, path)
        os.makedirs(os.path.dirname(full_path), exist_ok=True)
        with open(full_path, "w", encoding="utf-8") as stream:
            stream.write(text)
    options = ["-r", os.path.join(root, main)]
    if call.flag("wheels"):
        wheels = layout.data_dir(call.workdir, call.job, call.name("wheels"))
        options += ["--no-index", "--find-links", wheels]
    return options


def _write_constraints(call: Call, folder: str) -> List[str]:
    """Write a constraints file with the versions that are installed on a similar host. Return the
    options by which the installer reads this file."""
    pins = sorted(call.table("pins").items())
    if not all(is_valid_pin(*pin) for pin in pins):
        raise VerbError("bad_argument", "an entry of `pins` is not a package name and a version")
    if not pins:
        return []
    path = os.path.join(folder, "pins.txt")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines("%s==%s\n" % pin for pin in pins)
    return ["-c", path]


class _Runner:
    """Runs programs for a call, one after the other. Ends the running program when the call is
    cancelled or the session ends."""

    def __init__(self, call: Call, lock_descriptor: int) -> None:
        self.call, self.lock_descriptor = call, lock_descriptor
        self.last: Deque[str] = deque(maxlen=SHOWN)
        offline = call.flag("wheels")
        unset = (_UNSET + _UNSET_OFFLINE * offline).split()
        self.env = {name: value for name, value in os.environ.items() if name not in unset}
        self.env.update(_SET, **(_OFFLINE if offline else {}))

    def run(self, argv: List[str], cwd: str = "/", **env: str) -> None:
        """Run the program until it has ended. Raises VerbError setup_failed with the program's last
        lines, or VerbError cancelled."""
        self.last.clear()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**self.env, **env},
            start_new_session=True,
            pass_fds=[self.lock_descriptor],
        )
        self.call.context.closing_functions["setup %d" % process.pid] = lambda: _kill_group(process)
        try:
            self._send_output_until_ended(process)
        finally:
            self.call.context.closing_functions.pop("setup %d" % process.pid, None)
            # End processes that the program left behind. This must happen before wait(): after
            # wait(), the system may give the program's id to another process.
            _kill_group(process)
            code = process.wait()
            if process.stdout:
                process.stdout.close()
        if code != 0:
            raise self._setup_failed_error(argv, code)

    def _send_output_until_ended(self, process: "subprocess.Popen[bytes]") -> None:
        """Send the program's output to the caller, line by line, until the program has ended. Do
        not wait until the output is closed, because a process that the program left behind may keep
        the output open for ever. Raises VerbError cancelled."""
        assert process.stdout is not None
        incomplete_line = b""
        while True:
            if self.call.cancelled.is_set():
                raise VerbError("cancelled", "the setup was cancelled")
            status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            ended = status is not None
            if select.select([process.stdout], [], [], 0.0 if ended else POLL_S)[0]:
                block = os.read(process.stdout.fileno(), 1 << 16)
                *lines, incomplete_line = (
                    (incomplete_line + block).replace(b"\r", b"\n").split(b"\n")
                )
                for line in lines:
                    self._send_line(line)
                incomplete_line = incomplete_line[-LONGEST_LINE:]
                if block or not ended:
                    continue
            if ended:
                self._send_line(incomplete_line)
                return

    def _send_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()[:LONGEST_LINE]
        if text:
            self.last.append(text)
            self.call.item({"line": text}, b"")

    def _setup_failed_error(self, argv: List[str], code: int) -> VerbError:
        command = " ".join(map(os.path.basename, argv[: 3 if "-m" in argv[:4] else 2]))
        ending = "signal %d" % -code if code < 0 else "exit code %d" % code
        lines = "".join("\n    " + line for line in self.last)
        return VerbError(
            "setup_failed",
            "%s: %s%s" % (command, ending, lines),
            advice="download_wheels"
            if lacks_package_source(self.last, self.call.flag("wheels"))
            else None,
            details={"lines": list(self.last), "exit_code": code},
        )


def lacks_package_source(lines: Iterable[str], is_offline: bool) -> bool:
    """Return whether these lines of pip or uv say that the host reaches no package index, or that
    the given wheels lack a package. `is_offline`: wheels were given."""
    pattern = _NO_WHEEL if is_offline else _NO_INDEX
    return any(pattern.search(line) for line in lines)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process group that the process leads."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
