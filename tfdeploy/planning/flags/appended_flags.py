"""Chooses the flags that are appended to every task's command. A note explains the choice."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tfdeploy.model.job import Job
from tfdeploy.model.modes import ModeRules, rules_of
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.flags import flag_definitions, flags, torch_launch
from tfdeploy.planning.flags.flag_definitions import Flag, Flags
from tfdeploy.planning.flags.flags import ClusterFlags
from tfdeploy.planning.source.entry_point import flags_end_index
from tfdeploy.planning.source.source import Program
from tfdeploy.text import placeholders

_OF_CLUSTER = (*flags.CLASSIC, "chief_hosts", "cluster")
NAME_THEM = "write the arguments into the command, as in `python train.py {job_name} {task_index}`"


@dataclass(frozen=True)
class AppendedFlags:
    """The flags that are appended to every task's command, and a note that explains the choice.

    `in_command`: flags about the cluster that the command already contains.
    """

    flags: Flags
    note: str
    in_command: Flags = ()

    @property
    def given(self) -> Flags:
        """Return all flags about the cluster that the tasks get."""
        return (*self.flags, *self.in_command)


def choose_flags(
    job: Job, program: Program, roles: Collection[str] = ("ps", "worker")
) -> AppendedFlags:
    """Choose the flags to append, as the job's key `flags` says.

    "none" means no flags, "classic" the flags of the TensorFlow tutorials, and "auto" the flags
    that the program defines. Without the key, the mode decides. `roles`: the roles that have tasks.
    """
    used = (name for word in job.command for name in placeholders.placeholder_names(word))
    if named := next((name for name in used if name in _OF_CLUSTER), None):
        return AppendedFlags((), f"no flags appended: the command already contains {{{named}}}")
    if job.flags == "none":
        return AppendedFlags((), "no flags appended, because the setting is `flags: none`")
    mode_rules = rules_of(job.mode)
    if mode_rules.ranks:
        return _local_rank_flags(job, program)
    if job.flags is None and mode_rules.single:
        return AppendedFlags((), f"no flags appended: mode {job.mode} has no cluster")
    offered = flags.cluster_flags(program)
    if job.flags == "classic":
        offered = ClusterFlags(flags.classic_flags())
    if job.flags is None and not mode_rules.takes_flags:
        offered = _certain_flags(offered, mode_rules, roles)
        if not offered.flags:
            return AppendedFlags(
                (),
                f"no flags appended: mode {job.mode} describes the cluster in TF_CONFIG; to append "
                "flags too, write `flags: auto`",
            )
    line = program.script_line
    if line is not None and not line.passes_arguments:
        return AppendedFlags(
            (),
            f"no flags appended: {line.where} does not pass the script's arguments to "
            f'{program.path}; write "$@" at the end of that line',
        )
    command = job.command[: flags_end_index(job.command)]
    chosen = [flag for flag in offered.flags if _fits_roles(flag, roles)]
    has_positional = bool(flag_definitions.positional_words(command, program)[0])
    own = tuple(
        flag
        for flag in chosen
        if (
            has_positional
            if flag.form == "position"
            else flag_definitions.is_in_command(flag, command)
        )
    )
    added = tuple(flag for flag in chosen if flag not in own)
    note = _appended_note(job, program, added, own)
    if offered.unknown_positionals:
        names = ", ".join(offered.unknown_positionals)
        note += f"; tfdeploy knows no value for {names}: {NAME_THEM}"
    return AppendedFlags(added, note, own)


def _fits_roles(flag: Flag, roles: Collection[str]) -> bool:
    """Return whether the flag makes sense in a cluster with these roles.

    chief_hosts needs a chief. num_workers does not fit a cluster with a chief, because
    SyncReplicasOptimizer would count the chief as a worker.
    """
    return ("chief" in roles) == (flag.name == "chief_hosts") or flag.name not in (
        "chief_hosts",
        "num_workers",
    )


def _certain_flags(offered: ClusterFlags, mode: ModeRules, roles: Collection[str]) -> ClusterFlags:
    """Return the flags to append in a mode whose programs usually read TF_CONFIG.

    A flag counts only if its value certainly reaches TensorFlow's cluster. The flags must describe
    the whole cluster, because a program that gets incomplete flags might ignore TF_CONFIG.
    Otherwise the result is empty. In mode ingraph, only flags for addresses are appended, because
    the client is not a task of the cluster.
    """
    certain = tuple(flag for flag in offered.flags if flag.because)
    addresses = {f"{role}_hosts" for role in roles} - {"evaluator_hosts"}
    if "one_client" in mode.traits:
        return ClusterFlags(tuple(flag for flag in certain if flag.name in {*addresses, "cluster"}))
    names = {name for flag in certain for name in flag.names}
    whole = "cluster" in names or addresses <= names
    typed = "job_name" in names or {*roles} == {"worker"}
    if whole and typed and "task_index" in names:
        return ClusterFlags(certain, offered.unknown_positionals)
    return ClusterFlags()


def _appended_note(job: Job, program: Program, added: Flags, own: Flags) -> str:
    kept = f"; the command already has {', '.join(flag.spelling for flag in own)}" if own else ""
    listed = " ".join(map(_flag_text, added))
    if job.flags == "classic":
        return f"flags appended by `flags: classic`: {listed or 'none'}{kept}"
    if program.unread_reason:
        return (
            f"no flags appended: {program.unread_reason}; write the flags into the command "
            "({job_name} ...), or write `flags: classic`"
        )
    if listed:
        names = {name for flag in (*added, *own) for name in flag.names}
        # Without a flag for the index, every task of a role would act as its first task, and the
        # cluster would wait for the other tasks for ever.
        lacking = (
            "; none of these flags is the task's index: write all flags that the program needs "
            "into the command, for example --FLAG={task_index}"
        )
        if "job_name" not in names or "task_index" in names:
            lacking = ""
        return f"flags appended because {program.path} defines them: {listed}{kept}{lacking}"
    if own:
        return f"no flags appended{kept}"
    return (
        f"no flags appended: {program.path} defines none of "
        f"{' '.join('--' + name for name in flags.NAMES)}; TF_CONFIG describes the cluster"
    )


def _flag_text(flag: Flag) -> str:
    """Return the flag as the note shows it, such as "--job_name".

    If the flag's name does not show its meaning, the text also contains the meaning and the place
    that shows it: "--role as {job_name} (train.py:12)".
    """
    spelled = flag.spelling or flag.dest
    because = f" ({flag.because})" if flag.because else ""
    if flag.plain_name == flag.name and not flag.template:
        return spelled
    return f"{spelled} as {flag.template or f'{{{flag.name}}}'}{because}"


def _local_rank_flags(job: Job, program: Program) -> AppendedFlags:
    """Return the flag --local_rank if the program defines it, because old launchers pass this flag.

    No other flag is needed, because tasks in a mode with ranks get environment variables.
    """
    local = torch_launch.local_rank_flag(program, job.command)
    more = (
        torch_launch.rank_flags_note(program, job.command),
        torch_launch.spawning_note(program),
        torch_launch.other_launcher_note(program, job.env),
    )
    why = "no flags appended:"
    for flag in local:
        why = f"{flag.spelling} appended because {flag.where} defines it;"
    note = f"{why} mode {job.mode} sets {', '.join(ranks.VARIABLES)}"
    return AppendedFlags(local, "; ".join(filter(None, (note, *more))))
