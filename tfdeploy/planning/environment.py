"""What a task finds in its environment, without secrets. The agent adds TFDEPLOY_TASK_RUN_ID and its kin."""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.model import placeholders
from tfdeploy.model.cluster import Cluster, tf_config
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.planning.placement import Seat

NO_PROXY = ("no_grpc_proxy", "no_proxy", "NO_PROXY")


def environment(
    job: Job, seat: Seat, cluster: Cluster, addresses: tuple[str, ...], given: Mapping[str, str], compat: str
) -> dict[str, str]:
    """The variables of one task: the contract's, then the job's `env` with its placeholders filled. `compat`: v1 or none."""
    direct = ",".join(addresses)
    return {
        "TF_CONFIG": tf_config(cluster, seat.role, seat.index),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, seat.gpus)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(NO_PROXY, direct),
        "TF_GRPC_REUSE_PORT": "true",  # the minder holds the port until TensorFlow binds it beside
        "TFDEPLOY_TASK_MODE": str(job.mode),
        "TFDEPLOY_TASK_COMPAT": compat,
        "TFDEPLOY_TASK_CLUSTER": job.cluster,
        **{name: placeholders.fill(text, given) for name, text in job.env.items()},
    }


def proxy_notes(facts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """A dead proxy hangs a whole cluster: say where one is set, and that the cluster goes around it."""
    return tuple(
        f"{name} sets {', '.join(facts[name].proxies)}: the cluster's addresses go around the proxy (no_grpc_proxy, no_proxy)"
        for name in facts
        if facts[name].proxies
    )
