"""Starts the minder of a run (the process that manages the run on this host), and waits until the
minder holds the run's ports."""

from __future__ import annotations

import json
import os
import select
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.network import listening
from tfdeploy.agent.run.folder import RunPaths, start_agent
from tfdeploy.agent.run.live_runs import list_port_owners

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import MinderAnswer

MINDER_WITHIN_S = 20.0  # a new minder that does not answer in this time counts as not started
POLL_S = 0.1


def start_minder(
    paths: RunPaths, part: wire.HostPart, raise_if_unwanted: Callable[[], None] = lambda: None
) -> None:
    """Start the minder and return once it holds all ports. The minder is detached, so it does not
    end with the `serve` process.

    `raise_if_unwanted` raises an error once the run is no longer to be prepared. Raises VerbError
    port_taken, refused (no firewall), agent.
    """
    read_descriptor, write_descriptor = os.pipe()
    try:
        try:
            starter = start_agent(
                paths.minder_log,
                "minder",
                paths.host_dir,
                str(write_descriptor),
                pass_fds=[write_descriptor],
            )
        finally:
            os.close(write_descriptor)
        answer = _read_answer(read_descriptor, raise_if_unwanted)
        starter.wait()
    finally:
        os.close(read_descriptor)
    if "port" in answer:
        port = answer["port"]
        owner = list_port_owners(paths.workdir, paths.host, paths.run).get(
            port
        ) or listening.describe_owners([port]).get(port, "unknown")
        what = "port %d is taken by %s" % (port, owner)
        raise VerbError("port_taken", what, details={"port": port, "owner": owner})
    if "firewall" in answer:
        what = "the firewall of the run cannot be made on this host: %s" % answer["firewall"]
        raise VerbError("refused", what, advice="protect_peers")
    if not answer.get("ok"):
        what = "the run's minder did not start: %s" % _last_log_line(paths)
        raise VerbError("agent", what, where=paths.minder_log)


def _read_answer(read_descriptor: int, raise_if_unwanted: Callable[[], None]) -> MinderAnswer:
    text = b""
    deadline = time.monotonic() + MINDER_WITHIN_S
    while not text.endswith(b"\n") and time.monotonic() < deadline:
        raise_if_unwanted()
        if not select.select([read_descriptor], [], [], POLL_S)[0]:
            continue
        part = os.read(read_descriptor, 4096)
        if not part:
            break
        text += part
    try:
        answer = json.loads(text.decode("ascii"))
    except ValueError:
        return {}
    if not isinstance(answer, dict):
        return {}
    port, firewall = answer.get("port"), answer.get("firewall")
    if isinstance(firewall, str):
        return {"firewall": firewall}
    return {"port": port} if isinstance(port, int) else {"ok": bool(answer.get("ok"))}


def _last_log_line(paths: RunPaths) -> str:
    silence = "it printed nothing within %g s" % MINDER_WITHIN_S
    try:
        with open(paths.minder_log, "rb") as log:
            text = log.read()[-2000:].decode("utf-8", "replace").strip()
    except OSError:
        return silence
    return (text.splitlines() or [silence])[-1]
