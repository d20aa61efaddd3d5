"""Checks the machine: disk, quota, memory, limits, the workdir and its file system."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfdeploy.model.output.check import Level
from tfdeploy.model.text.units import count, in_binary_bytes
from tfdeploy.planning.host_checks import RESERVE_BYTES
from tfdeploy.planning.preflight.case import Case, Problem

# The preflight reports a host that has less than one of these amounts.
FEW_BYTES = 1 << 30  # free bytes on the workdir's disk
FEW_INODES = 1000  # free inodes on the workdir's disk, or left by the quota
TASK_BYTES = 512 << 20  # free memory for each task: what TensorFlow needs after its import
SHARED_BYTES = 128 << 20  # free bytes in /dev/shm; containers often have only 64 MiB there
TEMPORARY_BYTES = 100 << 20  # free bytes in the folder for temporary files
# The user's limit on open files must be at least OPEN_FILES plus OPEN_FILES_A_HOST for each host.
OPEN_FILES, OPEN_FILES_A_HOST = 256, 2
PROCESSES = 1024  # the user's limit on the number of processes
ADDRESS_BYTES = 32 << 30  # the user's limit on the address space of a process
FILE_BYTES = 2 << 30  # the user's limit on the size of a file
_OTHERS = 0o007  # permission bits for users who are neither the owner nor in the group
_ODD = (
    "vfat",
    "exfat",
    "msdos",
    "ntfs",
    "ntfs3",
    "fuseblk",
    "vboxsf",
    "9p",
    "cifs",
    "smb3",
    "smbfs",
    "davfs",
)
_IN_MEMORY = ("tmpfs", "ramfs")


def disk(case: Case) -> Iterator[Problem]:
    free, needed = case.facts.free_disk_bytes, case.needs.bytes + RESERVE_BYTES
    if free < needed:
        detail = (
            f"{in_binary_bytes(free)} free in {case.facts.workdir}, {in_binary_bytes(needed)} "
            "needed"
        )
        yield Problem(
            "error",
            detail,
            f"free {in_binary_bytes(needed - free)} on {case.host.name}, or point `workdir:` at "
            "a larger disk",
        )
    elif free < FEW_BYTES:
        fix = f"{case.command('df', '-h')}; then free some"
        yield Problem("warning", f"{in_binary_bytes(free)} free in {case.facts.workdir}", fix)


def inodes(case: Case) -> Iterator[Problem]:
    free = case.facts.free_inodes
    if free < max(FEW_INODES, case.needs.files):
        level: Level = "error" if free < case.needs.files else "warning"
        fix = f"remove small files; where they are: {case.command('df -i; du --inodes -x ~')}"
        yield Problem(level, f"{count(free, 'inode')} free in {case.facts.workdir}", fix)


def quota(case: Case) -> Iterator[Problem]:
    quota_state = case.preflight.quota
    if quota_state is None:
        return
    fix = f"remove files, or ask for more; how it stands: {case.command('quota', '-s')}"
    if (
        quota_state.left_bytes is not None
        and quota_state.left_bytes < case.needs.bytes + RESERVE_BYTES
    ):
        yield Problem(
            "error",
            f"the quota of {case.facts.user} leaves {in_binary_bytes(quota_state.left_bytes)} in "
            f"{case.facts.workdir}",
            fix,
        )
    elif quota_state.left_files is not None and quota_state.left_files < max(
        FEW_INODES, case.needs.files
    ):
        yield Problem(
            "error",
            f"the quota of {case.facts.user} leaves {count(quota_state.left_files, 'file')} in "
            f"{case.facts.workdir}",
            fix,
        )
    elif quota_state.over:
        yield Problem(
            "warning", f"{case.facts.user} is over a soft quota: its grace time will end", fix
        )


def memory(case: Case) -> Iterator[Problem]:
    left, tasks = case.preflight.available_bytes, case.needs.tasks_on(case.host.name)
    if left is not None and left < tasks * TASK_BYTES:
        detail = (
            f"{in_binary_bytes(left)} of memory available, and each task takes "
            f"{in_binary_bytes(TASK_BYTES)} or more"
        )
        yield Problem("warning", detail, case.command("ps -eo rss,user,args --sort=-rss | head"))


def limits(case: Case) -> Iterator[Problem]:
    limit_values, everywhere = (
        case.preflight.limits,
        f"in /etc/security/limits.conf of {case.host.name}, then log in anew",
    )
    files = OPEN_FILES + OPEN_FILES_A_HOST * case.hosts
    for name, least, key, value in (
        ("open files", files, "nofile", 65536),
        ("processes", PROCESSES, "nproc", 65536),
    ):
        if limit_values.get(name, least) < least:
            detail = f"at most {limit_values[name]} {name} (ulimit), {least} are wanted"
            yield Problem(
                "warning", detail, f"write the line {case.facts.user} - {key} {value} {everywhere}"
            )
    for name, bytes_, key in (
        ("address space", ADDRESS_BYTES, "as"),
        ("file size", FILE_BYTES, "fsize"),
    ):
        if limit_values.get(name, bytes_) < bytes_:
            detail = f"{name} is limited to {in_binary_bytes(limit_values[name])} (ulimit)"
            yield Problem(
                "warning",
                detail,
                f"write the line {case.facts.user} - {key} unlimited {everywhere}",
            )
    if "CPU seconds" in limit_values:
        detail = f"a task is killed after {limit_values['CPU seconds']} s of CPU time (ulimit -t)"
        yield Problem(
            "warning", detail, f"write the line {case.facts.user} - cpu unlimited {everywhere}"
        )


def shared_memory(case: Case) -> Iterator[Problem]:
    space = case.preflight.shared_memory
    more = (
        case.command("mount", "-o", "remount,size=8G", "/dev/shm", root=True)
        + "; of a container: --shm-size=8g"
    )
    if space is None:
        yield Problem(
            "warning",
            "there is no /dev/shm",
            case.command("mount", "-t", "tmpfs", "tmpfs", "/dev/shm", root=True),
        )
    elif not space.writable:
        yield Problem(
            "warning",
            f"{case.facts.user} cannot write in /dev/shm",
            case.command("chmod", "1777", "/dev/shm", root=True),
        )
    elif space.free_bytes < SHARED_BYTES:
        yield Problem(
            "warning",
            f"/dev/shm has {in_binary_bytes(space.free_bytes)} free: NCCL and data loaders use it",
            more,
        )


def temporary(case: Case) -> Iterator[Problem]:
    space = case.preflight.temporary
    if space is None or not space.writable:
        path = space.path if space else "/tmp"
        fix = f"{case.command('chmod', '1777', path, root=True)}; or set TMPDIR"
        yield Problem("warning", f"{case.facts.user} cannot write in {path}", fix)
    elif space.free_bytes < TEMPORARY_BYTES:
        fix = f"free some; what is there: {case.command(f'du -xsh {shlex.quote(space.path)}/*')}"
        yield Problem("warning", f"{space.path} has {in_binary_bytes(space.free_bytes)} free", fix)


def workdir(case: Case) -> Iterator[Problem]:
    mode = case.preflight.workdir_mode
    if mode is not None and mode & _OTHERS:
        detail = (
            f"other users of the host may look into {case.facts.workdir} (mode {mode:04o}): "
            "code, data, checkpoints"
        )
        yield Problem("warning", detail, case.command("chmod", "o-rwx", case.facts.workdir))


def filesystem(case: Case) -> Iterator[Problem]:
    mount = case.preflight.mount
    if mount is None:
        return
    description, elsewhere = (
        f"{case.facts.workdir} is on {mount.type} ({mount.point})",
        "point `workdir:` at a local disk or at NFS",
    )
    if "noexec" in mount.options:
        level: Level = "error" if case.needs.requirements else "warning"
        detail = (
            f"{case.facts.workdir} is mounted noexec: no library of an environment that `setup` "
            "makes can be loaded from it"
        )
        remount = case.command("mount", "-o", "remount,exec", mount.point, root=True)
        yield Problem(level, detail, f"{remount}; or {elsewhere}")
    if mount.type in _ODD or (
        mount.type.startswith("fuse.") and mount.type not in ("fuse.glusterfs", "fuse.ceph")
    ):
        yield Problem(
            "warning",
            f"{description}, which may lack locks, links or modes that a release needs",
            elsewhere,
        )
    elif mount.type in _IN_MEMORY:
        yield Problem(
            "warning",
            f"{description}: checkpoints are gone with the next reboot",
            "point `workdir:` at a disk",
        )
