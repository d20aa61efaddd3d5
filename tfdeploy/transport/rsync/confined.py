"""Run a program that may write only below FOLDER, and may read only FOLDER, each READABLE and
system files.

This file is a program of its own, which imports only the standard library:

    python -S -E confined.py FOLDER [READABLE ...] -- program words

Landlock restricts files, TCP and signals. seccomp forbids new sockets. If the kernel lacks one of
the two, the other still applies. The program runs even if the kernel lacks both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Sequence

SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
DEVICES = ("/dev/null",)

# One instruction of a BPF program: (code, steps to skip if true, steps to skip if false, value).
Step = tuple[int, int, int, int]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (
    1 << bit for bit in range(6)
)
_MAKE_DIR, _MAKE_FILE, _REFER, _TRUNCATE, _IOCTL = 1 << 7, 1 << 8, 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1  # all rights of Landlock's version 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE | _REFER | _TRUNCATE
_TCP = 3  # Landlock's bits for TCP: bind, connect
_SCOPES = 3  # Landlock's bits for scopes: abstract unix sockets, signals

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
# The last instructions of the seccomp filter. A refused system call fails with EPERM.
_ALLOW, _REFUSE = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)
_STREAM = 1
_LOAD, _EQUAL, _AT_LEAST, _AND, _X32 = 0x20, 0x15, 0x35, 0x54, 0x40000000
# {machine: (AUDIT_ARCH, number of socketpair, numbers of the refused calls)}. The refused calls are
# socket, connect, ptrace, process_vm_readv, process_vm_writev, io_uring_setup, shmget, setpriority,
# sched_setaffinity, add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd.
_CALLS = {
    "x86_64": (
        0xC000003E,
        53,
        (41, 42, 101, 310, 311, 425, 29, 141, 203, 248, 249, 250, 298, 321, 323),
    ),
    "aarch64": (
        0xC00000B7,
        199,
        (198, 203, 117, 270, 271, 425, 194, 140, 122, 217, 218, 219, 241, 280, 282),
    ),
}


def landlock_version() -> int:
    """Return the kernel's version of Landlock, or 0 if Landlock is missing or switched off."""
    if sys.platform != "linux":
        return 0  # the numbers of system calls in this file have another meaning elsewhere
    return max(
        0,
        int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))),
    )


def main() -> None:
    """Restrict this process, then replace it by the program."""
    separator = sys.argv.index("--")
    folder, *readable = sys.argv[1:separator]
    command = sys.argv[separator + 1 :]
    _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restrict_files(folder, readable)
    forbid_sockets(os.uname().machine)
    os.execvp(command[0], command)


def restrict_files(folder: str, readable: Sequence[str]) -> None:
    """Allow this process to write only below `folder`, by rules of Landlock.

    It may read `folder`, the system's programs and the paths in `readable`.
    """
    kernel_version = landlock_version()
    if not kernel_version:
        return
    handled = (
        _FIRST
        | (_REFER if kernel_version >= 2 else 0)
        | (_TRUNCATE if kernel_version >= 3 else 0)
        | (_IOCTL if kernel_version >= 5 else 0)
    )
    fields = (
        (handled,)
        + ((_TCP,) if kernel_version >= 4 else ())
        + ((_SCOPES,) if kernel_version >= 6 else ())
    )
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _libc().syscall(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return
    for path in (*SYSTEM, *readable):
        _allow(ruleset, path, handled & _READ)
    for path in DEVICES:
        _allow(ruleset, path, handled & (_READ_FILE | _WRITE_FILE))
    _allow(ruleset, folder, handled & (_CHANGE | _READ & ~_EXECUTE))
    _libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Add a rule to Landlock's `ruleset`: this process may use the rights `access` below `path`."""
    with contextlib.suppress(OSError):  # some of the paths may not exist on this system
        fd = os.open(path, os.O_PATH)
        if not os.path.isdir(path):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, fd)
        _libc().syscall(
            _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0)
        )
        os.close(fd)


def forbid_sockets(machine: str) -> None:
    """Use seccomp to forbid this process all sockets except pairs of connected stream sockets.

    seccomp is needed because Landlock restricts neither UDP nor unix sockets with a path.
    """
    if machine not in _CALLS:
        return
    arch, socketpair, refused = _CALLS[machine]
    # The offsets 4, 0 and 24 in struct seccomp_data are the architecture, the number of the call,
    # and the call's second argument, whose lowest bits are the type of the sockets.
    program: list[Step] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, arch), _REFUSE]
    program += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _X32), _REFUSE]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), _REFUSE]
    program += [(_EQUAL, 1, 0, socketpair), _ALLOW]
    program += [(_LOAD, 0, 0, 24), (_AND, 0, 0, 0xF), (_EQUAL, 1, 0, _STREAM), _REFUSE, _ALLOW]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    code_buffer = ctypes.create_string_buffer(code, len(code))
    program_struct = struct.pack("@HP", len(program), ctypes.addressof(code_buffer))
    _libc().prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), program_struct, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main()
