"""Define the modes: a row has all that depends on a mode, and no other module compares a mode's
name.

Values only. What the hosts need of a row is sent by name: `traits` and `lockstep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdeploy.model.job import Mode

# one: a GPU for each task. all: the host's GPUs, divided among its tasks of the role. none. spare:
# one that no other task takes.
Share = Literal["one", "all", "none", "spare"]
# What tfdeploy's runtime does inside the program. `runtime/task.py` has the same names.
Trait = Literal[
    "synchronous",  # the workers make each step together, through the ps
    "lasting_ps",  # a ps whose program ends well waits for the end of the run
    "own_session",  # a worker's session sees the ps and itself
    "chief_saves",  # the chief writes all of a checkpoint on its own disk
    "one_client",  # the program runs once, and tfdeploy starts all servers
]


@dataclass(frozen=True)
class Rules:
    """One mode. `takes`: the roles that it can use; other roles of the inventory stay idle.
    `needs`: the roles it requires. `on_death`: what happens, as text. `serves`: the roles whose
    tasks never end by themselves."""

    takes: tuple[str, ...]
    needs: tuple[str, ...]
    on_death: str
    serves: tuple[str, ...] = ()
    # roles that listen on no port and are not in the cluster
    silent: tuple[str, ...] = ("evaluator",)
    # a single task that goes to the first worker host where the inventory has no host for it
    lead: str | None = None
    shares: tuple[tuple[str, Share], ...] = ()  # by role, where it differs from `share`'s defaults
    all_decide: bool = False  # every worker and the chief is a deciding task
    same_gpus: bool = False  # all tasks that train must have equally many
    single: bool = False  # one process, no cluster, no TF_CONFIG
    takes_flags: bool = False  # `flags` left out means auto
    gang: tuple[str, ...] = ()  # the roles that start again together
    # a death in one of these roles restarts the gang; any other task starts again alone
    breaks: tuple[str, ...] = ()
    # before the gang starts again, the chief's `keep` is copied to every member's disk
    supplied: bool = False
    # the tasks get TF_CONFIG and tfdeploy's runtime, which mends TensorFlow where it must
    tensorflow: bool = True
    # equal workers with ranks, neighbours on one host; they meet at a port that rank 0 binds itself
    ranks: bool = False
    # each step waits for the slowest worker, so a waiting worker is not stalled
    lockstep: bool = False
    shares_step: bool = False  # the workers share one step counter, each at its own pace
    traits: tuple[Trait, ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # variables of every task
    needs_keras_2: tuple[str, ...] = ()  # the strategies for which Keras 3 has no `fit`

    def share(self, role: str) -> Share:
        shares: dict[str, Share] = {"ps": "none", "evaluator": "spare", **dict(self.shares)}
        return shares.get(role, "one")


_BETWEEN = ("ps", "chief", "worker", "evaluator")
RULES: dict[Mode, Rules] = {
    "async": Rules(
        takes=_BETWEEN,
        needs=("worker", "ps"),
        serves=("ps",),
        takes_flags=True,
        shares_step=True,
        traits=("lasting_ps", "own_session"),
        on_death="a worker: the others could go on; a ps: all wait; the chief: the others go on, "
        "nothing is saved",
    ),
    "sync": Rules(
        takes=_BETWEEN,
        needs=("worker", "ps"),
        serves=("ps",),
        takes_flags=True,
        gang=("ps", "chief", "worker"),
        breaks=("ps",),
        lockstep=True,
        traits=("synchronous", "lasting_ps"),
        on_death="a worker: the others may freeze; the chief: "
        "they wait; a ps: all end with an error",
    ),
    "mirrored": Rules(
        takes=("chief", "worker", "evaluator"),
        needs=("worker",),
        shares=(("chief", "all"), ("worker", "all")),
        all_decide=True,
        same_gpus=True,
        gang=("chief", "worker"),
        breaks=("chief", "worker"),
        supplied=True,
        lockstep=True,
        # "unsupported type PerReplica"
        needs_keras_2=("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"),
        on_death="any worker: the others end with an error within seconds",
    ),
    "coordinator": Rules(
        takes=_BETWEEN,
        needs=("worker", "ps"),
        serves=("ps", "worker"),
        lead="chief",
        shares=(("chief", "none"),),
        same_gpus=True,
        gang=("ps", "chief"),
        breaks=("ps",),
        traits=("chief_saves",),
        env=(("GRPC_FAIL_FAST", "use_caller"),),
        # "you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset"
        needs_keras_2=("ParameterServerStrategy", "ParameterServerStrategyV2"),
        on_death="a worker: the chief could go on; a ps: the chief "
        "ends with an error; the chief: the "
        "servers wait",
    ),
    "ingraph": Rules(
        takes=("ps", "chief", "worker"),
        needs=("worker",),
        serves=("ps", "worker"),
        silent=("chief",),
        lead="chief",
        shares=(("chief", "none"),),
        gang=("ps", "worker", "chief"),
        breaks=("ps", "worker"),
        traits=("one_client",),
        on_death="a server: the client ends with an error, or waits; the client: the servers wait",
    ),
    "local": Rules(
        takes=("worker",),
        needs=("worker",),
        shares=(("worker", "all"),),
        single=True,
        silent=("worker",),
        on_death="there is one process",
    ),
    "plain": Rules(
        takes=("worker",),
        needs=("worker",),
        silent=("worker",),
        all_decide=True,
        gang=("worker",),
        breaks=("worker",),
        supplied=True,
        lockstep=True,
        tensorflow=False,
        ranks=True,
        on_death="any worker: the others wait for it, or end with an error",
    ),
}


def rules(mode: Mode | None) -> Rules:
    """Return the rules of the mode; those of async for a job without a mode, which is refused
    elsewhere."""
    return RULES[mode or "async"]
