"""Decides which GPUs of a host the tasks may use.

The decision depends on the inventory's setting and on what the probe found on the host. GPUs that
other processes use are left out, unless the inventory lists their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfdeploy.errors import Refused
from tfdeploy.model.facts import Gpu, HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Notes
from tfdeploy.text.units import format_binary_bytes, format_count

BUSY_MIB = 1024  # a GPU with more memory than this in use counts as busy
_MUCH = format_binary_bytes(BUSY_MIB << 20)


def usable_gpus(host: Host, facts: HostFacts) -> tuple[int, ...]:
    """Return the indices of usable GPUs, in nvidia-smi's numbering.

    Raises Refused if the inventory asks for GPUs that are missing or in use.
    """
    if host.gpus == "none":
        return ()
    if isinstance(host.gpus, tuple):
        missing = sorted({*host.gpus} - {gpu.index for gpu in facts.gpus})
        if missing:
            raise _missing_gpus_error(host, facts, f"GPU {', '.join(map(str, missing))}")
        return host.gpus
    free = tuple(gpu.index for gpu in facts.gpus if gpu not in _busy_gpus(facts))
    if host.gpus == "auto":
        return free
    if host.gpus > len(facts.gpus):
        raise _missing_gpus_error(host, facts, format_count(host.gpus, "GPU"))
    if host.gpus > len(free):
        what = f"the inventory gives {host.name} {host.gpus} GPUs, but it has only {len(free)} free"
        raise busy_gpus_error(host, facts, what)
    return free[: host.gpus]


def are_all_gpus_busy(host: Host, facts: HostFacts) -> bool:
    """Return whether other processes use all GPUs of a host with `gpus: auto`."""
    return host.gpus == "auto" and bool(facts.gpus) and len(_busy_gpus(facts)) == len(facts.gpus)


def busy_gpus_text(host: Host, facts: HostFacts) -> str:
    """Return a text about the GPUs that no task gets because other processes use them.

    Returns "" if there are none, or if the host's setting is not `gpus: auto`.
    """
    return _usage_text(_busy_gpus(facts)) if host.gpus == "auto" else ""


def busy_gpus_error(host: Host, facts: HostFacts, what: str) -> Refused:
    """Return the error for a host with too few free GPUs.

    `what`: the beginning of the error's message.
    """
    return Refused(
        f"{what}: {_usage_text(_busy_gpus(facts))} (a GPU with more than {_MUCH} in use counts "
        "as busy)",
        where=f"host {host.name}",
        next=f"wait, leave the host out with --exclude {host.name}, use its busy GPUs with "
        f"`gpus: [0, ...]` for {host.name} in the inventory, or train on its CPU with `gpus: none`",
    )


def gpus_text(facts: HostFacts, gpus: tuple[int, ...]) -> str:
    """Return a text such as "GPU 0 (H200, 140 GiB)" or "GPUs 0 and 1 (H200, 140 GiB each)"."""
    models = dict.fromkeys(
        f"{gpu.name}, {format_binary_bytes(gpu.memory_mib << 20)}" if gpu.memory_mib else gpu.name
        for gpu in facts.gpus
        if gpu.index in gpus
    )
    several = "s" if len(gpus) > 1 else ""
    each = " each" if len(models) == 1 < len(gpus) else ""
    described = f" ({'; '.join(models)}{each})" if models else ""
    return f"GPU{several} {' and '.join(map(str, gpus))}{described}"


def notes(host: Host, facts: HostFacts, assigned_gpus: tuple[int, ...]) -> Notes:
    """Return notes on the GPUs of one host. `assigned_gpus`: indices of the GPUs that tasks get."""
    texts = []
    if facts.gpu_error and host.gpus == "auto":
        texts.append(f"{host.name} is planned without GPUs: {facts.gpu_error}")
    busy = _busy_gpus(facts)
    taken = [gpu for gpu in busy if gpu.index in assigned_gpus]
    if taken:
        texts.append(
            f"{host.name} trains on GPUs that other processes use, because its `gpus:` names them: "
            f"{_usage_text(taken)}"
        )
    left_out = [gpu for gpu in busy if gpu not in taken]
    if left_out and host.gpus != "none" and not isinstance(host.gpus, tuple):
        texts.append(
            f"{host.name}: busy GPUs are not used (more than {_MUCH} in use): "
            f"{_usage_text(left_out)}"
        )
    return tuple(texts)


def _busy_gpus(facts: HostFacts) -> list[Gpu]:
    """Return the GPUs that other processes use."""
    return [gpu for gpu in facts.gpus if gpu.used_mib > BUSY_MIB]


def _usage_text(gpus: Iterable[Gpu]) -> str:
    return ", ".join(
        f"GPU {gpu.index} ({gpu.name}) uses {format_binary_bytes(gpu.used_mib << 20)} of "
        f"{format_binary_bytes(gpu.memory_mib << 20)}"
        for gpu in gpus
    )


def _missing_gpus_error(host: Host, facts: HostFacts, requested_gpus: str) -> Refused:
    present_gpus = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in facts.gpus) or "none"
    because = f" ({facts.gpu_error})" if facts.gpu_error else ""
    return Refused(
        f"the inventory gives {host.name} {requested_gpus}, and nvidia-smi there finds: "
        f"{present_gpus}{because}",
        where=host.places.get("gpus") or host.source or f"host {host.name}",
        next=f"write `gpus: auto` in place of {host.setting_with_place('gpus')}",
    )
