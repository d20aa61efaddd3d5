"""Define a TensorFlow cluster: its roles, its endpoints, and the TF_CONFIG that each task reads.

This module resolves no names and does not decide which tasks a cluster has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

Cluster = Mapping[str, tuple[str, ...]]  # role -> endpoints, by index

# The roles that TensorFlow defines, in the order in which tables show them.
ROLES = ("ps", "chief", "worker", "evaluator")


def endpoint(address: str, port: int) -> str:
    """Return the address and port as text such as "192.0.2.10:2222", with brackets around an IPv6
    address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def cluster_json(cluster: Cluster) -> str:
    return json.dumps(dict(cluster), separators=(",", ":"))


def tf_config(cluster: Cluster, role: str, index: int) -> str:
    """Return the TF_CONFIG of one task. An evaluator must not be in `cluster`: no task connects to
    an evaluator, and the chief would hang."""
    task = {"type": role, "index": index}
    return json.dumps({"cluster": dict(cluster), "task": task}, separators=(",", ":"))
