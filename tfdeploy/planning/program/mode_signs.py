"""Finds out for which mode a program is written, from constructs such as `tf.train.Server`.

Only syntax trees are read. A construct is certain if every run of the program reaches it. A
construct in a branch that depends on a flag, for example, is not certain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job, Mode
from tfdeploy.planning.flags import flag_definitions, flags
from tfdeploy.planning.program import servers
from tfdeploy.planning.source.expressions import dotted_name, literal_text
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.reached import certainly_reached
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used

_COORDINATED: tuple[Mode, ...] = ("coordinator",)
_SERVED: tuple[Mode, ...] = ("async", "sync", "ingraph", "coordinator")
# The last part of a name in TensorFlow -> the modes in which a program can use this name, the most
# likely mode first.
_OF_TENSORFLOW: dict[str, tuple[Mode, ...]] = {
    "Server": _SERVED,
    "replica_device_setter": ("async", "sync"),
    "SyncReplicasOptimizer": ("sync",),
    "MultiWorkerMirroredStrategy": ("mirrored", "local"),
    "CollectiveAllReduceStrategy": ("mirrored", "local"),
    "ParameterServerStrategy": _COORDINATED,
    "ParameterServerStrategyV2": _COORDINATED,
    "train_and_evaluate": ("coordinator", "mirrored"),  # of tf.estimator, which reads TF_CONFIG
    "MirroredStrategy": ("local", "plain"),
}
# If a program calls a function whose name ends with one of these texts, it uses another framework
# than TensorFlow, and needs mode plain.
_OF_OTHERS = (".init_process_group", ".DistributedDataParallel", ".distributed.initialize")
# Libraries for training on several machines, as an import names them.
_LIBRARIES = re.compile(
    r"horovod|lightning|\baccelerate\b|deepspeed|transformers(?= import .*Trainer\b)"
)
# Environment variable of a task -> the modes that set it.
_VARIABLES: dict[str, tuple[Mode, ...]] = {
    "RANK": ("plain",),
    "WORLD_SIZE": ("plain",),
    "TF_CONFIG": ("mirrored", "coordinator"),
}


@dataclass(frozen=True)
class Sign:
    """A construct in a program that shows for which mode the program is written.

    `modes`: the modes that support the construct, the most likely one first. `action`: what the
    program does, such as "uses tf.train.Server".
    """

    modes: tuple[Mode, ...]
    action: str
    where: str  # "train.py:12"
    certain: bool
    is_flag: bool = False  # the definition of a flag, a weaker sign than the use of a strategy
    # True if the program executes the construct because of the default value of a flag, or if no
    # flag decides whether the program executes it.
    by_default: bool = False

    @property
    def is_coordinated(self) -> bool:
        """Return whether mode coordinator is the most likely one."""
        return self.modes[0] == "coordinator"

    def __str__(self) -> str:
        return f"{self.where} {self.action}"


def find_signs(program: Program) -> tuple[Sign, ...]:
    """Return the program's constructs that show its mode. Flags about the cluster come first."""
    certain = certainly_reached(program, has_workers=True).nodes
    signs = [*_flag_signs(program), *_tensorflow_signs(program, certain)]
    signs += _other_signs(program, certain)
    if not any(sign.modes == _SERVED or sign.is_coordinated for sign in signs) or (
        servers.client_job_name(program)
    ):
        signs += _client_signs(program, certain)
    if any(sign.is_coordinated or sign.action.endswith("distribute.Server") for sign in signs):
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
    if any(sign.is_coordinated for sign in signs):
        # A program with a ParameterServerStrategy starts servers, too. So in such a program, a
        # server does not show the mode.
        signs = tuple(sign for sign in signs if sign.modes != _SERVED)
    defined = [sign for sign in signs if sign.is_flag]
    used = [sign for sign in signs if not sign.is_flag]
    certain = [sign for sign in used if sign.certain or sign.by_default]
    # In a program with flags about its cluster, a further flag may switch synchronous training on.
    # So its use counts only if every run reaches it, or if the default of that flag is on.
    considered = certain or [sign for sign in used if not defined or sign.modes != ("sync",)]
    if not certain and len({sign.modes[0] for sign in considered}) > 1:
        return None
    modes = [mode for sign in considered or defined for mode in sign.modes]
    mode = next((mode for mode in modes if all(mode in each.modes for each in considered)), None)
    return mode if all(mode in each.modes for each in defined) else None


