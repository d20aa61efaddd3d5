"""Finds out for which mode a program is written, from constructs such as `tf.train.Server`.

Only syntax trees are read. A construct is certain if every run of the program reaches it. A
construct in a branch that depends on a flag, for example, is not certain.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job, Mode
from tfdeploy.model.modes import rules_of
from tfdeploy.planning.flags import flag_definitions, flags, torch_launch
from tfdeploy.planning.program import servers
from tfdeploy.planning.source.expressions import (
    argument,
    dotted_name,
    last_name,
    literal_text,
)
from tfdeploy.planning.source.parsed_file import enclosing_nodes, file_of, place_of
from tfdeploy.planning.source.reached import certainly_reached
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used

_COORDINATED: tuple[Mode, ...] = ("coordinator",)
_SERVED: tuple[Mode, ...] = ("async", "sync", "ingraph", "coordinator")
_MIRRORED = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_ESTIMATED: tuple[Mode, ...] = ("async", "mirrored", "local")
# {last part of a name in TensorFlow: the modes in which a program can use this name, the most
# likely mode first}
_OF_TENSORFLOW: dict[str, tuple[Mode, ...]] = {
    "Server": _SERVED,
    "replica_device_setter": ("async", "sync"),
    "SyncReplicasOptimizer": ("sync",),
    **dict.fromkeys(_MIRRORED, ("mirrored", "local")),
    "ParameterServerStrategy": _COORDINATED,
    "ParameterServerStrategyV2": _COORDINATED,
    # This function of tf.estimator starts, in each task, the server that TF_CONFIG describes.
    "train_and_evaluate": _ESTIMATED,
    "MirroredStrategy": ("local", "plain"),
}
# If a program calls a function whose name ends with one of these texts, it uses another framework
# than TensorFlow, and needs mode plain.
_OF_OTHERS = (
    ".init_process_group",
    ".DistributedDataParallel",
    ".distributed.initialize",
    ".init_device_mesh",
    ".transformers.Trainer",
)
# Finds imports of libraries for training on several machines. The libraries of the group `started`
# start their tasks themselves or have a launcher of their own, so no mode can be suggested.
_LIBRARIES = re.compile(
    r"(?P<started>\bray\b|pyspark|mpi4py|tensorflowonspark|dask\.distributed|horovod\.\w*run)|"
    r"horovod|lightning|\baccelerate\b|deepspeed|(transformers|trl)(?= import .*Trainer\b)"
)
# Finds a call of Lightning's Trainer, with its arguments. These may contain parentheses, nested up
# to two levels deep.
_TRAINERS = re.compile(r"\bTrainer(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))")
# Finds the host to which all ranks connect first, if the program itself names this host.
_FIXED_HOST = re.compile(
    r"""(?:MASTER_ADDR["']\] *= *["']|init_method *= *f?["']tcp://)([\w.-]+)"""
)
# The body of such a node may not run, or not for each task.
_BRANCHES = (ast.If, ast.IfExp, ast.Match, ast.FunctionDef, ast.Lambda)
# Finds a placeholder that describes the cluster or the task, and not a data set or a `keep` folder.
_CLUSTER_PLACEHOLDER = re.compile(r"\{(?!data\.|keep\.)")
# {environment variable of a task: the modes that set it}.
_VARIABLES: dict[str, tuple[Mode, ...]] = {
    "RANK": ("plain",),
    "WORLD_SIZE": ("plain",),
    "TF_CONFIG": ("mirrored", "coordinator", "async", "sync"),
}


@dataclass(frozen=True)
class Sign:
    """A construct in a program that shows for which mode the program is written.

    `modes`: the modes that support the construct, the most likely one first; () if the operator
    must choose. `action`: what the program does, such as "uses tf.train.Server".
    """

    modes: tuple[Mode, ...]
    action: str
    where: str  # "train.py:12"
    is_certain: bool
    is_flag: bool = False  # the definition of a flag, a weaker sign than the use of a strategy
    # True if the program probably executes the construct when each flag has its default value and
    # TF_CONFIG is set.
    by_default: bool = False

    def __str__(self) -> str:
        return f"{self.where} {self.action}"


