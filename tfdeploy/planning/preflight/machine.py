"""Checks the machine: disk, quota, memory, limits, the workdir and its file system."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from tfdeploy.planning.host_checks import RESERVE_BYTES
from tfdeploy.planning.preflight.case import HostCase, Problem
from tfdeploy.text.units import format_binary_bytes, format_count

# If a host has less than one of these amounts, the preflight reports it.
FEW_BYTES = 1 << 30  # free bytes on the workdir's disk
FEW_INODES = 1000  # free inodes on the workdir's disk, or inodes that the quota still allows
TASK_BYTES = 512 << 20  # free memory for each task: what TensorFlow needs after its import
SHARED_BYTES = 128 << 20  # free bytes in /dev/shm; containers often have only 64 MiB there
TEMPORARY_BYTES = 100 << 20  # free bytes in the folder for temporary files
# The user's limit on open files must be at least OPEN_FILES plus OPEN_FILES_A_HOST for each host.
OPEN_FILES, OPEN_FILES_A_HOST = 256, 2
PROCESSES = 1024  # the user's limit on the number of processes
ADDRESS_BYTES = 32 << 30  # the user's limit on the address space of a process
FILE_BYTES = 2 << 30  # the user's limit on the size of a file
_OTHERS = 0o007  # permission bits for users who are neither the owner nor in the group
_ODD = "vfat exfat msdos ntfs ntfs3 fuseblk vboxsf 9p cifs smb3 smbfs davfs"
_IN_MEMORY = ("tmpfs", "ramfs")


def disk(case: HostCase) -> Iterator[Problem]:
    free, needed = case.facts.free_disk_bytes, case.needs.bytes + RESERVE_BYTES
    detail = f"{format_binary_bytes(free)} free in {case.facts.workdir}"
    if free < needed:
        yield Problem(
            f"{detail}, {format_binary_bytes(needed)} needed",
            f"free {format_binary_bytes(needed - free)} on {case.host.name}, or point `workdir:` "
            "at a larger disk",
            "error",
        )
    elif free < FEW_BYTES:
        yield Problem(detail, f"{case.command('df', '-h')}; then free disk space")


def reserve(case: HostCase) -> Iterator[Problem]:
    free, kept, plan = case.facts.free_disk_bytes, case.host.reserve, case.needs.plan
    if free < kept and (plan is None or plan.data):
        yield Problem(
            f"{format_binary_bytes(free)} free in {case.facts.workdir}, and `reserve` keeps "
            f"{format_binary_bytes(kept)} free: no more data fits",
            f"lower {case.host.setting_with_place('reserve')}",
        )


def inodes(case: HostCase) -> Iterator[Problem]:
    free = case.facts.free_inodes
    if free < max(FEW_INODES, case.needs.files):
        yield Problem(
            f"{format_count(free, 'inode')} free in {case.facts.workdir}",
            f"remove small files; where they are: {case.command('df -i; du --inodes -x ~')}",
            "error" if free < case.needs.files else "warning",
        )


def quota(case: HostCase) -> Iterator[Problem]:
    quota_state = case.preflight.quota
    if quota_state is None:
        return
    user, files, size = case.facts.user, quota_state.left_files, quota_state.left_bytes
    fix = f"remove files, or ask for a larger quota; to see its use: {case.command('quota', '-s')}"
    lacking = ""
    if size is not None and size < case.needs.bytes + RESERVE_BYTES:
        lacking = format_binary_bytes(size)
    elif files is not None and files < max(FEW_INODES, case.needs.files):
        lacking = format_count(files, "file")
    if lacking:
        yield Problem(f"the quota of {user} leaves {lacking} in {case.facts.workdir}", fix, "error")
    elif quota_state.over:
        yield Problem(f"{user} is over a soft quota: writing fails when its grace time ends", fix)


def memory(case: HostCase) -> Iterator[Problem]:
    left, tasks = case.preflight.available_bytes, case.needs.task_count_or_one(case.host.name)
    if left is not None and left < tasks * TASK_BYTES:
        yield Problem(
            f"{format_binary_bytes(left)} of memory available, and each task takes "
            f"{format_binary_bytes(TASK_BYTES)} or more",
            case.command("ps -eo rss,user,args --sort=-rss | head"),
        )


def resource_limits(case: HostCase) -> Iterator[Problem]:
    files = OPEN_FILES + OPEN_FILES_A_HOST * case.host_count
    counted = "the limit of {name} is {has} (ulimit), but {least} are needed"
    sized = "{name} is limited to {size} (ulimit)"
    for name, least, setting, detail in (
        ("open files", files, "nofile 65536", counted),
        ("processes", PROCESSES, "nproc 65536", counted),
        ("address space", ADDRESS_BYTES, "as unlimited", sized),
        ("file size", FILE_BYTES, "fsize unlimited", sized),
        (
            "CPU seconds",
            math.inf,
            "cpu unlimited",
            "a task is killed after {has} s of CPU time (ulimit -t)",
        ),
    ):
        has = case.preflight.limits.get(name)
        if has is not None and has < least:
            yield Problem(
                detail.format(has=has, name=name, least=least, size=format_binary_bytes(has)),
                f"write the line {case.facts.user} - {setting} in /etc/security/limits.conf of "
                f"{case.host.name}, then log in anew",
            )


def shared_memory(case: HostCase) -> Iterator[Problem]:
    space = case.preflight.shared_memory
    if space is None:
        yield Problem(
            "there is no /dev/shm",
            case.command("mount", "-t", "tmpfs", "tmpfs", "/dev/shm", root=True),
        )
    elif not space.writable:
        yield Problem(
            f"{case.facts.user} cannot write in /dev/shm",
            case.command("chmod", "1777", "/dev/shm", root=True),
        )
    elif space.free_bytes < SHARED_BYTES:
        enlarge = case.command("mount", "-o", "remount,size=8G", "/dev/shm", root=True)
        yield Problem(
            f"/dev/shm has {format_binary_bytes(space.free_bytes)} free, which may be too little "
            "for NCCL and data loaders",
            f"{enlarge}; or start the container with --shm-size=8g",
        )


def temporary_folder(case: HostCase) -> Iterator[Problem]:
    space = case.preflight.temporary
    if space is None or not space.writable:
        path = space.path if space else "/tmp"
        fix = f"{case.command('chmod', '1777', path, root=True)}; or set TMPDIR"
        if space and not space.free_bytes:  # then the folder does not exist
            fix = "change TMPDIR in the start-up files of the login shell, or create that folder"
        yield Problem(f"{case.facts.user} cannot write in {path}", fix)
    elif space.free_bytes < TEMPORARY_BYTES:
        fix = f"remove files; their sizes: {case.command(f'du -xsh {shlex.quote(space.path)}/*')}"
        yield Problem(f"{space.path} has {format_binary_bytes(space.free_bytes)} free", fix)


def workdir(case: HostCase) -> Iterator[Problem]:
    mode = case.preflight.workdir_mode
    if mode is not None and mode & _OTHERS:
        yield Problem(
            f"other users of the host may look into {case.facts.workdir} (mode {mode:04o}): "
            "code, data, checkpoints",
            case.command("chmod", "o-rwx", case.facts.workdir),
        )


def filesystem(case: HostCase) -> Iterator[Problem]:
    mount = case.preflight.mount
    if mount is None:
        return
    description = f"{case.facts.workdir} is on {mount.type} ({mount.point})"
    elsewhere = "set `workdir:` to a folder on a local disk or on NFS"
    if "noexec" in mount.options:
        remount = case.command("mount", "-o", "remount,exec", mount.point, root=True)
        yield Problem(
            f"{case.facts.workdir} is mounted noexec: no library of an environment that `setup` "
            "makes can be loaded from it",
            f"{remount}; or {elsewhere}",
            "error" if case.needs.requirements else "warning",
        )
    if mount.type in _ODD.split() or (
        mount.type.startswith("fuse.") and mount.type not in ("fuse.glusterfs", "fuse.ceph")
    ):
        yield Problem(
            f"{description}, which may lack locks, links or modes that a release needs", elsewhere
        )
    elif mount.type in _IN_MEMORY:
        yield Problem(
            f"{description}: the next reboot deletes checkpoints",
            "set `workdir:` to a folder on a disk, not in memory",
        )
