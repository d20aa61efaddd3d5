"""Manage a lab's folder $XDG_STATE_HOME/tfdeploy/lab/<name>/, which holds all its files and disks.

The folder has lab.json, inventory.yaml, known_hosts, id_ed25519 and
hosts/<host>/{console.log,host_key,sshd_config,...}. This module starts and ends no process.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tfdeploy.errors import Refused, UsageError
from tfdeploy.lab.keys import make_key
from tfdeploy.lab.state import HostState, LabState
from tfdeploy.machine.private_files import make_private_folder, write_private_file
from tfdeploy.store.places import refuse_exposed_state_root, state_root
from tfdeploy.text.allowed import NAME

KNOWN_HOSTS = "known_hosts"
INVENTORY = "inventory.yaml"
IDENTITY = "id_ed25519"
# While a lab's folder is being removed, its name is this prefix and the pid of the removing
# process. No lab can have such a name.
ASIDE = ".gone-"
# The layers of the hosts' overlay file systems are in this tmpfs if the lab's folder is itself on
# an overlay, because an overlay cannot hold the layers of another overlay.
SPARE = "/dev/shm"
LAYERS = "layers"


def labs_folder() -> Path:
    """Return the absolute path of the folder of this user's labs. Create the folder if missing.

    Raises Refused.
    """
    root = state_root(os.environ)
    refuse_exposed_state_root(root)
    folder = root / "lab"
    try:
        make_private_folder(folder)
    except OSError as error:
        raise Refused(
            f"labs cannot be kept here: {error.strerror}",
            where=str(folder),
            next="`export XDG_STATE_HOME=FOLDER`, with a folder that you may write to",
        ) from error
    return folder.resolve()


def lab_folder(name: str) -> Path:
    """Return the folder of the lab `name`. Raises UsageError for an invalid name or path."""
    if not NAME.match(name) or len(name) > 40:
        raise UsageError(
            f"{name!r:.80} is not a lab name: at most 40 letters, digits, '_', '.' and '-'",
            where="--name",
            next="`tfdeploy lab up 3 --name mine`",
        )
    folder = labs_folder() / name
    if any(not letter.isprintable() or letter in "\"'\\:, " for letter in str(folder)):
        raise UsageError(
            f"a lab cannot be in {folder}: its path has spaces or special characters",
            next="set XDG_STATE_HOME to a path without spaces and special characters",
        )
    return folder


@contextmanager
def hold_lab_lock(root: Path) -> Iterator[None]:
    """Hold a lock during the `with` block, so that this user runs one lab command at a time.

    The lock is on the folder above `root`, so no lock file is needed.
    """
    handle = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def host_folder(root: Path, host: str) -> Path:
    """Return the folder of one host."""
    return root / "hosts" / host


def operator_key(root: Path) -> Path:
    """Return the path of the operator's private key."""
    return root / IDENTITY


def make_keys(root: Path, state: LabState) -> None:
    """Make the operator's key and each host's key. Write authorized_keys and known_hosts."""
    public = make_key(operator_key(root), f"tfdeploy lab {state.name}")
    (root / "authorized_keys").write_text(public + "\n")
    lines = []
    for host in state.hosts:
        folder = host_folder(root, host.name)
        folder.mkdir(parents=True, exist_ok=True)
        key = make_key(folder / "host_key", host.name)
        lines.append(
            f"{host.address if host.port == 22 else f'[{host.address}]:{host.port}'} {key}\n"
        )
    (root / KNOWN_HOSTS).write_text("".join(lines))


def _host_line(host: HostState) -> str:
    """Return the line that describes the host in the inventory file."""
    fields = [f"address: {host.address}"]
    if host.port != 22:
        fields.append(f"port: {host.port}")
    if host.ports:
        fields.append(f"ports: {host.ports[0]}-{host.ports[1]}")
    return f"  {host.name}: {{{', '.join(fields)}}}"


def write_inventory(root: Path, state: LabState, user: str, workdir: str | None) -> None:
    """Write the inventory file of the lab.

    The first host has the role ps, and the others are workers. If the lab has only one host, this
    host has both roles.
    """
    names = [host.name for host in state.hosts]
    settings = {
        "user": user,
        "identity_file": str(operator_key(root)),
        "known_hosts": str(root / KNOWN_HOSTS),
        "python": state.python,
    }
    if workdir:
        settings["workdir"] = workdir
    if state.gpus is not None:
        settings["gpus"] = str(state.gpus)
    lines = [
        f"# The lab {state.name!r}; `tfdeploy lab down --name {state.name}` removes it.",
        "defaults:",
        *(f"  {key}: {value}" for key, value in settings.items()),
        "hosts:",
        *(_host_line(host) for host in state.hosts),
        "roles:",
        f"  ps: [{names[0]}]",
        f"  worker: [{', '.join(names[1:] or names)}]",
    ]
    write_private_file(root / INVENTORY, "\n".join(lines) + "\n")


def make_overlay_folders(root: Path, hosts: Iterable[str], *, spare: bool) -> None:
    """Create the folders `layer` and `work` of each host, which an overlay mount needs.

    If `spare` is True, `layer` and `work` are links to folders below SPARE. A reboot of this
    machine empties SPARE, so missing folders are created again.
    """
    layers = root / LAYERS
    if spare and not layers.exists():
        layers.unlink(missing_ok=True)
        layers.symlink_to(tempfile.mkdtemp(prefix="tfdeploy-lab-", dir=SPARE))
    for host, name in itertools.product(hosts, ("layer", "work")):
        path = host_folder(root, host) / name
        if layers.is_symlink():
            (layers / host / name).mkdir(parents=True, exist_ok=True)
            if not path.is_symlink():
                path.symlink_to(f"../../{LAYERS}/{host}/{name}")
        else:
            path.mkdir(exist_ok=True)


def rename_for_removal(root: Path) -> Path:
    """Rename the lab's folder, so that its name is free at once, and return its new path.

    Pass this path to `delete_renamed_lab_and_leftovers`. The caller must hold the lock. Raises
    Refused if something is still mounted below the folder.
    """
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if below := [path for path in mounts if path.startswith(f"{root}/")]:
        raise Refused(f"{below[0]} is still mounted", where=str(root), next=f"`umount {below[0]}`")
    aside = root.with_name(f"{ASIDE}{os.getpid()}-{time.monotonic_ns()}")
    if root.exists():
        root.rename(aside)
    return aside


def delete_renamed_lab_and_leftovers(renamed_lab: Path) -> None:
    """Delete the folder `renamed_lab`, and renamed lab folders that an interrupted call has left.

    Call this without the lock. It takes minutes to delete the disks of many hosts, and other lab
    commands must not wait for that.
    """
    for each in renamed_lab.parent.glob(f"{ASIDE}*"):
        pid = each.name[len(ASIDE) :].partition("-")[0]
        if each == renamed_lab or not Path("/proc", pid).exists():
            if (each / LAYERS).is_symlink():
                shutil.rmtree((each / LAYERS).readlink(), ignore_errors=True)
            shutil.rmtree(each, ignore_errors=each != renamed_lab)
