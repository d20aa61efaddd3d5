"""Use the TF_CONFIG of the plan, even if the program sets a TF_CONFIG of its own
(`os.environ["TF_CONFIG"] = json.dumps(...)`)."""

from __future__ import annotations

from typing import Any, Dict

from . import planned_cluster, task
from .wrapping import wrap_function


def patch_module(resolver_module: Any) -> None:
    """Patch the module tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver, so
    that it uses the TF_CONFIG of the plan."""
    plan = planned_cluster.read_planned_cluster()

    @wrap_function(resolver_module, "_load_tf_config")
    def load_planned(load: Any, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        config: Dict[str, Any] = load(*args, **kwargs)
        if not plan or not _is_foreign(config, plan):
            return config
        task.print_once(
            "the TF_CONFIG written by the program is replaced by the plan's TF_CONFIG (%s)"
            % planned_cluster.format_cluster(plan)
        )
        return task.tf_config()


def _is_foreign(config: Dict[str, Any], plan: planned_cluster.Cluster) -> bool:
    """Return True if the cluster of `config` has an address that the plan does not have."""
    cluster = config.get("cluster")
    if not isinstance(cluster, dict):
        return False
    listed = {job: tasks for job, tasks in cluster.items() if isinstance(tasks, list)}
    return not planned_cluster.addresses_of(listed) <= planned_cluster.addresses_of(plan)
