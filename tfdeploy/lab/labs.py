"""Bring labs up, load them by name, and list them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TypedDict

from tfdeploy.errors import UsageError
from tfdeploy.lab import capabilities, folder, interpreter, loopback, network, processes, state
from tfdeploy.lab.isolated import IsolatedLab
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.loopback import LoopbackLab
from tfdeploy.lab.state import LabState

KINDS = ("loopback", "isolated")
DEFAULT_NAME = "lab"
# The pattern matches a bandwidth as tc writes it, such as 100mbit.
_RATE = re.compile(r"[1-9][0-9]*(\.[0-9]+)?([kmgt]i?)?(bit|bps)\Z", re.IGNORECASE)


class Shape(TypedDict):
    """The settings that cannot change while a lab exists."""

    rate: str | None
    python: str
    shared_workdir: bool
    gpus: str | int | None
    sites: int
    between: str | None
    rootfs: str


def _open_lab(root: Path, lab_state: LabState) -> LoopbackLab | IsolatedLab:
    return (
        IsolatedLab(root, lab_state)
        if lab_state.kind == "isolated"
        else LoopbackLab(root, lab_state)
    )


def _check(kind: str, count: int, shape: Shape) -> None:
    """Raise UsageError for invalid settings, and Refused if this machine cannot run such a lab."""
    if kind not in KINDS:
        raise UsageError(
            f"unknown kind of lab {kind!r}", where="--kind", next=f"one of: {', '.join(KINDS)}"
        )
    if kind == "loopback" and shape["rate"]:
        raise UsageError(
            "a loopback lab has no link to shape", where="--rate", next="add --kind isolated"
        )
    if kind == "loopback" and shape["rootfs"] != "/":
        raise UsageError(
            "hosts of a loopback lab share this machine's root",
            where="rootfs",
            next="kind='isolated'",
        )
    if kind == "loopback" and shape["sites"] != 1:
        raise UsageError("a loopback lab has one site", where="--sites", next="add --kind isolated")
    if kind == "loopback" and shape["shared_workdir"]:
        # A lock in a shared workdir names its holder by the host's name.
        raise UsageError(
            "the hosts of a loopback lab all have this machine's name, so they cannot share a "
            "workdir",
            where="--shared-workdir",
            next="add --kind isolated",
        )
    for flag, rate in (("--rate", shape["rate"]), ("--between", shape["between"])):
        if rate and not _RATE.match(rate):
            raise UsageError(
                f"{rate!r:.80} is not a rate", where=flag, next=f"write {flag} 100mbit"
            )
    most = network.MOST_HOSTS
    if not 1 <= count <= most:
        raise UsageError(
            f"a lab has 1 to {most} hosts, not {count}",
            where="tfdeploy lab up N",
            next="`tfdeploy lab up 3`",
        )
    if not 1 <= shape["sites"] <= count:
        raise UsageError(
            f"{count} hosts can be at 1 to {count} sites, not {shape['sites']}",
            where="--sites",
            next="add --sites 2",
        )
    if shape["between"] and shape["sites"] == 1:
        raise UsageError("one site has no link to another", where="--between", next="add --sites 2")
    if kind == "isolated":
        capabilities.require_isolated(count)


def _create(name: str, kind: str, count: int, shape: Shape) -> LabState:
    """Plan the hosts of a new lab, make its folder, and return its state.

    Raises Refused if the interpreter does not run on this machine, whose root the hosts boot from.
    """
    if shape["rootfs"] == "/":
        interpreter.interpreter_folders(shape["python"])
    root = folder.lab_folder(name)
    hosts = (
        loopback.plan_hosts(root, count)
        if kind == "loopback"
        else IsolatedLab.plan_hosts(root, count, shape["sites"])
    )
    root.mkdir(mode=0o755, exist_ok=True)
    return LabState(name, kind, hosts, **shape)


def _refuse_another_shape(lab_state: LabState, kind: str, count: int, shape: Shape) -> None:
    """Raise UsageError if the existing lab has other settings than the wanted ones."""
    existing = {
        "hosts": len(lab_state.hosts),
        "kind": lab_state.kind,
        **{key: getattr(lab_state, key) for key in shape},
    }
    for key, wanted in {"hosts": count, "kind": kind, **shape}.items():
        if existing[key] != wanted:
            raise UsageError(
                f"the lab {lab_state.name!r} exists with {key} {existing[key]}, not {wanted}",
                where=str(folder.lab_folder(lab_state.name)),
                next=f"`tfdeploy lab down --name {lab_state.name}`",
            )


def up(
    name: str = DEFAULT_NAME,
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
    """Create a lab, or start those hosts of an existing lab that have died.

    `rate`: the bandwidth of every link in each direction, as tc writes it (100mbit). The operator's
    link has the same bandwidth.
    `between`: the bandwidth of the link between a site and the router.
    `python`: the interpreter of the training programs.
    `rootfs`: the folder of the file system that isolated hosts boot from. It must contain `python`,
    sshd and rsync.

    Raises UsageError if a lab of that name exists with other settings, Refused (privileges,
    programs, ports), HostFailed (a host did not start).
    """
    shape: Shape = {
        "rate": rate,
        "python": python,
        "shared_workdir": shared_workdir,
        "gpus": gpus,
        "sites": sites,
        "between": between,
        "rootfs": rootfs,
    }
    _check(kind, count, shape)
    root = folder.lab_folder(name)
    with folder.locked(root):
        lab_state = state.read(root)
        if lab_state:
            _refuse_another_shape(lab_state, kind, count, shape)
        else:
            lab_state = _create(name, kind, count, shape)
            state.save(root, lab_state)
        lab = _open_lab(root, lab_state)
        lab.prepare()
        lab.ensure()
    return lab


def load(name: str = DEFAULT_NAME) -> Lab:
    """Return the lab called `name`. Raises UsageError if there is none."""
    root = folder.lab_folder(name)
    lab_state = state.read(root)
    if lab_state is None:
        others = ", ".join(names()) or "none"
        raise UsageError(
            f"no lab {name!r} (there: {others})",
            where=str(root),
            next=f"`tfdeploy lab up 3 --name {name}`",
        )
    return _open_lab(root, lab_state)


def down(name: str = DEFAULT_NAME) -> None:
    """Remove a lab, even if only its processes or some of its files are left.

    Raises UsageError if nothing of the lab is left.
    """
    root = folder.lab_folder(name)
    if state.read(root) or not (root.exists() or processes.marked(str(root))):
        load(name).down()
        return
    with folder.locked(root):
        processes.end_all(
            lambda: (
                processes.with_descendants(processes.marked(str(root))) - processes.own_ancestry()
            )
        )
        aside = folder.put_aside(root)
    folder.remove(aside)


def names() -> list[str]:
    """Return the names of this user's labs."""
    labs = folder.labs_folder()
    lab_names = [path.name for path in labs.iterdir() if not path.name.startswith(folder.ASIDE)]
    return sorted(name for name in lab_names if (labs / name / state.FILE).exists())
