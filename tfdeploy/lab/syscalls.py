"""The system calls that Python's library lacks (os.unshare is 3.12's): namespaces, mounts. Linux,
libc only."""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [
        ctypes.c_char_p(os.fsencode(word)) if word else None for word in (source, target, kind)
    ]
    _checked(
        _libc.mount(
            *words,
            ctypes.c_ulong(flags),
            ctypes.c_char_p(os.fsencode(options)) if options else None,
        ),
        f"mount {kind or source} on {target}",
    )


def switch_root(root: str) -> None:
    """Makes `root` (a mount point) the root of this mount namespace, and unmounts the old one."""
    os.chdir(root)
    _checked(_libc.pivot_root(b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", ctypes.c_int(_DETACH)), "umount of the old root")
    os.chdir("/")
