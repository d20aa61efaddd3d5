"""Bring labs up, load them by name, and list them."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, replace
from pathlib import Path

from tfdeploy.config import values
from tfdeploy.config.yamlfile import parse_yaml
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.lab import capabilities, folder, interpreter, loopback, network, processes, state
from tfdeploy.lab.isolated import IsolatedLab
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.loopback import LoopbackLab
from tfdeploy.lab.state import LabState

KINDS = ("loopback", "isolated")
# The pattern matches a bandwidth as tc writes it, such as 100mbit.
_RATE = re.compile(r"[1-9][0-9]*(\.[0-9]+)?([kmgt]i?)?(bit|bps)\Z", re.IGNORECASE)


def _open_lab(root: Path, lab_state: LabState) -> LoopbackLab | IsolatedLab:
    return (
        IsolatedLab(root, lab_state)
        if lab_state.kind == "isolated"
        else LoopbackLab(root, lab_state)
    )


def _refuse_invalid_settings(wanted_lab: LabState, host_count: int) -> None:
    """Raise UsageError for invalid settings, and Refused if this machine cannot run such a lab."""
    isolated, most = "add --kind isolated", network.MOST_HOSTS
    is_loopback = wanted_lab.kind == "loopback"
    mistakes = [
        (
            wanted_lab.kind not in KINDS,
            f"unknown kind of lab {wanted_lab.kind!r}",
            "--kind",
            f"one of: {', '.join(KINDS)}",
        ),
        (is_loopback and wanted_lab.rate, "a loopback lab cannot limit rates", "--rate", isolated),
        (
            is_loopback and wanted_lab.rootfs != "/",
            "hosts of a loopback lab share this machine's root file system",
            "rootfs",
            isolated,
        ),
        (is_loopback and wanted_lab.sites != 1, "a loopback lab has one site", "--sites", isolated),
        (
            # A lock in a shared workdir has the name of the host that holds it, so two hosts must
            # not have the same name.
            is_loopback and wanted_lab.shared_workdir,
            "the hosts of a loopback lab all have this machine's name, so they cannot share a "
            "workdir",
            "--shared-workdir",
            isolated,
        ),
        *(
            (
                rate and not _RATE.match(rate),
                f"{rate!r:.80} is not a rate",
                flag,
                f"write {flag} 100mbit",
            )
            for flag, rate in (("--rate", wanted_lab.rate), ("--between", wanted_lab.between))
        ),
        (
            wanted_lab.gpus is not None and not _is_gpus_value(str(wanted_lab.gpus)),
            f"{wanted_lab.gpus!r:.80} is no value of `gpus:` in an inventory",
            "--gpus",
            "write --gpus none, --gpus 2 or --gpus '[0, 1]'",
        ),
        (
            not 1 <= host_count <= most,
            f"a lab has 1 to {most} hosts, not {host_count}",
            "lab up N",
            "`tfdeploy lab up 3`",
        ),
        (
            not 1 <= wanted_lab.sites <= host_count,
            f"{host_count} hosts can be at 1 to {host_count} sites, not {wanted_lab.sites}",
            "--sites",
            "add --sites 2",
        ),
        (
            wanted_lab.between and wanted_lab.sites == 1,
            "a lab of one site has no link between sites",
            "--between",
            "add --sites 2",
        ),
    ]
    for is_mistake, problem, where, remedy in mistakes:
        if is_mistake:
            raise UsageError(problem, where=where, next=remedy)
    if not is_loopback:
        capabilities.require_isolated(host_count)


def _initialize_lab(root: Path, wanted_lab: LabState, host_count: int) -> LabState:
    """Plan the hosts of a new lab, make its folder, and return its state.

    If the hosts boot from this machine's root file system, raises Refused if the interpreter does
    not run on this machine.
    """
    if wanted_lab.rootfs == "/":
        interpreter.interpreter_folders(wanted_lab.python)
    hosts = (
        loopback.plan_hosts(root, host_count)
        if wanted_lab.kind == "loopback"
        else IsolatedLab.plan_hosts(root, host_count, wanted_lab.sites)
    )
    root.mkdir(mode=0o755, exist_ok=True)
    return replace(wanted_lab, hosts=hosts)


def _is_gpus_value(text: str) -> bool:
    """Return whether an inventory accepts the text as the value of `gpus:`."""
    try:
        values.gpus(parse_yaml(f"gpus: {text}", Path("inventory.yaml")).keys["gpus"])
    except ConfigError:
        return False
    return True


def _refuse_other_settings(existing: LabState, wanted_lab: LabState, host_count: int) -> None:
    """Raise UsageError if the existing lab differs from the wanted lab in a setting."""
    changes = [("hosts", len(existing.hosts), host_count)]
    for each in fields(wanted_lab):
        if each.name not in ("hosts", "networks"):
            changes.append(
                (each.name, getattr(existing, each.name), getattr(wanted_lab, each.name))
            )
    for key, current, requested in changes:
        if current != requested:
            raise UsageError(
                f"the lab {existing.name!r} exists with {key} {current or 'default'}, not "
                f"{requested or 'default'}",
                where=str(folder.lab_folder(existing.name)),
                next=f"`tfdeploy lab down --name {existing.name}`",
            )


def create_or_revive(
    name: str,
    kind: str = "loopback",
    count: int = 3,
    *,
    rate: str | None = None,
    python: str = sys.executable,
    shared_workdir: bool = False,
    gpus: str | int | None = None,
    sites: int = 1,
    between: str | None = None,
    rootfs: str = "/",
) -> Lab:
    """Create a lab. If it exists, start those of its hosts that do not run.

    `rate`: the bandwidth of every link in each direction, as tc writes it (100mbit). The operator's
    link has the same bandwidth.
    `between`: the bandwidth of the link between a site and the router.
    `python`: the interpreter of the training programs.
    `rootfs`: the folder of the file system that isolated hosts boot from. It must contain `python`,
    sshd and rsync.

    Raises UsageError if a lab of that name exists with other settings, Refused if privileges,
    programs or ports are missing, and HostFailed if a host did not start.
    """
    wanted = LabState(name, kind, [], python, rate, shared_workdir, gpus, sites, between, rootfs)
    _refuse_invalid_settings(wanted, count)
    root = folder.lab_folder(name)
    with folder.hold_lab_lock(root):
        lab_state = state.read(root)
        if lab_state:
            _refuse_other_settings(lab_state, wanted, count)
        else:
            lab_state = _initialize_lab(root, wanted, count)
            state.save(root, lab_state)
        lab = _open_lab(root, lab_state)
        lab.write_files()
        lab.start_hosts()
    return lab


def load(name: str) -> Lab:
    """Return the lab called `name`. Raises UsageError if there is none."""
    root = folder.lab_folder(name)
    lab_state = state.read(root)
    if lab_state is None:
        others = names()
        raise UsageError(
            f"there is no lab {name!r}; existing labs: {', '.join(others) or 'none'}",
            where=str(root),
            next=f"write --name {others[0]}" if others else f"`tfdeploy lab up 3 --name {name}`",
        )
    return _open_lab(root, lab_state)


def down(name: str) -> None:
    """Remove a lab, even if only its processes or some of its files are left.

    Raises UsageError if nothing of the lab is left.
    """
    root = folder.lab_folder(name)
    if state.read(root) or not (root.exists() or processes.find_marked(str(root))):
        load(name).down()
        return
    with folder.hold_lab_lock(root):
        processes.end_all(lambda: processes.with_descendants(processes.find_marked(str(root))))
        aside = folder.rename_for_removal(root)
    folder.delete_renamed_lab_and_leftovers(aside)


def names() -> list[str]:
    """Return the names of this user's labs."""
    labs = folder.labs_folder()
    lab_names = [path.name for path in labs.iterdir() if not path.name.startswith(folder.ASIDE)]
    return sorted(name for name in lab_names if (labs / name / state.FILE).exists())
