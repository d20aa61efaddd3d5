"""Which GPUs of a host tfdeploy may give away: the inventory's word, checked against what the probe found."""

from __future__ import annotations

from tfdeploy.errors import Refused
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host

BUSY_MIB = 1024  # a GPU with more than this in use is somebody's


def usable(host: Host, facts: HostFacts) -> tuple[int, ...]:
    """Indices as nvidia-smi counts them. Raises Refused when the inventory names GPUs that are not there."""
    found = tuple(gpu.index for gpu in facts.gpus)
    if host.gpus == "auto":
        return found
    if host.gpus == "none":
        return ()
    if isinstance(host.gpus, int):
        if host.gpus > len(found):
            raise _not_there(host, facts, f"{host.gpus} GPUs")
        return found[: host.gpus]
    missing = [index for index in host.gpus if index not in found]
    if missing:
        raise _not_there(host, facts, "GPU " + ", ".join(map(str, missing)))
    return host.gpus


def named(facts: HostFacts, gpus: tuple[int, ...]) -> str:
    """As a reason names them: "GPU 0 (H200)", "GPUs 0 and 1 (H200)"."""
    models = list(dict.fromkeys(gpu.name for gpu in facts.gpus if gpu.index in gpus))
    number = "GPU " if len(gpus) == 1 else "GPUs "
    return number + " and ".join(map(str, gpus)) + (f" ({', '.join(models)})" if models else "")


def notes(host: Host, facts: HostFacts, given: tuple[int, ...]) -> tuple[str, ...]:
    """What the operator should know of the GPUs of one host that is in the plan."""
    said = []
    if facts.gpu_error and host.gpus == "auto":
        said.append(f"{host.name} is planned without GPUs: {facts.gpu_error}")
    for gpu in facts.gpus:
        if gpu.index in given and gpu.used_mib > BUSY_MIB:
            said.append(f"GPU {gpu.index} of {host.name} is in use: {gpu.used_mib} of {gpu.memory_mib} MiB are taken")
    return tuple(said)


def _not_there(host: Host, facts: HostFacts, asked: str) -> Refused:
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in facts.gpus) or "none"
    because = f" ({facts.gpu_error})" if facts.gpu_error else ""
    return Refused(
        f"the inventory gives {host.name} {asked}, and nvidia-smi there finds: {there}{because}",
        where=host.source or f"host {host.name}",
        next=f"correct `gpus:` of {host.name}, or write `gpus: auto`",
    )
