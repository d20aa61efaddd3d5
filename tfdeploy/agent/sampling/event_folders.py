"""Find the TensorBoard event files of a run on this host. They are below the run's working
directory and its `keep` folders, which `tfdeploy tensorboard` shows too.

A metric of an event file is named `FOLDER/TAG`: for example `train/epoch_loss`, which Keras writes,
or `eval/loss` from the folder `ckpt/eval`. FOLDER is the last folder of the path. If this name is
taken by another path, FOLDER is the last two folders, or more.

Folders whose name is only a time, such as `logs/20261121-101500`, are left out of FOLDER, so that
the metrics of the next run have the same names. Metrics of files in the working directory itself
are named `events/TAG`. A metric that a task prints never has a name of the form `FOLDER/TAG`.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Deque, Dict, Iterator, List, Set, Tuple
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent import wire
    from tfdeploy.agent.run.folder import RunPaths

# One call examines at most this many folder entries. The next call continues where it stopped.
CALL_ENTRIES = 1000
# At most this many event files, folders in one walk, folders that give names to metrics, and levels
# of folders.
MOST_FILES, MOST_FOLDERS, MOST_NAMES, MOST_DEPTH = 64, 4096, 256, 12
TOP = "events"
# The name of an event file contains a time, the name of the machine that wrote it, and more.
_FILE = re.compile(r"events\.out\.tfevents\.(\d{1,20})\.(.*)\Z", re.DOTALL)
_TIME = re.compile(r"[\d\-_:.TZ]+\Z")

if TYPE_CHECKING:
    # The names of the folders in a path, starting from the working directory.
    PathParts = Tuple[str, ...]


class FoundEventFile(NamedTuple):
    """One event file. `inode`: (device, inode). `modified_s`: its modification time in UTC seconds.
    `created_s`: the time in its name, in UTC seconds. `is_own`: True if a process of this machine
    wrote it."""

    folder: PathParts
    name: str
    inode: Tuple[int, int]
    modified_s: float
    created_s: int
    is_own: bool


class EventFolders:
    def __init__(self, paths: RunPaths, part: wire.HostPart) -> None:
        self._paths, self._part = paths, part
        first = next((peer.host for peer in part.peers if peer.deciding), part.host)
        # Hosts may share a disk, so a host may see event files that another machine has written.
        # Only the host of the deciding task (whose success is the success of the run) reads those
        # files. The steps in them count as steps of that task.
        self._own_only = first != part.host
        self._machine = os.uname().nodename
        # Only files of root and of this user are read. A program may have let everybody write to
        # its folders.
        self._owners = (0, os.geteuid())
        # Files that were last written before this time (UTC seconds) belong to an earlier run with
        # the same `keep` folders.
        self._since = 0.0
        self._files: Dict[str, FoundEventFile] = {}
        self._names: Dict[PathParts, str] = {}
        self._walk = self._walk_step_by_step()

    def find_files(self) -> Dict[str, FoundEventFile]:
        """Return {path: event file}. One call examines at most CALL_ENTRIES folder entries. If
        there are more, it takes several calls until all files are found."""
        for _ in range(CALL_ENTRIES):
            if next(self._walk, self) is self:
                self._walk = self._walk_step_by_step()
                break
        owned = {file.folder for file in self._files.values() if file.is_own}
        return {
            path: file
            for path, file in self._files.items()
            if file.is_own or file.folder not in owned
        }

    def _walk_step_by_step(self) -> Iterator[None]:
        """Walk through the folders and record their event files. This is a generator, which yields
        before each folder and before each entry of a folder, so that the caller can stop the walk
        there. Links are not followed."""
        if not self._since:
            self._since = self._prepared_time()
        present: Set[str] = set()
        folders: Deque[Tuple[str, PathParts]] = deque(self._roots())
        walked = 0
        while folders and walked < MOST_FOLDERS:
            folder, parts = folders.popleft()
            walked += 1
            yield
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                if os.readlink("/proc/self/fd/%d" % descriptor) != folder:
                    continue  # a program has replaced a folder of this path by a link
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        yield
                        path = os.path.join(folder, entry.name)
                        if entry.is_dir(follow_symlinks=False):
                            if len(parts) < MOST_DEPTH and len(folders) < MOST_FOLDERS:
                                folders.append((path, (*parts, _decode_name(entry.name))))
                        elif self._add_if_event_file(path, parts, entry):
                            present.add(path)
            except OSError:
                continue
            finally:
                os.close(descriptor)
        self._files = {path: file for path, file in self._files.items() if path in present}

    def _prepared_time(self) -> float:
        try:
            return self._paths.prepared_time()
        except OSError:
            return 0.0

    def _roots(self) -> List[Tuple[str, PathParts]]:
        paths = self._paths
        folders: List[Tuple[str, PathParts]] = [(paths.cwd, ())]
        replaced = paths.replaced_keep_links(self._part.keep)
        for path in self._part.keep:
            if path not in replaced:
                folder = layout.keep_dir(paths.workdir, paths.job, path)
                folders.append((folder, tuple(path.split("/"))))
        return [(_resolve_parents(folder), parts) for folder, parts in folders]

    def _add_if_event_file(self, path: str, folder: PathParts, entry: os.DirEntry[str]) -> bool:
        """Record the file if it is an event file of this run that this host must read. Return True
        if it was recorded."""
        match = _FILE.match(entry.name)
        if match is None:
            return False
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            return False  # the file was removed after the folder was listed
        is_own = (match.group(2) + ".").startswith(self._machine + ".")
        name = ""
        if (
            about.st_mtime > self._since
            and stat.S_ISREG(about.st_mode)
            and about.st_uid in self._owners
            and (is_own or not self._own_only)
        ):
            name = self._name_folder(folder)
        if not name:
            return False
        if path not in self._files and len(self._files) >= MOST_FILES:
            oldest = min(self._files, key=lambda path: self._files[path].modified_s)
            self._since = max(self._since, self._files.pop(oldest).modified_s)
        inode, born = (about.st_dev, about.st_ino), int(match.group(1))
        self._files[path] = FoundEventFile(folder, name, inode, about.st_mtime, born, is_own)
        return True

    def _name_folder(self, folder: PathParts) -> str:
        """Return the FOLDER in the names FOLDER/TAG of the metrics in this folder. Return "" if
        MOST_NAMES folders have names already."""
        if folder in self._names or len(self._names) >= MOST_NAMES:
            return self._names.get(folder, "")
        parts = _drop_time_names(folder)
        tails = ["/".join(parts[-length:]) for length in range(1, len(parts) + 1)] or [TOP]
        taken = {name for other, name in self._names.items() if _drop_time_names(other) != parts}
        self._names[folder] = next(
            (tail for tail in tails if tail not in taken), "%s/%s" % (TOP, tails[-1])
        )
        return self._names[folder]


def _resolve_parents(folder: str) -> str:
    """Return the path of `folder` without links in its parent folders. The path of the working
    directory may contain such links."""
    return os.path.join(os.path.realpath(os.path.dirname(folder)), os.path.basename(folder))


def _drop_time_names(folder: PathParts) -> PathParts:
    return tuple(name for name in folder if not _TIME.match(name))


def _decode_name(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")
