"""Install the agent on a host and start it, over an SSH channel of its own.

One command, which every login shell interprets alike, searches for a Python interpreter. The
interpreter reads the program PROGRAM from standard input, so that the program needs no quoting.
Everything that the login shell prints before the program starts is ignored.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import paramiko

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed, HostUnreachable, Refused, TfdeployError
from tfdeploy.model.answers.failures import Failure, format_advice, quote_host_text
from tfdeploy.text.typed import InvalidJsonValue, decode_untrusted
from tfdeploy.text.units import format_binary_bytes
from tfdeploy.transport.agent.archive import agent_bytes, agent_name, packed_agent
from tfdeploy.transport.agent.first_stage import PROGRAM
from tfdeploy.transport.ssh.channel_reader import ChannelReader
from tfdeploy.transport.ssh.command import START_S, start_command
from tfdeploy.transport.ssh.errors import printable_line

NOISE_BYTES = 1 << 20  # the login shell may print at most this many bytes
_TOO_OLD = 99  # exit code of a Python older than 3.8
# How many seconds to wait for the exit code, and then again for the end of the connection.
_ENDED_S = 2.0
_INTERPRETER = re.compile(r"(~/)?[\w.+@,=: /-]+\Z")


def command(python: str) -> str:
    """Return the shell command that runs PROGRAM with Python 3.8 or newer.

    The command tries the interpreters `python` (the parameter), python3 and python, in this order.
    Raises Refused if `python` has characters that the command cannot contain.

    The command contains one pair of single quotes, with double quotes inside. The command must not
    contain further single quotes, backslashes or `!`, because csh and fish must interpret it too.
    """
    if not _INTERPRETER.match(python):
        raise Refused(
            f"python {python!r} has characters that are not allowed",
            next="write `python: PATH` in the inventory",
        )
    interpreters = dict.fromkeys(
        (
            python.replace("~/", "$HOME/", 1) if python.startswith("~/") else python,
            "python3",
            "python",
        )
    )
    candidates = " ".join(f'"{path}"' for path in interpreters)
    code = (
        "import sys;sys.version_info<(3,8) and "
        f"sys.exit({_TOO_OLD});exec(sys.stdin.buffer.read({len(PROGRAM)}))"
    )
    script = (
        f'old=; for p in {candidates}; do command -v "$p" >/dev/null 2>/dev/null || continue; '
        'echo; echo =tfdeploy-python= "$p"; '
        f'"$p" -S -E -c "{code}"; s=$?; case $s in {_TOO_OLD}) old=$p;; 12[67]) ;; *) exit $s;; '
        "esac; done; "
        'echo; if test -n "$old"; then echo =tfdeploy-fail= old_python "$old" is "$("$old" -V '
        '2>&1)"; '
        "else echo =tfdeploy-fail= no_python; fi"
    )
    return f"exec /bin/sh -c '{script}'"


class StartedAgent(NamedTuple):
    """An agent that has been started.

    `reader`: reads the agent's output. `unread`: the bytes that came after the agent's greeting.
    `noise`: what the login shell printed before the greeting.
    """

    reader: ChannelReader
    unread: bytes
    noise: str


def start(
    channel: paramiko.Channel,
    workdir: str,
    host: str,
    python: str,
    on_missing: Callable[[], object],
) -> StartedAgent:
    """Install the agent on the host if the host lacks it, and start it.

    `on_missing`: called if the host lacks the agent, before it is installed.

    Raises Refused (no Python 3.8+, a workdir that cannot be created or that other users can change,
    disk full), HostFailed (the login shell ended), HostUnreachable.
    """
    if "\n" in workdir:
        raise Refused(f"workdir {workdir!r} has a line break, which is not allowed", where=host)
    name = agent_name()
    start_command(channel, command(python), host)
    channel.settimeout(START_S)
    startup = _Startup(channel, host)
    startup.send(PROGRAM + f"{name} {host} {workdir}\n".encode(errors="surrogateescape"))
    if startup.wait_for_line(b"=tfdeploy-have=", b"=tfdeploy-need=") == b"=tfdeploy-need=":
        on_missing()
        packed = packed_agent()
        startup.send(b"%d\n" % len(packed) + packed)
    startup.wait_for_line(frames.GREETING)
    channel.settimeout(None)
    return StartedAgent(startup.reader, startup.unread, printable_line(startup.noise))


class _Startup:
    """The start of one agent. Finds the lines of PROGRAM in the host's output, and turns failures
    into errors."""

    def __init__(self, channel: paramiko.Channel, host: str) -> None:
        self.reader = ChannelReader(channel)
        self.unread = b""
        self._channel, self._host = channel, host
        self.noise = b""  # the first lines of standard output that PROGRAM did not print
        self._output = b""  # the last lines of both outputs, for error messages
        self._python = ""  # the interpreter that is being tried
        self._program_runs = False  # True once PROGRAM runs in that interpreter
        self._noise_bytes = 0
        self._deadline = time.monotonic() + START_S

    def send(self, data: bytes) -> None:
        """Send bytes to the host.

        OSError is ignored. It means that the shell has ended. The caller then reads the shell's
        output and exit code, which show the cause.
        """
        with contextlib.suppress(OSError):
            self._channel.sendall(data)

    def wait_for_line(self, *expected: bytes) -> bytes:
        """Read lines until one of `expected` comes, and return that line.

        If PROGRAM or the shell command reports a failure, raises the error for this failure. Also
        raises the errors of `_receive`.
        """
        start = 0  # index in `unread` at which the next line begins
        while True:
            end = self.unread.find(b"\n", start)
            if end < 0:
                self.unread, start = self.unread[start:], 0
                self._receive()
                continue
            line, start = self.unread[start:end].strip(), end + 1
            if line in (b"=tfdeploy-have=", b"=tfdeploy-need="):
                self._program_runs = True
            if line in expected:
                self.unread = self.unread[start:]
                return line
            if line.startswith(b"=tfdeploy-fail="):
                raise _reported_failure_error(line[15:].strip(), self._host)
            if line.startswith(b"=tfdeploy-python="):
                self._python = printable_line(line[17:])
                continue
            self._output = (self._output + line + b"\n")[-4096:]
            self.noise = (self.noise + line + b" ")[:1024].lstrip()

    def _receive(self) -> None:
        """Read bytes from the host. Raises if the deadline has passed or the shell has ended."""
        remaining_s = self._deadline - time.monotonic()
        received = self.reader.read(max(0.0, remaining_s))
        late = time.monotonic() >= self._deadline
        if received is None and not late:
            raise self._early_end_error()
        out, err = received or (b"", b"")
        self.unread += out
        self._output = (self._output + err)[-4096:]
        self._noise_bytes += len(out) + len(err)
        if self._noise_bytes > NOISE_BYTES:
            raise HostFailed(
                "the login shell prints too much before it runs tfdeploy's command: "
                + repr(printable_line(self._output + out)),
                where=self._host,
                next=_SHELL_CURE,
            )
        if late:
            interpreter = f" on {self._python}" if self._python else ""
            raise HostFailed(
                f"the agent did not start within {START_S:g} s{interpreter}{self._quote_output()}",
                where=self._host,
                next=None if self._python else _SHELL_CURE,
            )

    def _early_end_error(self) -> TfdeployError:
        """Return the error for a shell, an interpreter or PROGRAM that ended too early."""
        transport = self._channel.get_transport()
        self._channel.status_event.wait(_ENDED_S)
        status: Any = self._channel.exit_status
        # A negative status means that a signal killed the shell. The host may be shutting down. The
        # connection then ends too, and the error must say so. So wait until it has ended.
        if status < 0:
            transport.join(_ENDED_S)
        if not transport.is_active():
            return HostUnreachable(
                "the connection ended while the agent was being started", where=self._host
            )
        code = f" with exit code {status}" if status >= 0 else ""
        if self._program_runs:
            return HostFailed(
                f"the agent ended{code} before it could answer{self._quote_output()}",
                where=self._host,
            )
        if self._python:
            return Refused(
                f"{self._python} ended{code} before it ran tfdeploy's program"
                f"{self._quote_output()}",
                where=self._host,
                next=_FORK_CURE
                if any(text.encode() in self._output for text in ("Cannot fork", "fork: "))
                else "write `python: PATH` of a Python interpreter, 3.8 or newer, in the inventory",
            )
        return HostFailed(
            f"the login shell ended{code} before it ran tfdeploy's command{self._quote_output()}",
            where=self._host,
            next=_SHELL_CURE,
        )

    def _quote_output(self) -> str:
        """Return the end of the host's output as a part of an error message, or "" if there is
        none. The output usually names the cause of the error."""
        text = printable_line((self._output + b" " + self.unread)[-300:])
        return f"; it said: {text!r}" if text else ""


_SHELL_CURE = "the account needs a login shell that runs commands; `ssh HOST true` tests this"
_FORK_CURE = "end processes of this user on the host, or allow the user more of them (`ulimit -u`)"
_REASONS = {
    "no_python": "there is no Python: a command over SSH finds none of the inventory's `python:`, "
    "`python3` and `python`",
    "old_python": "the host's Python is older than 3.8",
}


def _reported_failure_error(text: bytes, host: str) -> TfdeployError:
    """Return the error for a line in which PROGRAM or the shell command reports a failure.

    The error's `next` (what to type) is a text of tfdeploy, never of the host.
    """
    reason, _, detail = text.decode("ascii", "replace").partition(" ")
    if reason in _REASONS:
        return Refused(
            _REASONS[reason] + (f": {printable_line(detail.encode())!r}" if detail else ""),
            where=host,
            next="install python3 (3.8 or newer) on the host, or write its path in the "
            "inventory: `python: PATH`",
        )
    try:
        failure = decode_untrusted(text, Failure)
    except InvalidJsonValue:
        failure = Failure(code="workdir", what="")
    reported = quote_host_text(
        host, printable_line(failure.what.encode(errors="replace")) or printable_line(text)
    )
    if failure.code == "foreign":
        return Refused(
            reported, where=host, next=format_advice(host, failure.advice, failure.details)
        )
    if failure.code == "disk":
        return Refused(
            f"no space for the agent ({format_binary_bytes(agent_bytes())}): {reported}",
            where=host,
            next=f"free some space or inodes on {host}, or set its `workdir:` to a folder on "
            "another disk",
        )
    return Refused(
        f"the agent cannot be installed on this host: {reported}",
        where=host,
        next=f"in the inventory, set `workdir:` of {host} to a folder that its user can write to",
    )
