"""Selects the flags by which a program learns about its cluster.

The meaning of a flag is certain if its value reaches TensorFlow's server or cluster (`flag_uses`).
A flag with a name from the TensorFlow tutorials is accepted by its name alone. A flag with another
name is accepted only under three conditions: the program makes a cluster, the program's flag for
the job name is known, and the flag's type fits the value that tfdeploy would pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from tfdeploy.planning.flags import flag_definitions, flag_uses, sync_values
from tfdeploy.planning.flags.flag_definitions import ADDRESSES, Flag, Flags, plain_name
from tfdeploy.planning.flags.flag_uses import FlagUse
from tfdeploy.planning.source.origins import Origins
from tfdeploy.planning.source.source import Program

CLASSIC = ("ps_hosts", "worker_hosts", "job_name", "task_index")
NAMES = (*CLASSIC, "issync")
ALL = (*ADDRESSES, "cluster", "job_name", "task_index", "issync", "num_workers", "num_ps")
# {usual name of a flag: other names for it}. A flag with another name for "job_name" is accepted
# only if its choices, default or help text mention "ps" or "worker".
_OTHER_NAMES = {
    "job_name": "job role task_type type job_type node_type role_name node_name server_type",
    "task_index": """
        task_id task task_number task_num task_idx index idx worker_index worker_id job_index
        node_index role_index replica_id rank
    """,
    "ps_hosts": "ps ps_host ps_servers ps_addresses ps_list parameter_servers ps_hosts_list",
    "worker_hosts": """
        workers worker worker_host worker_servers worker_addresses worker_list wk_hosts
    """,
    "issync": """
        sync_replicas sync is_sync synchronous is_synchronous use_sync sync_mode sync_training
    """,
}
# If the program defines --job_name, a flag with one of these names is accepted too, even if no code
# of the program makes a cluster.
_ALWAYS = ("task_id", "task", "sync_replicas")
_ROLE = re.compile(r"(?<![A-Za-z])(ps|workers?)(?![A-Za-z])", re.IGNORECASE)


@dataclass(frozen=True)
class ClusterFlags:
    """The flags that describe the cluster to a program, and arguments whose meaning is not known.

    `flags`: positional arguments first, then flags in the order of ALL. `unknown_positionals`:
    further positional arguments that the program needs and whose meaning is not known.
    """

    flags: Flags = ()
    unknown_positionals: tuple[str, ...] = ()


def classic_flags() -> Flags:
    """Return the four flags of the TensorFlow tutorials, whatever flags the program defines."""
    return tuple(Flag(name, f"--{name}") for name in CLASSIC)


@lru_cache(maxsize=4)
def cluster_flags(program: Program) -> ClusterFlags:
    """Return the flags by which the program and the modules it imports learn about the cluster."""
    definitions = flag_definitions.defined_flags(program)
    cluster = flag_uses.makes_cluster(program)
    candidates = _flags_by_use(program, definitions) if cluster else {}
    for name in NAMES:
        own = flags_spelled(name, definitions)
        same = [
            each for each in candidates.get(name, ()) if each.dest in {flag.dest for flag in own}
        ]
        if own and (same or name not in candidates):
            candidates[name] = [replace((*same, own[0])[0], name=name, spelling=own[0].spelling)]
    chosen = {name: flags[0] for name, flags in candidates.items()}
    _add_unusual_flags(
        chosen, definitions, makes_cluster=cluster, gathers=flag_uses.trains_synchronously(program)
    )
    _drop_other_library_flags(chosen)
    if "worker_hosts" in chosen:
        chosen.pop("cluster", None)
    ordered = [
        sync_values.with_sync_values(chosen[name], program) for name in ALL if name in chosen
    ]
    # A flag for both values, with a template such as "{job_name}:{task_index}", is already in the
    # list as the flag for the job name. It must not be passed twice.
    ordered = [flag for flag in ordered if flag.name != "task_index" or not flag.template]
    return _positionals_first(ordered, definitions)


def flags_spelled(name: str, definitions: Iterable[Flag]) -> list[Flag]:
    """Return the flags that can be spelled `name`. Their field `spelling` has this spelling."""
    return [
        replace(flag, spelling=each)
        for flag in definitions
        for each in flag.spellings
        if plain_name(each) == name
    ]


def _flags_by_use(program: Program, definitions: Iterable[Flag]) -> dict[str, list[Flag]]:
    """Return {meaning of a flag, such as "task_index": the flags that the program uses in this
    way}.

    The first flag of each list is the most certain one.
    """
    by_dest = {flag.dest: flag for flag in reversed([*definitions]) if flag.dest}
    uses = flag_uses.find_flag_uses(program, Origins(program, by_dest))
    by_name: dict[str, list[Flag]] = {}
    for use in uses:
        dest, position, _ = use.origin
        word = Flag(
            "", "", "position", where=use.where, dest=f"sys.argv[{position}]", position=position
        )
        flag = by_dest.get(dest) if dest else word
        fitting = _adapt_to_use(flag, use, uses) if flag else None
        taken = {flags[0].dest for name, flags in by_name.items() if name != use.name}
        if fitting and (fitting.template or fitting.dest not in taken):
            by_name.setdefault(use.name, []).append(fitting)
    return by_name


def _adapt_to_use(flag: Flag, use: FlagUse, uses: Iterable[FlagUse]) -> Flag | None:
    """Return a copy of the flag that gives its value the form that the program expects.

    For example, the program may split the value at semicolons. Returns None if the expected form
    is not known.
    """
    named = replace(flag, name=use.name, because=use.where)
    by, value = next(iter(use.origin.steps), ("", ""))
    if use.name == "issync" and use.sync_values:
        return replace(named, sync_values=_complete_sync_values(flag, use.sync_values))
    if use.name in ADDRESSES and by != "one":
        if by in ("split", "json"):
            named = replace(named, separator=str(value) or by)
        elif not (flag.separator or flag.form == "list" or flag.parser):
            return None
        return named if flag.kind == "text" else None
    if by != "split":
        return named
    items = {
        each.name: each.origin.steps[1][1]
        for each in uses
        if each.origin.dest == use.origin.dest and each.origin.steps[1:]
    }
    template = f"{{job_name}}{value}{{task_index}}"
    is_pair = items == {"job_name": 0, "task_index": 1}
    return replace(named, template=template) if is_pair else None


def _complete_sync_values(flag: Flag, async_and_sync_values: tuple[str, str]) -> tuple[str, str]:
    """Return the flag's values for async and sync training.

    `async_and_sync_values`: these two values, one of which may be "" (not known). In place of the
    "", the result has the first of these values that exists: another choice of the flag, the
    flag's default, or "not-<the known value>".
    """
    known = async_and_sync_values[0] or async_and_sync_values[1]
    others = [word for word in (*flag.choices, flag.default) if word not in ("", known)]
    other = next(iter(others), f"not-{known}")
    return (async_and_sync_values[0] or other, async_and_sync_values[1] or other)


def _add_unusual_flags(
    chosen: dict[str, Flag], definitions: Flags, *, makes_cluster: bool, gathers: bool
) -> None:
    """Add flags with unusual names to `chosen`, if their definitions fit.

    For example, a flag for the index of the task must be an integer. A flag is added only for a
    fact about the cluster that no flag in `chosen` gives yet.
    """
    for name, others in _OTHER_NAMES.items():
        if name in chosen or (
            "job_name" not in chosen and (name != "job_name" or not makes_cluster)
        ):
            continue
        taken = {flag.dest for flag in chosen.values()}
        always = name != "issync" or gathers
        fitting = [
            flag
            for other in others.split()
            if other in _ALWAYS or (makes_cluster and always)
            for flag in flags_spelled(other, definitions)
            if flag.dest not in taken and _definition_fits(name, flag)
        ]
        if fitting:
            chosen[name] = replace(fitting[0], name=name)


def _drop_other_library_flags(chosen: dict[str, Flag]) -> None:
    """Drop flags with unusual names that are not of the same library as the flag for the job name.

    The flags of a command must all be of one library. For example, absl ends the program at a flag
    that only argparse knows.
    """
    job_name = chosen.get("job_name")
    for name, flag in list(chosen.items()):
        libraries = {flag.library, job_name.library if job_name else ""} - {""}
        if len(libraries) > 1 and flag.plain_name != name:
            del chosen[name]


def _definition_fits(name: str, flag: Flag) -> bool:
    """Return whether a flag with this definition can be the flag for `name`.

    For example, a flag for "task_index" must be an integer.
    """
    if name == "issync":
        return flag.kind != "text"
    if name == "job_name":
        texts = (flag.help, flag.default, *flag.choices)
        mentions_role = any(map(_ROLE.search, texts))
        return flag.kind == "text" and flag.form == "value" and mentions_role
    return flag.kind == ("int" if name == "task_index" else "text")


def _positionals_first(flags: list[Flag], definitions: Iterable[Flag]) -> ClusterFlags:
    """Return the flags. Positional arguments come first, in the order that the program expects.

    If the meaning of a positional argument is not known, all later ones are left out.
    """
    named = [flag for flag in flags if flag.form != "position"]
    by_hand = {flag.position: flag for flag in flags if flag.position}
    if by_hand:
        missing = [f"sys.argv[{at}]" for at in range(1, max(by_hand) + 1) if at not in by_hand]
        words = [] if missing else [by_hand[at] for at in sorted(by_hand)]
        return ClusterFlags((*words, *named), tuple(missing))
    meant = {flag.dest: flag for flag in flags if flag.form == "position"}
    given: list[Flag] = []
    unknown: list[Flag] = []
    for flag in definitions:
        if flag.form == "position" and meant:
            (given if flag.dest in meant and not unknown else unknown).append(
                meant.get(flag.dest, flag)
            )
    return ClusterFlags((*given, *named), tuple(flag.dest for flag in unknown))
