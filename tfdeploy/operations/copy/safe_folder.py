"""Access files below one folder, by names that come from hosts.

No link is followed, and a name that leads out of the folder is refused. All access uses directory
descriptors, so that an attacker cannot replace a folder by a link between check and use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tfdeploy.agent.host import file_sum
from tfdeploy.errors import Refused
from tfdeploy.text.typed import is_safe_relative_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK  # O_NONBLOCK, so that opening a FIFO does not block


class SafeFolder:
    """An open folder, which is created if missing.

    Methods take paths relative to the folder, with `/`. They raise OSError, and Refused if a link
    or a folder is in the way, or if a path leads out of the folder.
    """

    def __init__(self, path: Path, fd: int | None = None) -> None:
        self.path = path
        if fd is None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = _open_folder(None, str(path), path, make=True)
        self._fd = fd

    def __enter__(self) -> SafeFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def open_subfolder(self, *names: str) -> SafeFolder:
        """Open the folder at the path `names`, and create missing folders.

        The caller must close the result.
        """
        current = SafeFolder(self.path, os.dup(self._fd))
        for name in names:
            with current:
                current = SafeFolder(
                    current.path / name,
                    _open_folder(current._fd, _check_path(name), current.path / name, make=True),
                )
        return current

    def list_names(self) -> list[str]:
        return os.listdir(self._fd)

    def stat(self, path: str) -> os.stat_result | None:
        """Return lstat of the path; None if nothing exists there."""
        try:
            with self._open_parent(path, make=False) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file and return its descriptor. Raise Refused for anything else."""
        with self._open_parent(path, make=bool(flags & os.O_CREAT)) as (folder, name):
            try:
                fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
            except OSError:
                self._refuse_link(folder, name, path)
                raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused(
                "this path exists and is not a file",
                where=str(self.path / path),
                next="move it away, or use --to DIR",
            )
        return fd

    def sha256(self, path: str, first_byte: int = 0) -> str:
        """Return the hash, in hex, of the file's bytes from offset `first_byte` on."""
        with os.fdopen(self.open(path), "rb") as file:
            os.lseek(file.fileno(), first_byte, os.SEEK_SET)
            return file_sum.hash_open_file(file.fileno())[0]

    def unlink(self, path: str) -> None:
        with self._open_parent(path, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def readlink(self, path: str) -> str:
        with self._open_parent(path, make=False) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def symlink(self, target: str, path: str) -> None:
        with self._open_parent(path, make=True) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def move_from(self, source: SafeFolder, path: str) -> None:
        """Move the file at `path` in `source` to the same path in this folder.

        Both folders are on one file system. An existing file is replaced.
        """
        with (
            source._open_parent(path, make=False) as (source_folder, name),
            self._open_parent(path, make=True) as (own_folder, _),
        ):
            os.replace(name, name, src_dir_fd=source_folder, dst_dir_fd=own_folder)

    @contextlib.contextmanager
    def _open_parent(self, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """Open the parent folder of the path. Yield its descriptor, and the path's last name."""
        *folders, name = _check_path(path).split("/")
        fd, folder = os.dup(self._fd), self.path
        try:
            for step in folders:
                folder = folder / step
                fd, before = _open_folder(fd, step, folder, make=make), fd
                os.close(before)
            yield fd, name
        finally:
            os.close(fd)

    def _refuse_link(self, folder: int, name: str, path: str) -> None:
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _link_error(self.path / path)


@contextlib.contextmanager
def refuse_unwritable(path: Path) -> Iterator[None]:
    """Turn an OSError in the `with` block into Refused.

    Refused names the file of the OSError or, if the error has none, `path`.
    """
    try:
        yield
    except OSError as error:
        raise Refused(
            f"cannot write here: {error.strerror}",
            where=str(error.filename or path),
            next="name another folder with --to DIR",
        ) from error


def _check_path(path: str) -> str:
    if not is_safe_relative_path(path):
        raise Refused(f"{path!r} leads out of its folder")
    return path


def _open_folder(folder: int | None, name: str, path: Path, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _link_error(path) from None
        raise


def _link_error(path: Path) -> Refused:
    return Refused(
        f"a link is in the way: {path.name}", where=str(path), next="move it away, or use --to DIR"
    )