def check_mode(job: Job, program: Program, *, force: bool) -> str | None:
    """Return a note if the program is written for another mode than the mode of the job, else None.

    Raises Refused if every run of the program executes constructs of one other mode, and `force` is
    False.
    """
    signs = find_signs(program)
    coordinated = tuple(sign for sign in signs if sign.is_coordinated)
    # A program with a ParameterServerStrategy starts servers, too. So in such a program, a server
    # does not show the mode.
    if any(sign.certain for sign in coordinated) or all(
        sign.is_coordinated or sign.modes == _SERVED for sign in signs
    ):
        signs = tuple(replace(sign, certain=True) for sign in coordinated) or signs
    if not signs or any(job.mode in sign.modes for sign in signs):
        return None
    other = likely_mode(tuple(sign for sign in signs if sign.certain))
    what = f"{signs[0]}, which mode {job.mode} does not support"
    by_hand = job.flags == "none" or any("{" in word for word in job.command)
    if other is None or force or by_hand:
        return what
    raise Refused(
        what,
        where=signs[0].where,
        next=f"`tfdeploy launch --mode {other}`, or add --force to go on with mode {job.mode}",
    )


def _flag_signs(program: Program) -> Iterator[Sign]:
    for flag in flags.cluster_flags(program).flags:
        if flag.name in ("ps_hosts", "worker_hosts") and flag.where:
            action = f"defines {flag.spelling}"
            yield Sign((*_SERVED, "local"), action, flag.where, certain=True, is_flag=True)


def _tensorflow_signs(program: Program, certain_nodes: frozenset[int]) -> Iterator[Sign]:
    is_sync = any(
        flag.name == "issync" and flag.is_on for flag in flags.cluster_flags(program).flags
    ) or not any("sync" in flag.dest for flag in flag_definitions.defined_flags(program))
    for use in tf_names_used.tensorflow_uses(program):
        modes = _OF_TENSORFLOW.get(use.name.rpartition(".")[2])
        if modes:
            yield Sign(
                modes,
                f"uses tf.{use.name}",
                use.where,
                certain=id(use.node) in certain_nodes,
                by_default=is_sync and modes == ("sync",),
            )


def _other_signs(program: Program, certain_nodes: frozenset[int]) -> Iterator[Sign]:
    modes: tuple[Mode, ...] = ("local", "plain") if _starts_ranks(program) else ("plain",)
    for call in program.find(ast.Call):
        name = dotted_name(call.func)
        if f".{name}".endswith(_OF_OTHERS):
            yield Sign(modes, f"calls {name}", place_of(call), id(call) in certain_nodes)
    for statement in program.imports:
        if library := _LIBRARIES.search(ast.unparse(statement)):
            action = f"imports {library[0]}"
            yield Sign(("plain", "local"), action, place_of(statement), certain=False)
    # If the variable is not set, os.environ["RANK"] fails, but os.environ.get("RANK") does not.
    needed = {
        id(read.slice)
        for read in program.find(ast.Subscript)
        if isinstance(read.ctx, ast.Load)
        and dotted_name(read.value).endswith("environ")
        and id(read) in certain_nodes
    }
    for node in program.find(ast.Constant):
        is_needed = id(node) in needed
        # Programs for all modes mention TF_CONFIG. So TF_CONFIG shows something about the mode only
        # if the program certainly needs this variable.
        variable = node.value if isinstance(node.value, str) else ""
        modes = _VARIABLES.get(variable, ()) if is_needed or variable != "TF_CONFIG" else ()
        if modes:
            action = f"reads the variable {variable}"
            yield Sign(modes, action, place_of(node), certain=is_needed)


def _starts_ranks(program: Program) -> bool:
    """Return whether the program starts the processes of all ranks, on its own machine."""
    is_local = any(
        isinstance(node.value, ast.Constant)
        and node.value.value in ("localhost", "127.0.0.1")
        and any("MASTER_ADDR" in ast.unparse(target) for target in node.targets)
        for node in program.find(ast.Assign)
    )
    return is_local and program.uses_any_name("spawn")


def _client_signs(program: Program, certain_nodes: frozenset[int]) -> Iterator[Sign]:
    """Yield signs of an in-graph client.

    Such a program places operations on devices of jobs, such as "/job:worker", but does not start
    the servers of these jobs.
    """
    for node in program.find(ast.Constant):
        device = literal_text(node) or ""
        if "/job:" in device and program.imports_tensorflow:
            where = place_of(node)
            yield Sign(
                ("ingraph",), f"places operations on {device}", where, id(node) in certain_nodes
            )
