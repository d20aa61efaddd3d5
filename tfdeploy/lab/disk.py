"""Give an isolated host its own file system: a writable overlay layer over a root file system.

This code runs inside the host's new namespaces. The host has its own /tmp, /run, /root, /home,
/dev, /proc and /sys. /home/<user> survives a reboot of the host.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import uuid
from pathlib import Path

from tfdeploy.lab.orders import DiskOrder
from tfdeploy.lab.syscalls import (
    BIND,
    NO_SUID,
    PRIVATE,
    READ_ONLY,
    RECURSIVE,
    REMOUNT,
    mount,
    switch_root,
)

# (folder, its mode). The host does not see what the root file system has in these folders. Instead,
# each of them is a new tmpfs, which is empty at first.
HIDDEN = (("tmp", "1777"), ("run", "755"), ("root", "755"), ("home", "755"), ("var/tmp", "1777"))
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def _bind(source: Path, target: Path, *, read_only: bool) -> None:
    """Bind-mount a folder. `target` is created if it is missing."""
    target.mkdir(parents=True, exist_ok=True)
    mount(source, target, flags=BIND | RECURSIVE)
    if read_only:
        mount(source, target, flags=BIND | REMOUNT | READ_ONLY)


def needs_bind_mount(path: str) -> bool:
    """True if a host sees the path only through a bind mount.

    A bind mount is needed for a path in one of the HIDDEN folders, and for a path on another mount
    than /, because an overlay includes only one mount.
    """
    hidden = any(path.startswith(f"/{folder}/") for folder, _ in HIDDEN)
    return hidden or os.stat(path).st_dev != os.stat("/").st_dev


def _make_path_enterable(root: Path, path: Path) -> None:
    """Let every user enter `path` and the folders above it.

    Only the host's own layer of the overlay is changed, not the file system below that layer.
    """
    for parent in reversed((path, *path.parents)):
        inside = root / str(parent).lstrip("/")
        mode = stat.S_IMODE(inside.stat().st_mode)
        if not mode & stat.S_IXOTH:
            inside.chmod(mode | stat.S_IXOTH)


def _make_devices(dev: Path) -> None:
    """Fill the host's /dev with a few devices of this machine, shm, pts and the usual links."""
    mount("tmpfs", dev, "tmpfs", NO_SUID, "mode=755")
    names = [*DEVICES, *(name for name in os.listdir("/dev") if name.startswith("nvidia"))]
    for name in names:
        source = Path("/dev", name)
        if source.is_dir():
            _bind(source, dev / name, read_only=False)
        elif source.exists():
            (dev / name).touch()
            mount(source, dev / name, flags=BIND)
    for name in ("shm", "pts"):
        (dev / name).mkdir()
    mount("tmpfs", dev / "shm", "tmpfs", NO_SUID, "mode=1777")
    mount("devpts", dev / "pts", "devpts", NO_SUID, "newinstance,ptmxmode=0666,mode=620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"fd/{number}")


def _write_accounts(etc: Path, spec: DiskOrder) -> None:
    """Add the host's user to passwd, group and shadow.

    An entry of this machine with the same name or number is replaced.
    """
    user, uid = spec["user"], str(spec["uid"])
    for file, line in (
        ("passwd", f"{user}:*:{uid}:{uid}::/home/{user}:{spec['shell']}"),
        ("group", f"{user}:x:{uid}:"),
    ):
        lines = (etc / file).read_text(errors="surrogateescape").splitlines()
        other_lines = [
            line_before
            for line_before in lines
            if line_before.split(":")[0] != user and line_before.split(":")[2:3] != [uid]
        ]
        (etc / file).write_text("\n".join([*other_lines, line, ""]), errors="surrogateescape")
    (etc / "shadow").write_text(
        "".join(f"{name}:*:19000:0:99999:7:::\n" for name in ("root", user))
    )


def _write_name_resolution_files(etc: Path, name: str, spec: DiskOrder) -> None:
    """Write /etc/hosts, /etc/hostname and /etc/resolv.conf of the host `name`."""
    for file in ("hosts", "hostname", "resolv.conf"):
        (etc / file).unlink(missing_ok=True)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{spec['hosts_file']}")
    (etc / "hostname").write_text(f"{name}\n")
    (etc / "resolv.conf").write_text("")


def mount_overlay(folder: Path, root: Path, rootfs: str = "/") -> None:
    """Mount an overlay file system at `root`. Raises OSError.

    The lower layer is `rootfs`. The upper layer has the host's own changes, and is in `folder`.
    """
    try:
        mount(
            "overlay",
            root,
            "overlay",
            0,
            f"lowerdir={rootfs},upperdir={folder}/layer,workdir={folder}/work",
        )
    except OSError as error:
        reason = (
            "the file system of the lab's folder cannot hold the layers of an overlay; set "
            "XDG_STATE_HOME to a folder on ext4, xfs or tmpfs"
        )
        raise OSError(error.errno, f"{error.strerror}: {reason}") from error


def _set_new_boot_id(root: Path) -> None:
    """Give the host a new boot id, as a reboot of a real machine does."""
    file = root / "run/boot_id"
    file.write_text(f"{uuid.uuid4()}\n")
    file.chmod(0o444)
    mount(file, root / "proc/sys/kernel/random/boot_id", flags=BIND)


def enter_new_root(name: str, spec: DiskOrder) -> None:
    """Create the host's root file system, and make it the root of this process. Raises OSError."""
    folder = Path(spec["folder"])
    socket.sethostname(name)
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    root = folder / "root"
    mount_overlay(folder, root, spec["rootfs"])
    if spec["rootfs"] == "/" and os.path.ismount("/usr"):
        _bind(Path("/usr"), root / "usr", read_only=True)
    for path, mode in HIDDEN:
        mount("tmpfs", root / path, "tmpfs", NO_SUID, f"mode={mode}")
    for path in spec["read_only"]:
        if needs_bind_mount(path):
            _bind(Path(path), root / path.lstrip("/"), read_only=True)
        _make_path_enterable(root, Path(path))
    home = root / "home" / spec["user"]
    _bind(folder / "home", home, read_only=False)
    if spec["shared"]:
        _bind(Path(spec["shared"]), home / "tfdeploy", read_only=False)
    _make_devices(root / "dev")
    mount("proc", root / "proc", "proc")
    _set_new_boot_id(root)
    mount("sysfs", root / "sys", "sysfs", READ_ONLY)
    _write_accounts(root / "etc", spec)
    _write_name_resolution_files(root / "etc", name, spec)
    for target, source in spec["files"].items():
        inside = root / target.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, inside)
    (root / "run/sshd").mkdir()
    switch_root(root)
