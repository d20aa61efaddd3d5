"""Reads the values of a job's secrets on this machine: from its environment, files and commands.

No error shows a value.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.model.job import Job, Secret, SecretSource

# Linux's limit on the length of NAME=value and its final NUL (MAX_ARG_STRLEN).
MOST_BYTES = 128 << 10
COMMAND_S = 30.0  # time limit of a command that prints a secret, in seconds
# Texts are searched only for secrets that have at least this length. Many texts contain a shorter
# secret by chance.
SHORTEST_SHOWN = 6
_ERROR_BYTES = 2000  # limits how much of a command's standard error a message shows
_READ_BYTES = 1 << 16  # one read from a pipe returns at most this many bytes


def read_secrets(job: Job, environ: Mapping[str, str]) -> dict[str, Secret]:
    """Return {variable name: secret value}.

    If environment variables are not set, raises UsageError with a list of them. If another source
    has no usable value, raises ConfigError.
    """
    sources = {
        name: job.secret_sources.get(name, SecretSource(variable=name)) for name in job.secrets
    }
    variables = [source.variable for source in sources.values() if source.variable]
    missing = [variable for variable in variables if variable not in environ]
    if missing:
        raise UsageError(
            f"not set in your environment: {', '.join(missing)} (named by the job's `secrets:`)",
            where="the environment",
            next=f"`export {missing[0]}=...`, or remove it from `secrets:`",
        )
    return {
        name: Secret(_checked_text(name, source, _secret_value(name, source, job, environ)))
        for name, source in sources.items()
    }


def refuse_shown_secrets(
    job: Job, secret_by_variable: Mapping[str, Secret], value_by_flag: Mapping[str, str]
) -> None:
    """Raise UsageError if a secret's value stands in a text that other people can read.

    All users of a host can read the command of a task. The plan shows `env`, `data`, `keep`,
    `metrics` and the flags. `value_by_flag`: {flag: its value}.
    """
    roles, sources = job.roles.items(), job.data.items()
    shown = [
        *((f"command[{n}]", word) for n, word in enumerate(job.command)),
        *((f"roles.{role}.command", word) for role, rule in roles for word in rule.command),
        *((f"env.{name}", text) for name, text in job.env.items()),
        *((f"data.{name}", text) for name, each in sources for text in (name, each.path)),
        *((f"keep[{n}]", path) for n, path in enumerate(job.keep)),
        *((f"metrics.{name}", text) for name, text in job.metrics.items()),
        *value_by_flag.items(),
    ]
    for name, secret in secret_by_variable.items():
        for place, text in shown:
            if secret.is_in(text, SHORTEST_SHOWN):
                key = place.partition("[")[0].removesuffix(".command")
                raise UsageError(
                    f"{place} holds the value of the secret {name}, and others could read it there",
                    where=job.places.get(key, key),
                    next=f"let the program read {name} from its environment",
                )


def _secret_value(name: str, source: SecretSource, job: Job, environ: Mapping[str, str]) -> bytes:
    if source.variable is not None:
        return os.fsencode(environ[source.variable])
    if source.file is not None:
        value = _read_secret_file(name, source.file, source.where)
    else:
        value = _run_secret_command(name, source, job.folder or None)
    return value.removesuffix(b"\n").removesuffix(b"\r") if value.endswith(b"\n") else value


def _checked_text(name: str, source: SecretSource, value: bytes) -> str:
    if not value:
        fault, cure = "is empty", f"give {name} a value, or remove it from `secrets:`"
    elif b"\0" in value:
        fault = "holds a NUL character, which an environment variable cannot hold"
        cure = "encode it, for example as base64, and decode it in the program"
    elif len(value) + len(name) + 2 > MOST_BYTES:
        fault = f"is longer than a variable can be ({MOST_BYTES >> 10} KiB with its name)"
        cure = "keep it in a file of the host, and name that file to the program"
    else:
        return os.fsdecode(value)
    where = source.where or f"the environment: {source.variable}"
    raise ConfigError(f"the secret {name} {fault}", where=where, next=cure)


def _read_secret_file(name: str, path: str, where: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the file of the secret {name} cannot be read: {path}: {error.strerror}",
            where=where,
            next=f"write that file, or name another file for {name}",
        ) from error


def _run_secret_command(name: str, source: SecretSource, folder: str | None) -> bytes:
    """Return the command's standard output.

    Errors show the standard error of a failed command, and never its standard output.
    """
    program = source.command[0]
    try:
        process = subprocess.Popen(
            source.command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the command of the secret {name} does not start: {program}: "
            f"{getattr(error, 'strerror', None) or error}",
            where=source.where,
            next=f"install {program}, or name another source for {name}",
        ) from error
    code: int | None = None
    with process:
        try:
            out, errors, ended = _read_output_tails(process)
            if ended:
                code = process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(OSError):
                process.kill()  # This has no effect on a process that has ended already.
    if code == 0 or len(out) > MOST_BYTES:
        return out  # If the value is too long, `_checked_text` will refuse it.
    if code is None:
        fault = f"did not end within {COMMAND_S:g} s"
        cure = "run the command by hand: it may wait for input, and tfdeploy gives it none"
    else:
        text = errors[-_ERROR_BYTES:].decode("utf-8", "replace").strip()
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        fault = f"ended with {ending}" + (f"; it said: {text}" if text else "")
        cure = "run the command by hand, in the job file's folder"
    raise ConfigError(f"the command of the secret {name} {fault}", where=source.where, next=cure)


def _read_output_tails(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, bool]:
    """Return (standard output, standard error, whether both have ended).

    Reads for at most COMMAND_S seconds. Keeps only the last bytes of each stream, slightly more
    than the longest secret has.
    """
    assert process.stdout is not None and process.stderr is not None
    deadline = time.monotonic() + COMMAND_S
    read = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for stream in read:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map() and len(read[process.stdout]) <= MOST_BYTES:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                chunk = os.read(key.fd, _READ_BYTES)
                read[key.data] = (read[key.data] + chunk)[-MOST_BYTES - _READ_BYTES :]
                if not chunk:
                    selector.unregister(key.data)
        return read[process.stdout], read[process.stderr], not selector.get_map()
