"""Define the rules of each mode. Everything that depends on a mode is in its rules, so that no
other module compares a mode's name.

Of a mode's rules, hosts receive only `traits` and `lockstep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdeploy.model.choices import Mode

# The roles that TensorFlow defines, in the order in which tables show them.
ROLES = ("ps", "chief", "worker", "evaluator")
# How the tasks of a role get GPUs. one: each task gets one. all: the tasks of the role on a host
# share all GPUs of that host. none: no GPU. spare: one GPU that no other task uses.
GpuShare = Literal["one", "all", "none", "spare"]
# A trait of a mode tells tfdeploy's runtime what to change inside the program. `runtime/task.py`
# uses the same names of traits.
Trait = Literal[
    "synchronous",  # the workers make each step together, through the ps
    "lasting_ps",  # a ps whose program succeeds waits for the end of the run
    "own_session",  # a worker's session sees only the ps and itself
    "chief_saves",  # the chief writes the whole checkpoint to its own disk
    "one_client",  # the program runs once, and tfdeploy starts all servers
]


@dataclass(frozen=True)
class ModeRules:
    """The rules of one mode. `program`: the kind of program for which the mode is meant, as text.
    `usable_roles`: the roles that the mode can use; other roles of the inventory stay idle.
    `required_roles`: the roles that the mode requires. `on_death`: what happens after the death
    of a task, as text. `serving_roles`: the roles whose tasks never end by themselves."""

    program: str
    usable_roles: tuple[str, ...]
    required_roles: tuple[str, ...]
    on_death: str
    serving_roles: tuple[str, ...] = ()
    # The required roles of which a job may nevertheless request 0 tasks.
    omissible_roles: tuple[str, ...] = ()
    # The roles that listen on no port and are not in the cluster.
    portless_roles: tuple[str, ...] = ("evaluator",)
    # The role that has only one task. If the inventory has no host for this role, the task runs on
    # the first host of the workers.
    lead_role: str | None = None
    # {role: how its tasks get GPUs}, if this differs from the defaults in `gpu_share`
    gpu_shares: tuple[tuple[str, GpuShare], ...] = ()
    # If True, the chief and every worker are deciding tasks: the run succeeds when all of them have
    # exited with 0.
    all_decide: bool = False
    same_gpus: bool = False  # all tasks that train must have the same number of GPUs
    single: bool = False  # one process, no cluster, no TF_CONFIG
    takes_flags: bool = False  # `flags` is auto if the job file leaves it out
    takes_slots: bool = False  # `slots` in the inventory is the number of workers on a host
    gang: tuple[str, ...] = ()  # the roles whose tasks restart together
    # If a task of one of these roles dies, all tasks of the roles in `gang` restart. If a task of
    # any other role dies, only that task restarts.
    breaks: tuple[str, ...] = ()
    # If True, the chief's `keep` folders (with its checkpoints) are copied to the disks of all
    # tasks of the gang before these tasks restart.
    supplied: bool = False
    # If True, the tasks get TF_CONFIG and tfdeploy's runtime, which works around defects of
    # TensorFlow.
    tensorflow: bool = True
    # If True, the workers are equal and have ranks, which are consecutive on a host. All workers
    # connect to a port that the program of rank 0 binds.
    ranks: bool = False
    # If True, each step waits for the slowest worker, so a worker that waits does not count as
    # stalled.
    lockstep: bool = False
    # If True, each worker trains at its own pace, and all workers count their steps in one counter.
    shares_step: bool = False
    traits: tuple[Trait, ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # environment variables of every task
    # names of the strategies of TensorFlow with which `fit` of Keras 3 does not work
    needs_keras_2: tuple[str, ...] = ()

    def gpu_share(self, role: str) -> GpuShare:
        shares: dict[str, GpuShare] = {"ps": "none", "evaluator": "spare", **dict(self.gpu_shares)}
        return shares.get(role, "one")


RULES: dict[Mode, ModeRules] = {
    "async": ModeRules(
        program="tf.train.Server and replica_device_setter",
        usable_roles=ROLES,
        required_roles=("worker", "ps"),
        omissible_roles=("ps",),  # without ps, the workers hold the variables
        serving_roles=("ps",),
        takes_flags=True,
        takes_slots=True,
        shares_step=True,
        traits=("lasting_ps", "own_session"),
        on_death="if a worker dies, the others can go on; if a ps dies, all tasks wait; if the "
        "chief dies, the others go on, but nothing is saved",
    ),
    "sync": ModeRules(
        program="tf.train.Server and SyncReplicasOptimizer",
        usable_roles=ROLES,
        required_roles=("worker", "ps"),
        serving_roles=("ps",),
        takes_flags=True,
        takes_slots=True,
        gang=("ps", "chief", "worker"),
        breaks=("ps",),
        lockstep=True,
        traits=("synchronous", "lasting_ps"),
        on_death="if a worker dies, the others may freeze; if the chief dies, the others wait; if "
        "a ps dies, all tasks end with an error",
    ),
    "mirrored": ModeRules(
        program="MultiWorkerMirroredStrategy",
        usable_roles=("chief", "worker", "evaluator"),
        required_roles=("worker",),
        gpu_shares=(("chief", "all"), ("worker", "all")),
        all_decide=True,
        same_gpus=True,
        gang=("chief", "worker"),
        breaks=("chief", "worker"),
        supplied=True,
        lockstep=True,
        # With Keras 3, `fit` fails with "unsupported type PerReplica".
        needs_keras_2=("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"),
        on_death="if a worker dies, the others end with an error within seconds",
    ),
    "coordinator": ModeRules(
        program="ParameterServerStrategy with ClusterCoordinator",
        usable_roles=ROLES,
        required_roles=("worker", "ps"),
        serving_roles=("ps", "worker"),
        lead_role="chief",
        gpu_shares=(("chief", "none"),),
        same_gpus=True,
        gang=("ps", "chief"),
        breaks=("ps",),
        traits=("chief_saves",),
        env=(("GRPC_FAIL_FAST", "use_caller"),),
        # With Keras 3, `fit` fails with "you need to pass this dataset to
        # ClusterCoordinator.create_per_worker_dataset".
        needs_keras_2=("ParameterServerStrategy", "ParameterServerStrategyV2"),
        on_death="if a worker dies, the chief can go on; if a ps dies, the chief ends with an "
        "error; if the chief dies, the servers wait",
    ),
    "ingraph": ModeRules(
        program="one client with a copy of the model for each worker",
        usable_roles=("ps", "chief", "worker"),
        required_roles=("worker",),
        serving_roles=("ps", "worker"),
        portless_roles=("chief",),
        lead_role="chief",
        gpu_shares=(("chief", "none"),),
        gang=("ps", "worker", "chief"),
        breaks=("ps", "worker"),
        traits=("one_client",),
        on_death="if a server dies, the client ends with an error or waits; if the client dies, "
        "the servers wait",
    ),
    "local": ModeRules(
        program="one process with all GPUs of a host",
        usable_roles=("worker",),
        required_roles=("worker",),
        gpu_shares=(("worker", "all"),),
        single=True,
        portless_roles=("worker",),
        on_death="there is only one process",
    ),
    "plain": ModeRules(
        program="PyTorch, JAX, or equal workers of another kind",
        usable_roles=("worker",),
        required_roles=("worker",),
        portless_roles=("worker",),
        all_decide=True,
        gang=("worker",),
        breaks=("worker",),
        supplied=True,
        lockstep=True,
        tensorflow=False,
        ranks=True,
        takes_slots=True,
        on_death="if a worker dies, the others wait for it or end with an error",
    ),
}


def rules_of(mode: Mode | None) -> ModeRules:
    """Return the rules of the mode. If `mode` is None, return the rules of async; a job without a
    mode is refused elsewhere."""
    return RULES[mode or "async"]
