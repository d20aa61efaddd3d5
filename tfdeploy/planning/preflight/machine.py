"""Rules about the machine: disk, quota, memory, limits, the workdir and its file system."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.model.check import Level
from tfdeploy.planning.checks import RESERVE_BYTES, size
from tfdeploy.planning.preflight.case import Case, Problem

FEW_BYTES = 1 << 30
FEW_INODES = 1000
TASK_BYTES = 512 << 20  # what TensorFlow takes once it is imported
SHARED_BYTES = 128 << 20  # containers often have 64 MiB
TEMPORARY_BYTES = 100 << 20
OPEN_FILES, OPEN_FILES_A_HOST = 256, 2
PROCESSES = 1024
ADDRESS_BYTES = 32 << 30
FILE_BYTES = 2 << 30
_OTHERS = 0o007
_ODD = ("vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk", "vboxsf", "9p", "cifs", "smb3", "smbfs", "davfs")
_IN_MEMORY = ("tmpfs", "ramfs")


def disk(case: Case) -> Iterator[Problem]:
    free, needed = case.facts.free_disk_bytes, case.needs.bytes + RESERVE_BYTES
    if free < needed:
        detail = f"{size(free)} free in {case.facts.workdir}, {size(needed)} needed"
        yield Problem("error", detail, f"free {size(needed - free)} there, or point `workdir:` at a larger disk")
    elif free < FEW_BYTES:
        yield Problem("warning", f"{size(free)} free in {case.facts.workdir}", "tfdeploy exec -- df -h, then free some")


def inodes(case: Case) -> Iterator[Problem]:
    free = case.facts.free_inodes
    if free < max(FEW_INODES, case.needs.files):
        level: Level = "error" if free < case.needs.files else "warning"
        yield Problem(level, f"{free} inodes free in {case.facts.workdir}", "remove small files there: df -i; du --inodes -x ~")


def quota(case: Case) -> Iterator[Problem]:
    found = case.preflight.quota
    if found is None:
        return
    fix = "remove files there, or ask for more: quota -s"
    if found.left_bytes is not None and found.left_bytes < case.needs.bytes + RESERVE_BYTES:
        yield Problem("error", f"the quota of {case.facts.user} leaves {size(found.left_bytes)} in {case.facts.workdir}", fix)
    elif found.left_files is not None and found.left_files < max(FEW_INODES, case.needs.files):
        yield Problem("error", f"the quota of {case.facts.user} leaves {found.left_files} files in {case.facts.workdir}", fix)
    elif found.over:
        yield Problem("warning", f"{case.facts.user} is over a soft quota: its grace time will end", fix)


def memory(case: Case) -> Iterator[Problem]:
    left, tasks = case.preflight.available_bytes, case.needs.tasks_on(case.host.name)
    if left is not None and left < tasks * TASK_BYTES:
        detail = f"{size(left)} of memory available, and each task takes {size(TASK_BYTES)} or more"
        yield Problem("warning", detail, "ps -eo rss,user,args --sort=-rss | head (there) shows what has it")


def limits(case: Case) -> Iterator[Problem]:
    found, everywhere = case.preflight.limits, "in /etc/security/limits.conf there, then log in anew"
    files = OPEN_FILES + OPEN_FILES_A_HOST * case.hosts
    for name, least, key, value in (
        ("open files", files, "nofile", 65536),
        ("processes", PROCESSES, "nproc", 65536),
    ):
        if found.get(name, least) < least:
            detail = f"at most {found[name]} {name} (ulimit), {least} are wanted"
            yield Problem("warning", detail, f"write `{case.facts.user} - {key} {value}` {everywhere}")
    for name, bytes_, key in (("address space", ADDRESS_BYTES, "as"), ("file size", FILE_BYTES, "fsize")):
        if found.get(name, bytes_) < bytes_:
            detail = f"{name} is limited to {size(found[name])} (ulimit)"
            yield Problem("warning", detail, f"write `{case.facts.user} - {key} unlimited` {everywhere}")
    if "CPU seconds" in found:
        detail = f"a task is killed after {found['CPU seconds']} s of CPU time (ulimit -t)"
        yield Problem("warning", detail, f"write `{case.facts.user} - cpu unlimited` {everywhere}")


def shared_memory(case: Case) -> Iterator[Problem]:
    found = case.preflight.shared_memory
    more = "mount -o remount,size=8G /dev/shm (as root there; of a container: --shm-size=8g)"
    if found is None:
        yield Problem("warning", "there is no /dev/shm", "mount -t tmpfs tmpfs /dev/shm (as root there)")
    elif not found.writable:
        yield Problem("warning", f"{case.facts.user} cannot write in /dev/shm", "chmod 1777 /dev/shm (as root there)")
    elif found.free_bytes < SHARED_BYTES:
        yield Problem("warning", f"/dev/shm has {size(found.free_bytes)} free: NCCL and data loaders use it", more)


def temporary(case: Case) -> Iterator[Problem]:
    found = case.preflight.temporary
    if found is None or not found.writable:
        path = found.path if found else "the temporary folder"
        yield Problem("warning", f"{case.facts.user} cannot write in {path}", f"chmod 1777 {path} (as root there), or set TMPDIR")
    elif found.free_bytes < TEMPORARY_BYTES:
        yield Problem("warning", f"{found.path} has {size(found.free_bytes)} free", f"free some there: du -xsh {found.path}/*")


def workdir(case: Case) -> Iterator[Problem]:
    mode = case.preflight.workdir_mode
    if mode is not None and mode & _OTHERS:
        detail = f"other users of the host may look into {case.facts.workdir} (mode {mode:04o}): code, data, checkpoints"
        yield Problem("warning", detail, f"chmod o-rwx {case.facts.workdir}")


def filesystem(case: Case) -> Iterator[Problem]:
    mount = case.preflight.mount
    if mount is None:
        return
    place, elsewhere = f"{case.facts.workdir} is on {mount.type} ({mount.point})", "point `workdir:` at a local disk or at NFS"
    if "noexec" in mount.options:
        level: Level = "error" if case.needs.requirements else "warning"
        detail = f"{case.facts.workdir} is mounted noexec: no library of an environment that `setup` makes can be loaded from it"
        yield Problem(level, detail, f"mount -o remount,exec {mount.point} (as root there), or {elsewhere}")
    if mount.type in _ODD or (mount.type.startswith("fuse.") and mount.type not in ("fuse.glusterfs", "fuse.ceph")):
        yield Problem("warning", f"{place}, which may lack locks, links or modes that a release needs", elsewhere)
    elif mount.type in _IN_MEMORY:
        yield Problem("warning", f"{place}: checkpoints are gone with the next reboot", "point `workdir:` at a disk")
