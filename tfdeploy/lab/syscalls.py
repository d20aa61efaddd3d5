"""Call Linux's unshare, mount and pivot_root through libc.

Python's standard library has neither mount nor pivot_root, and os.unshare only since 3.12.
"""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
_DETACH = 2

StrPath = str | os.PathLike[str]
_libc = ctypes.CDLL(None, use_errno=True)


def _raise_if_failed(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces. `flags`: NEWNS | NEWUTS | ... Raises OSError."""
    _raise_if_failed(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(
    source: StrPath, target: StrPath, kind: str = "", flags: int = 0, options: str = ""
) -> None:
    """Mount `source` on `target`. `kind`: the type of the file system, "" for a bind mount.

    Raises OSError.
    """
    pointers = [
        ctypes.c_char_p(os.fsencode(argument)) if argument else None
        for argument in (source, target, kind)
    ]
    _raise_if_failed(
        _libc.mount(
            *pointers,
            ctypes.c_ulong(flags),
            ctypes.c_char_p(os.fsencode(options)) if options else None,
        ),
        f"mount {kind or source} on {target}",
    )


def switch_root(root: StrPath) -> None:
    """Make `root` (a mount point) the root of this mount namespace, and unmount the old root."""
    os.chdir(root)
    _raise_if_failed(_libc.pivot_root(b".", b"."), "pivot_root")
    _raise_if_failed(_libc.umount2(b".", ctypes.c_int(_DETACH)), "umount of the old root")
    os.chdir("/")
