"""Checks what the login shell prints, what logind ends at logout, and which runs are alive."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.planning.preflight.case import HostCase, Problem

_SHOWN = 60


def shell_output(case: HostCase) -> Iterator[Problem]:
    if case.noise:
        shown = case.noise if len(case.noise) <= _SHOWN else case.noise[: _SHOWN - 3] + "..."
        yield Problem(
            f"its login shell prints {shown!r} even without a terminal, which makes scp, rsync "
            "and git fail",
            f"`tfdeploy ssh {case.host.name}`, and add this line to ~/.bashrc (zsh: ~/.zshenv), "
            "above all commands that print: [ -t 1 ] || return (csh, in ~/.cshrc: "
            "if (! $?prompt) exit; fish, in config.fish: status is-interactive; or return)",
        )


def logout_cleanup(case: HostCase) -> Iterator[Problem]:
    """Yield a problem if logind ends processes or removes shared memory at the user's last logout.

    If lingering is enabled for the user, logind does neither.
    """
    facts, at_logout = case.facts, case.preflight.logout
    if facts.linger or facts.linger is None:
        return
    fix = case.command("loginctl", "enable-linger", facts.user, root=True)
    if at_logout.kills:
        yield Problem(
            "logind kills all that you run when your last session ends (KillUserProcesses): the "
            "run would end when the launch disconnects",
            f"{fix}, or write KillExcludeUsers=root {facts.user} in /etc/systemd/logind.conf",
            "error",
        )
    elif facts.kill_user_processes:
        yield Problem("logind kills what users leave running (KillUserProcesses=yes)", fix)
    if at_logout.removes_ipc:
        yield Problem(
            "logind removes your shared memory when your last session ends (RemoveIPC): NCCL and "
            "data loaders may fail",
            fix,
        )


def live_runs(case: HostCase) -> Iterator[Problem]:
    for run in case.facts.live_runs:
        yield Problem(
            f"run {run.run} of this job, started by {run.who}, is alive: a launch is refused "
            "until this run ends",
            f"`tfdeploy stop {run.run}`",
        )


def unreported_problems(case: HostCase) -> Iterator[Problem]:
    """Yield the problems that the probe has found and that no other rule reports."""
    covered_by_other_rules = ("there is no program ", "does not run Python here")
    for text in case.facts.problems:
        if not any(known_text in text for known_text in covered_by_other_rules):
            yield Problem(text, f"`tfdeploy ssh {case.host.name}`")