def find_signs(program: Program) -> tuple[Sign, ...]:
    """Return the program's constructs that show its mode. Flags about the cluster come first."""
    if alone := _whole_cluster_sign(program):
        return (alone,)
    certain = certainly_reached(program, has_workers=True).nodes
    signs = [*_flag_signs(program), *_tensorflow_signs(program, certain)]
    signs += _other_signs(program, certain)
    serves = any(sign.modes in (_SERVED, _ESTIMATED, _COORDINATED) for sign in signs)
    signs += _client_signs(program, certain, serves and not servers.client_job_name(program))
    if any(sign.modes == _COORDINATED for sign in signs):
        # A program for mode coordinator may start servers too, so a server says nothing about the
        # mode.
        return tuple(sign for sign in signs if sign.modes != _SERVED)
    if any(sign.action.endswith("distribute.Server") for sign in signs):
        return tuple(signs)
    # The program has no ParameterServerStrategy. So its servers, if any, are those of TensorFlow 1,
    # and no sign stands for mode coordinator.
    return tuple(
        replace(sign, modes=tuple(mode for mode in sign.modes if mode not in _COORDINATED))
        for sign in signs
    )


def likely_mode(signs: tuple[Sign, ...]) -> Mode | None:
    """Return the mode for which the program is written.

    Returns None if the program has no sign, if no mode fits all its signs, or if the program
    chooses between strategies only when it runs.
    """
    defined = [sign for sign in signs if sign.is_flag]
    used = [sign for sign in signs if not sign.is_flag]
    certain = [sign for sign in used if sign.is_certain or sign.by_default]
    # In a program with flags about its cluster, a further flag may switch synchronous training on.
    # So a sign of mode sync counts only if every run reaches it, or if that flag is on by default.
    considered = certain or [sign for sign in used if not defined or sign.modes != ("sync",)]
    first = {sign.modes[:1] for sign in considered}
    if (not certain and len(first) > 1) or first >= {("mirrored",), ("local",)}:
        return None
    modes = [mode for sign in considered or defined for mode in sign.modes]
    # Flags about the cluster also fit mode mirrored, because a program with
    # MultiWorkerMirroredStrategy may make TF_CONFIG from its flags.
    accepted = [
        *(each.modes for each in considered),
        *((*each.modes, "mirrored") for each in defined),
    ]
    return next((mode for mode in modes if all(mode in each for each in accepted)), None)


def refuse_or_note_mode(job: Job, program: Program, *, force: bool) -> str | None:
    """Return a note if the program is written for another mode than the mode of the job, else None.

    Raises Refused if every run of the program executes constructs of one other mode, and `force` is
    False.
    """
    if rules_of(job.mode).single and torch_launch.launcher_name(job.command):
        return None  # a launcher such as `torchrun --standalone` provides the ranks
    signs = tuple(sign for sign in find_signs(program) if sign.modes)
    if all(sign.modes == _COORDINATED for sign in signs):
        signs = tuple(replace(sign, is_certain=True) for sign in signs)
    if not signs or any(job.mode in sign.modes for sign in signs):
        return None
    other = likely_mode(tuple(sign for sign in signs if sign.is_certain))
    what = f"{signs[0]}, which mode {job.mode} does not support"
    # If the operator writes the flags about the cluster by hand, the program may still work in this
    # mode, so there is only a note.
    by_hand = job.flags == "none" or any(map(_CLUSTER_PLACEHOLDER.search, job.command))
    if other is None or force or by_hand:
        return what
    raise Refused(
        what,
        where=signs[0].where,
        next=f"`tfdeploy launch --mode {other}`, or add --force to go on with mode {job.mode}",
    )


def _whole_cluster_sign(program: Program) -> Sign | None:
    """Return a sign of mode local if every run of a file starts servers of several jobs.

    The program is then a whole cluster on one machine. Servers in several files do not count,
    because each role may have a command of its own. Return None if the program learns its task
    from flags or TF_CONFIG.
    """
    knows_task = flags.cluster_flags(program).flags or program.has_string_constant("TF_CONFIG")
    if knows_task or not program.imports_tensorflow:
        return None
    # has_workers=False: no branch on the job name, such as `if job == "ps":`, counts as certain.
    certain = certainly_reached(program, has_workers=False).nodes
    places: dict[str, dict[str, str]] = defaultdict(dict)  # {file: {job: place}}
    for call in program.find(ast.Call):
        job = literal_text(argument(call, "job_name", 1))
        # A loop over the tasks of a job is certain, although its body is not.
        outer = takewhile(lambda node: not isinstance(node, _BRANCHES), enclosing_nodes(call))
        loops = [call, *(node for node in outer if isinstance(node, ast.For))]
        if last_name(call.func) == "Server" and job and id(loops[-1]) in certain:
            places[file_of(call).path].setdefault(job, place_of(call))
    for place_by_job in places.values():
        if len(place_by_job) > 1:
            action = f"starts the servers of {' and '.join(place_by_job)} itself"
            return Sign(("local",), action, next(iter(place_by_job.values())), is_certain=True)
    return None


