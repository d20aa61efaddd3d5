"""Checks each host before anything is sent: Python, rsync, disk, TensorFlow, other live runs.

A failed check raises Refused with the host and a remedy. The checks use the facts that a probe has
collected, and contact no host.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Notes
from tfdeploy.planning.options import Options
from tfdeploy.planning.source.entry_point import Command, chooses_python, named_interpreter
from tfdeploy.planning.source.source import Program
from tfdeploy.text.nexts import command_on_host, install_command
from tfdeploy.text.units import format_binary_bytes, format_roughly, version_numbers

RESERVE_BYTES = 64 << 20  # disk space for the run folder, the agent and the first logs
CLOCK_SKEW_S = 5.0  # a clock that is off by more than this many seconds gets a note


def refuse_same_machine(facts_by_host: FactsByHost) -> None:
    """Raise Refused if two host names of the inventory lead to the same machine, user and workdir.

    The tasks of both hosts would share one folder.
    """
    seen: dict[tuple[str, ...], str] = {}
    for name, facts in facts_by_host.items():
        same = seen.setdefault((facts.boot_id, facts.hostname, facts.user, facts.workdir), name)
        if same != name and facts.boot_id:
            raise Refused(
                f"{same} and {name} are one machine: {facts.hostname or 'it'}, user "
                f"{facts.user}, {facts.workdir}",
                where=f"hosts {same} and {name}",
                next=f"leave out one of the two names (--exclude {name}); for several tasks on one "
                f"machine, write `roles: {{worker: {{per_host: 2}}}}`",
            )


def refuse_live_run(facts_by_host: FactsByHost) -> None:
    """Raise Refused if the job already has a live run on a host."""
    for facts in facts_by_host.values():
        for run in facts.live_runs[:1]:
            started = datetime.fromtimestamp(run.started or 0, timezone.utc)
            since = "" if run.started is None else f" since {started:%Y-%m-%d %H:%M:%S} UTC"
            raise Refused(
                f"run {run.run} of this job, started by {run.who}, is alive on {facts.host}{since}",
                where=f"host {facts.host}",
                next=f"`tfdeploy status {run.run}` shows it, `tfdeploy stop {run.run}` ends it; "
                "to run both, write a second job file with another `name:` (-j FILE)",
            )


def check_host(
    entry: Host,
    facts: HostFacts,
    program: Program,
    options: Options,
    usual_python: str | None,
    command: Command,
) -> None:
    """Raise Refused if a host lacks what its tasks need: Python, rsync, disk space, TensorFlow.

    `usual_python`: the result of `most_used_python`. `command`: the job's command, which may name
    another interpreter than the inventory does.
    """
    named_python = named_interpreter(command)
    name, free, needed = entry.name, facts.free_disk_bytes, options.needed_bytes + RESERVE_BYTES
    if facts.python is None:
        broken = next((each for each in facts.problems if "does not run Python" in each), None)
        what = (
            f"on {name}, {broken}"
            if broken
            else f"no interpreter `{named_python or entry.python}` on {name}"
        )
        cure = no_python_remedy(entry, usual_python)
        if named_python:
            cure = "begin the command with `python`, or with the path of a Python on this host"
    elif options.sync and facts.rsync is None:
        what, cure = f"rsync is missing on {name}", install_command(name, "rsync", facts.user)
    elif free < needed:
        what = (
            f"the disk of {name} is too small: {format_binary_bytes(needed)} needed in "
            f"{facts.workdir}, {format_binary_bytes(free)} free"
        )
        cure = (
            f"free {format_binary_bytes(needed - free)} there, or set `workdir:` of {name} to a "
            "folder on a larger disk"
        )
    elif program.imports_tensorflow and facts.tensorflow is None and not chooses_python(command):
        what = f"{program.path} imports TensorFlow, and {facts.python} on {name} has none"
        other = (
            _as_on_most_hosts(None if usual_python == facts.python else usual_python)
            or "an interpreter that has TensorFlow"
        )
        cure = command_on_host(name, facts.python, "-m", "pip", "install", "tensorflow")
        if not named_python:
            cure = f"set {entry.setting_with_place('python')} to {other}, or: {cure}"
    else:
        return
    raise Refused(what, where=f"host {name}", next=cure)


def most_used_python(used: Iterable[HostFacts], program: Program) -> str | None:
    """Return the interpreter that most hosts use, or None if there is none.

    If the program imports TensorFlow, only interpreters that have TensorFlow count.
    """
    needs_tensorflow = program.imports_tensorflow
    return most_frequent_version(
        facts.python for facts in used if facts.tensorflow or not needs_tensorflow
    )


def most_frequent_version(versions: Iterable[str | None]) -> str | None:
    """Return the most frequent version; None if there is none.

    If several versions are equally frequent, the newest of them is returned.
    """
    counts = Counter(filter(None, versions))
    return max(
        counts, key=lambda version: (counts[version], version_numbers(version)), default=None
    )


def no_python_remedy(entry: Host, usual_python: str | None) -> str:
    """Return what to do if the interpreter that the inventory names does not exist on the host.

    `usual_python`: the interpreter of most hosts. If the inventory names python3, which is the
    default, the text also suggests to install Python.
    """
    if usual_python == entry.python:
        return (
            f"{command_on_host(entry.name, entry.python, '-c', 'pass')} shows why; or write "
            f"`python: PATH` of another Python for {entry.name} in the inventory"
        )
    install = f", or install python3 on {entry.name}" if entry.python == "python3" else ""
    wanted = _as_on_most_hosts(usual_python) or "a Python that exists on this host"
    return f"set {entry.setting_with_place('python')} to {wanted}{install}"


def _as_on_most_hosts(python: str | None) -> str:
    # Hosts report these paths, so they are quoted before a user pastes them into a shell.
    return f"{shlex.quote(python)}, which most hosts use" if python else ""


def tensorflow_notes(facts_by_host: FactsByHost) -> Notes:
    """Return a note for each host whose TensorFlow version differs from the most frequent one."""
    versions = [facts.tensorflow for facts in facts_by_host.values()]
    usual = most_frequent_version(versions)
    return tuple(
        f"{name} has {'TensorFlow ' + facts.tensorflow if facts.tensorflow else 'no TensorFlow'}, "
        f"{'most hosts have' if versions.count(usual) > 1 else 'another host has'} {usual}"
        for name, facts in facts_by_host.items()
        if usual and facts.tensorflow != usual
    )


def host_notes(entry: Host, facts: HostFacts, logs_bytes: int) -> Notes:
    """Return notes on problems that do not stop the launch but may matter later.

    `logs_bytes`: the total size to which the logs of the host's tasks may grow.
    """
    texts = [f"{entry.name}: {problem}" for problem in facts.problems]
    if facts.kill_user_processes and not facts.linger:
        linger = command_on_host(entry.name, "loginctl", "enable-linger")
        texts.append(f"logind of {entry.name} ends processes at logout; to prevent it: {linger}")
    if skew := skew_text(facts.clock_skew_s):
        texts.append(f"the clock of {entry.name} is {skew}; `tfdeploy logs` corrects its times")
    free = facts.free_disk_bytes
    if free < logs_bytes:
        most = format_binary_bytes(logs_bytes)
        texts.append(
            f"{entry.name} has {format_binary_bytes(free)} disk free, but its logs may need {most}"
        )
    return tuple(texts)


def skew_text(skew_s: float) -> str:
    """Return a text such as "2 min ahead"; "" if the clock is off by at most CLOCK_SKEW_S."""
    way = "ahead" if skew_s > 0 else "behind"
    size = format_roughly(round(abs(skew_s)), parts=2)
    return f"{size} {way}" if abs(skew_s) > CLOCK_SKEW_S else ""
