"""Builds the environment variables of a task, without secrets.

Only the agent on the host sets the remaining variables that begin with TFDEPLOY_TASK_.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.model.cluster import tf_config
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import Rules, rules
from tfdeploy.model.text import placeholders
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.program.job_names import JobNames

NO_PROXY = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
# The process that watches the task keeps its port bound, so TensorFlow must share the port.
HELD_PORT = {"TF_GRPC_REUSE_PORT": "true"}


def environment(
    job: Job,
    seat: Seat,
    layout: Layout,
    given: Mapping[str, str],
    chosen: Mapping[str, str],
    called: JobNames,
) -> dict[str, str]:
    """Return the environment variables of one task.

    First come the variables that every task gets. The variables in `chosen`, which this program
    needs, override them, and the job's `env` overrides both. In a mode with a single process,
    no variable describes a cluster. `given`: placeholder -> value. `called`: the program's own
    names for the roles.
    """
    mode_rules = rules(job.mode)
    alone, direct = mode_rules.single, tuple(dict.fromkeys(layout.addresses.values()))
    return {
        **(
            {"TF_CONFIG": _tf_config(layout, seat, called)}
            if mode_rules.tensorflow and not alone
            else {}
        ),
        **(ranks.variables(layout, seat, given["run_id"]) if mode_rules.ranks else {}),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, _visible(seat, layout, mode_rules))),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        **({} if alone else dict.fromkeys(NO_PROXY, ",".join(direct))),
        **({} if seat.role in mode_rules.silent else HELD_PORT),
        **dict(mode_rules.env),
        "TFDEPLOY_TASK_MODE": str(job.mode),
        **chosen,
        "TFDEPLOY_TASK_CLUSTER": job.cluster,
        **{name: placeholders.fill(text, given) for name, text in job.env.items()},
    }


def _tf_config(layout: Layout, seat: Seat, called: JobNames) -> str:
    return tf_config(called.cluster(layout.cluster), *called.task(seat.role, seat.index))


def _visible(seat: Seat, layout: Layout, mode_rules: Rules) -> tuple[int, ...]:
    """Return the numbers of the GPUs that the task can see.

    In modes with ranks, a task sees all GPUs that the run has on the host, because it picks one of
    them by its local rank.
    """
    if not mode_rules.ranks:
        return seat.gpus
    return tuple(index for each in layout.on(seat.host) for index in each.gpus)


def proxy_notes(facts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """Return a note on each host whose environment sets a proxy.

    The tasks connect to each other without the proxy: a dead proxy would hang the whole cluster.
    """
    return tuple(
        f"{name} sets {', '.join(facts[name].proxies)}: connections inside the cluster bypass "
        "the proxy (no_grpc_proxy, no_proxy)"
        for name in facts
        if facts[name].proxies
    )


def preset_notes(preset: tuple[str, ...], facts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """Return notes on variables such as TF_CONFIG that a login environment already sets.

    The tasks get the plan's values instead. `preset`: names of such variables in the environment of
    the tfdeploy command.
    """
    by_host = [
        (f"the login environment of {name}", host_facts.preset)
        for name, host_facts in facts.items()
        if host_facts.preset
    ]
    return tuple(
        f"{where} sets {', '.join(names)}: the tasks get the plan's values instead"
        for where, names in [*([("your environment", preset)] if preset else []), *by_host]
    )
