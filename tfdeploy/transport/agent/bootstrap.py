"""Install the agent on a host and start it, over an SSH channel of its own.

One command, which every login shell interprets alike, searches for a Python interpreter. The
interpreter reads the program PROGRAM from standard input, so that the program needs no quoting.
Everything that the login shell prints before the program starts is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from typing import Any, NamedTuple

import paramiko

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError
from tfdeploy.model.advice import next_of, quoted
from tfdeploy.model.text.units import in_binary_bytes
from tfdeploy.transport.agent.archive import agent_name, agent_zip
from tfdeploy.transport.agent.first_stage import PROGRAM
from tfdeploy.transport.ssh.channel_reader import ChannelReader
from tfdeploy.transport.ssh.command import START_S, begin
from tfdeploy.transport.ssh.errors import clean

NOISE_BYTES = 1 << 20  # the login shell may print at most this many bytes
_TOO_OLD = 99  # exit code of a Python older than 3.8
_ENDED_S = 2.0  # seconds to wait for the exit code, and then again for the end of the connection
_INTERPRETER = re.compile(r"(~/)?[\w.+@,=: /-]+\Z")


def command(python: str) -> str:
    """Return the shell command that runs PROGRAM with Python 3.8 or newer.

    The command tries the interpreters `python` (the parameter), python3 and python, in this order.
    Raises Refused if `python` has characters that the command cannot contain.

    The command has double quotes between its single quotes, but no other single quote, no backslash
    and no `!`, because csh and fish must interpret it too.
    """
    if not _INTERPRETER.match(python):
        raise Refused(
            f"python {python!r} is not a path that can be used",
            next="write `python: PATH` in the inventory",
        )
    tried = dict.fromkeys(
        (
            python.replace("~/", "$HOME/", 1) if python.startswith("~/") else python,
            "python3",
            "python",
        )
    )
    places = " ".join(f'"{path}"' for path in tried)
    code = (
        "import sys;sys.version_info<(3,8) and "
        f"sys.exit({_TOO_OLD});exec(sys.stdin.buffer.read({len(PROGRAM)}))"
    )
    script = (
        f'old=; for p in {places}; do command -v "$p" >/dev/null 2>/dev/null || continue; '
        'echo; echo =tfdeploy-python= "$p"; '
        f'"$p" -S -E -c "{code}"; s=$?; case $s in {_TOO_OLD}) old=$p;; 12[67]) ;; *) exit $s;; '
        "esac; done; "
        'echo; if test -n "$old"; then echo =tfdeploy-fail= old_python "$old" is "$("$old" -V '
        '2>&1)"; '
        "else echo =tfdeploy-fail= no_python; fi"
    )
    return f"exec /bin/sh -c '{script}'"


class Started(NamedTuple):
    """An agent that has been started.

    `reader`: reads the agent's output. `rest`: the bytes that came after the agent's greeting.
    `noise`: what the login shell printed before.
    """

    reader: ChannelReader
    rest: bytes
    noise: str


def start(channel: paramiko.Channel, workdir: str, host: str, python: str) -> Started:
    """Install the agent on the host if the host lacks it, and start it.

    Raises Refused (no Python 3.8+, a workdir that cannot be created or that other users can change,
    disk full), HostFailed (the login shell ended), HostUnreachable.
    """
    if "\n" in workdir:
        raise Refused(f"workdir {workdir!r} is not a path that can be used", where=host)
    name = agent_name()
    begin(channel, command(python), host)
    channel.settimeout(START_S)
    startup = _Startup(channel, host)
    startup.send(PROGRAM + f"{name} {host} {workdir}\n".encode(errors="surrogateescape"))
    if startup.line(b"=tfdeploy-have=", b"=tfdeploy-need=") == b"=tfdeploy-need=":
        packed = agent_zip()
        startup.send(f"{hashlib.sha256(packed).hexdigest()} {len(packed)}\n".encode() + packed)
    startup.line(frames.GREETING)
    channel.settimeout(None)
    return Started(startup.reader, startup.rest, clean(startup.noise))


class _Startup:
    """Finds the lines of PROGRAM in the host's output, and turns failures into errors."""

    def __init__(self, channel: paramiko.Channel, host: str) -> None:
        self.reader = ChannelReader(channel)
        self.rest = b""
        self._channel, self._host = channel, host
        self.noise = b""  # the first lines of standard output that PROGRAM did not print
        self._output = b""  # the last lines of both outputs, for error messages
        self._python = ""  # the interpreter that is being tried
        self._begun = False  # True once PROGRAM runs in that interpreter
        self._noise_bytes = 0
        self._deadline = time.monotonic() + START_S

    def send(self, data: bytes) -> None:
        """Send bytes to the host.

        OSError is ignored: if the shell has ended, its output and its exit code, which are read
        next, show the cause.
        """
        with contextlib.suppress(OSError):
            self._channel.sendall(data)

    def line(self, *wanted: bytes) -> bytes:
        """Read lines until one of `wanted` comes, and return that line.

        If PROGRAM reports a failure instead, the matching error is raised. Also raises the errors
        of `_receive`.
        """
        start = 0  # index in `rest` at which the next line begins
        while True:
            end = self.rest.find(b"\n", start)
            if end < 0:
                self.rest, start = self.rest[start:], 0
                self._receive()
                continue
            line, start = self.rest[start:end].strip(), end + 1
            if line in (b"=tfdeploy-have=", b"=tfdeploy-need="):
                self._begun = True
            if line in wanted:
                self.rest = self.rest[start:]
                return line
            if line.startswith(b"=tfdeploy-fail="):
                raise _failed(line[15:].strip(), self._host)
            if line.startswith(b"=tfdeploy-python="):
                self._python = clean(line[17:])
                continue
            self._output = (self._output + line + b"\n")[-4096:]
            self.noise = (self.noise + line + b" ")[:1024].lstrip()

    def _receive(self) -> None:
        """Read bytes from the host. Raises an error if it is too late or the shell has ended."""
        left = self._deadline - time.monotonic()
        got = self.reader.read(max(0.0, left))
        late = time.monotonic() >= self._deadline
        if got is None and not late:
            raise self._ended()
        out, err = got or (b"", b"")
        self.rest += out
        self._output = (self._output + err)[-4096:]
        self._noise_bytes += len(out) + len(err)
        if self._noise_bytes > NOISE_BYTES:
            raise HostFailed(
                "the login shell prints without end: " + repr(clean(self._output + out)),
                where=self._host,
            )
        if late:
            on = f" on {self._python}" if self._python else ""
            raise HostFailed(
                f"the agent did not start within {START_S:g} s{on}{self._quoted()}",
                where=self._host,
            )

    def _ended(self) -> TfdeployError:
        """Return the error for a shell, an interpreter or PROGRAM that ended too early."""
        transport = self._channel.get_transport()
        self._channel.status_event.wait(_ENDED_S)
        status: Any = self._channel.exit_status
        # A negative status means that a signal killed the shell. If the host is shutting down, the
        # connection will end too, so wait for that.
        if status < 0:
            transport.join(_ENDED_S)
        if not transport.is_active():
            return HostUnreachable(
                "the connection ended while the agent was being started", where=self._host
            )
        code = f" with exit code {status}" if status >= 0 else ""
        if self._begun:
            return HostFailed(
                f"the agent ended{code} before it could answer{self._quoted()}", where=self._host
            )
        if self._python:
            return Refused(
                f"{self._python} there ended{code} before it ran our program{self._quoted()}",
                where=self._host,
                next="write `python: PATH` of a Python interpreter, 3.8 or newer, in the inventory",
            )
        return HostFailed(
            f"the login shell ended{code} before it ran our command{self._quoted()}",
            where=self._host,
            next="the account needs a login shell that runs commands: `ssh HOST true`",
        )

    def _quoted(self) -> str:
        """Return the last characters of the output, which usually name the cause of an error."""
        text = clean((self._output + b" " + self.rest)[-300:])
        return f"; it said: {text!r}" if text else ""