def _flag_signs(program: Program) -> Iterator[Sign]:
    for flag in flags.cluster_flags(program).flags:
        if flag.name in ("ps_hosts", "worker_hosts") and flag.where:
            action = f"defines {flag.spelling}"
            yield Sign((*_SERVED, "local"), action, flag.where, is_certain=True, is_flag=True)


def _tensorflow_signs(program: Program, certain_nodes: frozenset[int]) -> Iterator[Sign]:
    is_sync = any(
        flag.name == "issync" and flag.is_on for flag in flags.cluster_flags(program).flags
    ) or not any("sync" in flag.dest for flag in flag_definitions.defined_flags(program))
    config = "TF_CONFIG"  # a pattern; the loop adds names of variables with values from TF_CONFIG
    for _ in range(2):
        names = re.findall(rf"\b(\w+) *=[^=\n]*\b(?:{config})\b", program.text)
        config = "|".join({config, *names})
    for use in tf_names_used.tensorflow_uses(program):
        modes = _OF_TENSORFLOW.get(use.name.rpartition(".")[2])
        if modes:
            # If the program chooses its strategy by TF_CONFIG, the strategy for several machines
            # counts, because tfdeploy sets TF_CONFIG.
            by_config = modes[0] != "local" and any(
                isinstance(outer, ast.If | ast.IfExp)
                and re.search(rf"\b({config})\b", ast.unparse(outer.test))
                for outer in enclosing_nodes(use.node)
            )
            yield Sign(
                modes,
                f"uses tf.{use.name}",
                use.where,
                is_certain=id(use.node) in certain_nodes,
                by_default=by_config or (is_sync and modes == ("sync",)),
            )


def _other_signs(program: Program, certain_nodes: frozenset[int]) -> Iterator[Sign]:
    modes: tuple[Mode, ...] = ("plain",)
    if hosts := {*_FIXED_HOST.findall(program.text)}:
        is_own = hosts <= {"localhost", "127.0.0.1"} and program.uses_any_name("spawn", "Process")
        modes = ("local", "plain") if is_own else ()
    for call in program.find(ast.Call):
        name = dotted_name(call.func)
        if f".{name}".endswith(_OF_OTHERS):
            action = " with the host ".join([f"calls {name}", *hosts])
            yield Sign(modes, action, place_of(call), id(call) in certain_nodes)
    for statement in program.imports:
        if library := _LIBRARIES.search(ast.unparse(statement)):
            modes = () if library["started"] else ("plain", "local")
            if library[0] == "lightning":
                # Without num_nodes, Lightning trains on one machine. `**settings` may contain
                # num_nodes.
                given = " ".join(_TRAINERS.findall(program.text)) or "**"
                modes = () if "**" in given else ("local", "plain")
                modes = ("plain", "local") if "num_nodes" in given else modes
            yield Sign(modes, f"imports {library[0]}", place_of(statement), is_certain=False)
    # The program needs a variable that it reads with os.environ["RANK"], because this fails if the
    # variable is not set. It does not need a variable that it reads with os.environ.get("RANK").
    for node in program.find(ast.Constant):
        is_needed = False
        match next(enclosing_nodes(node)):
            case ast.Subscript(ast.Attribute(attr="environ"), ctx=ast.Load()) as read:
                is_needed = id(read) in certain_nodes
        # Programs for all modes mention TF_CONFIG. So TF_CONFIG shows something about the mode only
        # if the program certainly needs this variable.
        variable = node.value if isinstance(node.value, str) else ""
        modes = _VARIABLES.get(variable, ()) if is_needed or variable != "TF_CONFIG" else ()
        if modes:
            action = f"reads the variable {variable}"
            yield Sign(modes, action, place_of(node), is_certain=is_needed)


def _client_signs(program: Program, certain_nodes: frozenset[int], serves: bool) -> Iterator[Sign]:
    """Yield signs of an in-graph client, which places operations on devices such as "/job:worker".

    If the program also starts servers (`serves`), such a device is a sign only inside a loop. A
    loop may mean that one task places operations on all workers.
    """
    for node in program.find(ast.Constant):
        device = literal_text(node) or ""
        if "/job:" not in device or " " in device or not program.imports_tensorflow:
            continue
        outer = set(map(type, enclosing_nodes(node)))
        if not serves or outer & {ast.For, ast.ListComp}:
            yield Sign(
                ("async",) if serves else ("ingraph",),
                f"places operations on {device}",
                place_of(node),
                id(node) in certain_nodes,
                by_default=serves,
            )
