"""Make the bytes that are sent to each host with the verb `run.prepare`.

The bytes contain the host's own part of the plan, the secrets, the host's certificate, and the part
of the plan that is the same for all hosts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tfdeploy.agent import frames, wire
from tfdeploy.errors import Refused
from tfdeploy.model.job import Secret
from tfdeploy.model.plan import Plan, without_ssh_settings
from tfdeploy.model.plan_files import plan_to_file
from tfdeploy.operations.launching.certificates import make_certificates
from tfdeploy.planning.host_parts import host_parts, shared_part


def prepare_blobs(
    plan: Plan, secret_by_variable: Mapping[str, Secret], ahead_s_by_host: Mapping[str, float]
) -> Callable[[str], bytes]:
    """Return a function that takes the name of a host and returns the bytes for that host.

    The returned function raises Refused if the plan is longer than a host accepts.
    `ahead_s_by_host` tells how many seconds each host's clock is ahead of the run's clock.
    """
    parts = host_parts(plan, ahead_s_by_host)
    certs = make_certificates(plan.run, parts)
    revealed = {name: secret.reveal() for name, secret in secret_by_variable.items()}
    shared = _to_json({"plan": plan_to_file(without_ssh_settings(plan)), "part": shared_part(plan)})
    packed = frames.compress(shared)

    def blob(host: str) -> bytes:
        own_part = _to_json(
            {"part": wire.to_wire(parts[host]), "secrets": revealed, "certs": certs[host]}
        )
        plan_bytes, most_bytes = len(own_part) + len(shared), frames.MAX_PACKED_BYTES
        if plan_bytes > most_bytes:
            raise Refused(
                f"the plan has {plan_bytes:,} bytes, but a host accepts at most {most_bytes:,}",
                where=host,
                next="move long values of `command` and `env` into files in the code folder",
            )
        return frames.compress(own_part) + packed

    return blob


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
