"""Builds the environment variables of a task, without secrets.

The remaining variables, whose names begin with TFDEPLOY_TASK_, are set by the agent on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Notes, tf_config
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.program.job_names import JobNames
from tfdeploy.text import placeholders

NO_PROXY = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
# The minder keeps the port of each task bound, so that no other program takes the port. With this
# variable, TensorFlow can listen on a port that is already bound.
HELD_PORT = {"TF_GRPC_REUSE_PORT": "true"}


def task_environment(
    job: Job,
    seat: Seat,
    layout: Layout,
    placeholder_values: Mapping[str, str],
    program_variables: Mapping[str, str],
    job_names: JobNames,
    proxies: Iterable[str],
) -> dict[str, str]:
    """Return the environment variables of one task.

    There are three sources: variables that every task gets, `program_variables`, which this program
    needs, and the job's `env`. Each source overrides those before it. In a mode with a single
    process, TF_CONFIG is not set.

    `placeholder_values`: {placeholder: value}. `job_names`: the program's own names for the roles.
    `proxies`: names of the proxy variables that the host sets. If neither host nor job sets a
    proxy, the task does not get `no_proxy` either, because JAX warns about `no_proxy`.
    """
    mode = rules_of(job.mode)
    of_cluster: dict[str, str] = {}
    if mode.tensorflow and not mode.single:
        task = job_names.task(seat.role, seat.index)
        of_cluster["TF_CONFIG"] = tf_config(job_names.cluster(layout.cluster), *task)
    if mode.ranks:
        of_cluster = ranks.rank_variables(layout, seat, placeholder_values["run_id"])
    # In a mode with ranks, a task sees all GPUs that the run has on the host, and picks one of them
    # by its local rank.
    sharing = layout.seats_on(seat.host) if mode.ranks else (seat,)
    has_proxy = "_proxy" in " ".join((*proxies, *job.env, *job.secrets)).lower()
    direct = dict.fromkeys(layout.address_by_host.values()) if has_proxy and not mode.single else ()
    return {
        **of_cluster,
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for each in sharing for index in each.gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        **(dict.fromkeys(NO_PROXY, ",".join(direct)) if direct else {}),
        **({} if seat.role in mode.portless_roles else HELD_PORT),
        **dict(mode.env),
        "TFDEPLOY_TASK_MODE": str(job.mode),
        **program_variables,
        "TFDEPLOY_TASK_CLUSTER": job.cluster,
        **{
            name: placeholders.fill_placeholders(text, placeholder_values)
            for name, text in job.env.items()
        },
    }


def proxy_notes(facts: FactsByHost) -> Notes:
    """Return a note on each host whose environment sets a proxy.

    The tasks connect to each other without the proxy, because the whole cluster would hang if the
    proxy did not answer.
    """
    return tuple(
        f"{name} sets {', '.join(host_facts.proxies)}: connections inside the cluster bypass "
        "the proxy (no_grpc_proxy, no_proxy)"
        for name, host_facts in facts.items()
        if host_facts.proxies
    )


def preset_variable_notes(preset_names: tuple[str, ...], facts: FactsByHost) -> Notes:
    """Return notes on variables such as TF_CONFIG that a login environment already sets.

    The tasks get the plan's values instead. `preset_names`: names of the variables of this kind
    that are set in the environment of the tfdeploy command itself.
    """
    by_place = {
        "your environment": preset_names,
        **{f"the login environment of {name}": each.preset for name, each in facts.items()},
    }
    return tuple(
        f"{where} sets {', '.join(names)}: the tasks get the plan's values instead"
        for where, names in by_place.items()
        if names
    )
