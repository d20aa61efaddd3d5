"""Write known_hosts files: append a new key, or replace a changed one.

All other bytes of the file stay as they are, and so do its mode, its owner and a symbolic link to
the file. To replace a key, a new file is written in the same folder and renamed. Files below
/etc/ssh belong to the administrator and are never written.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import paramiko

from tfdeploy.agent.host.flock import FileLock
from tfdeploy.errors import HostFailed
from tfdeploy.transport.ssh.host_keys.known_hosts import KnownFile, find

_SYSTEM = "/etc/ssh"
_LOCK_TIMEOUT_S = 60.0
_NAMES = re.compile(rb"[ \t]*([^ \t\0]+)")
_NEW = ".tfdeploy-new"  # suffix of the new file until the rename


def is_outside_system_folder(path: str) -> bool:
    """True if tfdeploy may write the file: it is not below /etc/ssh."""
    return not os.path.realpath(path).startswith(_SYSTEM + os.sep)


def key_line(name: str, keytype: str, key: bytes, *, hash_name: bool) -> bytes:
    """Return the line that records the key. `hash_name`: True to hash the name."""
    shown = paramiko.HostKeys.hash_host(name) if hash_name else name
    return f"{shown} {keytype} {base64.b64encode(key).decode()}\n".encode()


def append_key(path: str, name: str, line: bytes) -> None:
    """Append the line under a lock.

    If the file or its folder is missing, it is created, with the modes 0600 and 0700. Raises
    HostFailed, with this machine as the host, if the file cannot be written, or if another program
    has added another key of `name` in the meantime.
    """
    with _locked(path) as handle:
        _refuse_unaccepted_keys(
            path, name, [known.key for known in KnownFile(line, path).find(name)]
        )
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.pwrite(handle, line, size)
        os.fsync(handle)


def replace_key(
    paths: Sequence[str], name: str, line: bytes, accepted_keys: Collection[bytes]
) -> None:
    """Put `line` in place of the first line with a key of `name`. Remove all other keys of `name`.

    `accepted_keys`: the keys that the operator agreed to replace. Any other key of `name` is an
    error. The file that gets `line` is written last. If a write fails, a retry therefore still sees
    a changed key. Raises HostFailed (for this machine).
    """
    real_paths = list(dict.fromkeys(map(os.path.realpath, paths)))
    first, *other_paths = [path for path in real_paths if _keys_of(path, name)] or real_paths[:1]
    for path in (*other_paths, first):
        with _locked(path) as handle:
            _refuse_unaccepted_keys(path, name, accepted_keys)
            _rewrite(
                path,
                handle,
                replace_in_text(Path(path).read_bytes(), name, line if path == first else b""),
            )


def replace_in_text(text: bytes, name: str, line: bytes) -> bytes:
    """Return the text with `line` in place of the first line that has a key of `name`.

    `name` is removed from all other lines. If no line has a key of `name`, `line` is added at the
    end. If `line` is b"", nothing is added.
    """
    matched = {known.line for known in KnownFile(text, "").find(name) if not known.marker}
    lines: list[bytes] = []
    for number, each in enumerate(text.split(b"\n"), 1):
        if number not in matched:
            lines.append(each)
            continue
        lines += [kept for kept in (_without_name(each, name), line.rstrip(b"\n")) if kept]
        line = b""
    if line:
        # If the text ends with a newline, the last element is empty and must not become a line.
        lines[-1:] = [*filter(None, lines[-1:]), line]
    return b"\n".join(lines)


def _without_name(line: bytes, name: str) -> bytes:
    """Return the line without `name`, or b"" if the line has no other name.

    If a pattern in the line still matches `name`, `!name` is added to the line.
    """
    match = _NAMES.match(line)
    assert match is not None
    names = [each for each in match[1].split(b",") if each.lower() != name.encode()]
    if match[1].startswith(b"|") or all(not each or each.startswith(b"!") for each in names):
        return b""
    before, after = line[: match.start(1)], line[match.end(1) :]
    remaining = before + b",".join(names) + after
    if KnownFile(remaining, "").find(name):
        names.append(b"!" + name.encode())
    return before + b",".join(names) + after


def _refuse_unaccepted_keys(path: str, name: str, accepted: Collection[bytes]) -> None:
    """Raise HostFailed if the file has a key of `name` that is not in `accepted`."""
    if not _keys_of(path, name) <= set(accepted):
        raise HostFailed(
            f"another key of {name} was added to the file in the meantime",
            where=path,
            next="look at the file, then run the same command again",
        )


def _keys_of(path: str, name: str) -> set[bytes]:
    """Return the keys that the file has for `name`, without keys of certificate authorities."""
    return {entry.key for entry in find((path,), name) if not entry.marker}


def _rewrite(path: str, handle: int, text: bytes) -> None:
    """Replace the file by a new file with this text. Raises OSError, HostFailed.

    `handle`: the descriptor of the old file, which is locked.
    """
    before, new_path = os.fstat(handle), path + _NEW
    if before.st_nlink > 1:
        raise HostFailed(
            "the file has several names (hard links), and only one would get the new key",
            where=path,
            next="replace the line of the key in the file by hand",
        )
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new_path)  # a tfdeploy process that was killed may have left this temporary file
    try:
        with os.fdopen(
            os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _copy_metadata(path, new_path, before)
        now = os.stat(path)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (
            before.st_ino,
            before.st_size,
            before.st_mtime_ns,
        ):
            raise HostFailed(
                "the file is being changed by another program",
                where=path,
                next="run the same command again",
            )
        os.rename(new_path, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new_path)
        raise


def _copy_metadata(path: str, new_path: str, old_stat: os.stat_result) -> None:
    """Copy owner, mode and extended attributes from the old file to the new one.

    The modification time is not copied. A new time shows readers that the file has changed.
    """
    new_stat = os.stat(new_path)
    if (new_stat.st_uid, new_stat.st_gid) != (old_stat.st_uid, old_stat.st_gid):
        os.chown(new_path, old_stat.st_uid, old_stat.st_gid)
    shutil.copystat(path, new_path)
    os.utime(new_path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    """Lock the file and yield its descriptor. A missing file is created.

    An OSError in the `with` block becomes HostFailed.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(os.path.realpath(path)) as lock:
            if not lock.acquire(_LOCK_TIMEOUT_S) or lock.descriptor is None:
                raise HostFailed(
                    "another program has locked the file",
                    where=path,
                    next="run the same command again",
                )
            yield lock.descriptor
    except OSError as error:
        raise HostFailed(f"the key cannot be recorded: {error.strerror}", where=path) from error