_REASONS = {
    "no_python": "there is no Python: neither the inventory's "
    "`python:` nor `python3` is there for a "
    "plain SSH command",
    "old_python": "the Python there is older than 3.8",
}


def _failed(text: bytes, host: str) -> TfdeployError:
    """Return the error for a line in which PROGRAM or the shell command reports a failure.

    `next` of the error is always a text of tfdeploy, never a text of the host.
    """
    failure = _failure(text)
    word, _, detail = failure.code.partition(" ")
    if word in _REASONS:
        words = _REASONS[word] + (f": {clean(detail.encode())!r}" if detail else "")
        return Refused(
            words,
            where=host,
            next="install python3 (3.8 or newer), or write `python: PATH` of one in the inventory",
        )
    said = quoted(host, failure.what or clean(text))
    if failure.code == "foreign":
        step = next_of(host, failure.advice, failure.details)
        return Refused(
            said,
            where=host,
            next=step,
        )
    if failure.code == "disk":
        return Refused(
            f"no room for the agent, which needs {in_binary_bytes(len(agent_zip()))}: {said}",
            where=host,
            next=f"free some space on {host}, or set its `workdir:` to a folder on another disk",
        )
    return Refused(
        f"the agent cannot be put there: {said}",
        where=host,
        next=f"write `workdir:` of {host} in the inventory: a folder that {host} can write to",
    )


class _Failure(NamedTuple):
    """The fields of a line that reports a failure."""

    code: str
    what: str = ""
    advice: str | None = None
    details: dict[str, Any] = {}  # noqa: RUF012 - never changed


def _failure(text: bytes) -> _Failure:
    """Parse the text of a line that reports a failure. The text is JSON or a plain code."""
    line = text.decode("ascii", "replace")
    if not line.startswith("{"):
        return _Failure(line)
    try:
        fields: dict[str, Any] = json.loads(line)
        code, what = (
            clean(str(fields.get(key) or "").encode(errors="replace")) for key in ("code", "what")
        )
        advice, details = fields.get("advice"), fields.get("details")
    except (ValueError, AttributeError, RecursionError):
        return _Failure("workdir")
    return _Failure(
        code,
        what,
        advice if isinstance(advice, str) else None,
        details if isinstance(details, dict) else {},
    )
