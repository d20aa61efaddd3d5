"""Define a TensorFlow cluster: its roles, its endpoints, and TF_CONFIG as each task reads it.

Pure values. Nothing here resolves a name or knows how a cluster was decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

Cluster = Mapping[str, tuple[str, ...]]  # role -> endpoints, by index

# TensorFlow's own, in the order that tables show them
ROLES = ("ps", "chief", "worker", "evaluator")


def endpoint(address: str, port: int) -> str:
    """Return such as "192.0.2.10:2222", with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def cluster_json(cluster: Cluster) -> str:
    return json.dumps(dict(cluster), separators=(",", ":"))


def tf_config(cluster: Cluster, role: str, index: int) -> str:
    """Return TF_CONFIG of one task. An evaluator must not be in `cluster`: no task connects to it,
    and the chief would hang."""
    return json.dumps(
        {
            "cluster": {name: list(tasks) for name, tasks in cluster.items()},
            "task": {"type": role, "index": index},
        },
        separators=(",", ":"),
    )
