"""Fills the staging folder of a release: keeps files that are already complete, links files that
older releases have, and lists the missing ones.

A file that is shared with an older release (one inode, several names) is never changed, neither in
its mode nor in its content.
"""

from __future__ import annotations

import os
import stat

from tfdeploy.agent.annotations import Collection, Dict, Iterator, List, Optional, Set, Tuple
from tfdeploy.agent.host.file_sum import hash_first_bytes
from tfdeploy.agent.layout import PARTIAL
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import Entry
from tfdeploy.agent.serve.release.retention import remove_folder

FEW = 64  # for up to this many hashes, a manifest's text is searched before it is parsed
# Number of random characters in the temporary names of rsync, such as .NAME.Xa7Xc2.
_SUFFIX_CHARS = 6


class Lender(NamedTuple):
    """A file of an older release that has the wanted content. `path`: relative to the job's folder
    of releases."""

    path: str
    mtime_ns: int
    inode: int


class StagingPlan(NamedTuple):
    """How to fill a staging folder. An entry that is neither in `missing` nor in `lenders` is
    already in the folder, from an earlier sync."""

    is_new: bool
    missing: List[Entry]
    lenders: Dict[str, Lender]  # path -> a file of another release with the same content


class BegunRelease(NamedTuple):
    """A release that is being received in this session. `missing`: paths of the files that this
    host lacks."""

    entries: List[Entry]
    missing: List[str]


class Staging:
    """The staging folder of a release. `folder` is in the job's folder of releases; the entries are
    already checked (release_manifest.check_entries)."""

    def __init__(self, folder: str, entries: List[Entry]) -> None:
        self.folder, self.entries = folder, entries

    def plan(self) -> StagingPlan:
        """Decide which files are missing and which can be linked. Changes nothing."""
        is_new, lenders = not os.path.isdir(self.folder), self._lenders()
        missing = [
            entry
            for entry in self.entries
            if entry.kind != "link"
            and entry.path not in lenders
            and (is_new or not self._is_complete(entry))
        ]
        return StagingPlan(is_new, missing, lenders)

    def fill(self, plan: StagingPlan) -> StagingPlan:
        """Make the folders, hard links and symbolic links of the release. Removes what is not in
        the manifest, except partially received files.

        If the path of a missing file holds a hard link that an older release shares, that link is
        removed, because rsync would otherwise change the mode of the shared file. Returns a copy of
        `plan`, in which a file also counts as missing if the file to link it to is gone.
        """
        inodes: Dict[str, int] = {}
        if plan.is_new:
            os.makedirs(self.folder, exist_ok=True)
        else:
            # Another host that shares the workdir would remove a folder that has not changed for long.
            os.utime(self.folder)
            inodes = self._tidy(keep_partial=True)
            for entry in plan.missing:
                if _is_shared(self._at(entry)):
                    os.unlink(self._at(entry))
        for folder in sorted(release_manifest.parent_folders(entry.path for entry in self.entries)):
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        for entry in self.entries:
            if entry.kind == "link":
                _make_link(entry.target, self._at(entry))
        unlinked = self._link_all(
            {
                path: lender
                for path, lender in plan.lenders.items()
                if inodes.get(path) != lender.inode
            }
        )
        lenders = {path: lender for path, lender in plan.lenders.items() if path not in unlinked}
        return plan._replace(
            missing=plan.missing + [each for each in self.entries if each.path in unlinked],
            lenders=lenders,
        )

    def stamped(self, plan: StagingPlan) -> List[Entry]:
        """Return all entries of the manifest. The entry of each file that is in the staging folder
        gets the file's modification time. Call this after `fill`. Also sets the modes of files from
        an earlier sync."""
        missing, umask, stamped_entries = {entry.path for entry in plan.missing}, _umask(), []
        for entry in self.entries:
            lender = plan.lenders.get(entry.path)
            if lender is not None:
                entry = entry._replace(mtime_ns=lender.mtime_ns)
            elif entry.kind != "link" and entry.path not in missing:
                entry = self._finished(entry, umask) or entry
            stamped_entries.append(entry)
        return stamped_entries

    def drop_partial(self, missing: List[Entry]) -> None:
        """Remove what an interrupted sync was writing: partially received files, and files at the
        paths of the missing entries."""
        self._tidy(keep_partial=False)
        for entry in missing:
            if os.path.lexists(self._at(entry)):
                os.unlink(self._at(entry))

    def finish(self, received: Set[str]) -> Tuple[List[Entry], List[str]]:
        """Check the received files and set their modes. Return (all entries of the manifest, paths
        of wrong files). The entry of each received file gets the file's modification time. A
        received file is wrong if it is missing or has the wrong size. If no file is wrong, remove
        what is not in the manifest."""
        umask, entries, wrong = _umask(), [], []
        for entry in self.entries:
            done = self._finished(entry, umask) if entry.path in received else entry
            entries.append(done or entry)
            if done is None:
                wrong.append(entry.path)
        if not wrong:
            self._tidy(keep_partial=False)
        return entries, wrong

    def _finished(self, entry: Entry, umask: int) -> Optional[Entry]:
        """Set the mode of the entry's file, and return the entry with the file's time. Return None
        if there is no file of the right size."""
        try:
            file_stat = os.lstat(self._at(entry))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size != entry.size:
            return None
        mode = (0o755 if entry.kind == "exec" else 0o644) & ~umask
        if stat.S_IMODE(file_stat.st_mode) != mode:
            os.chmod(self._at(entry), mode)
        return entry._replace(mtime_ns=file_stat.st_mtime_ns)

    def _at(self, entry: Entry) -> str:
        return self.folder + "/" + entry.path

    def _is_complete(self, entry: Entry) -> bool:
        """Return whether an earlier sync has left the complete file of the entry."""
        path = self._at(entry)
        return not _is_shared(path) and _has_content(path, entry)

    def _link_all(self, lenders: Dict[str, Lender]) -> Set[str]:
        """Make the hard links. Return the paths whose link could not be made, because the file to
        link to is gone. All paths are relative to one open folder, which takes a third of the time
        of absolute paths."""
        unlinked: Set[str] = set()
        parent, folder_name = os.path.split(self.folder)
        root = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for path, lender in lenders.items():
                try:
                    os.link(
                        lender.path,
                        folder_name + "/" + path,
                        src_dir_fd=root,
                        dst_dir_fd=root,
                        follow_symlinks=False,
                    )
                except OSError:
                    if not _lend(parent + "/" + lender.path, self.folder + "/" + path):
                        unlinked.add(path)
        finally:
            os.close(root)
        return unlinked

    def _lenders(self) -> Dict[str, Lender]:
        """Return {path: lender}. A lender is an unchanged file of another release with the same
        content and kind, if possible also with the same path."""
        contents = {
            entry.path: (entry.kind, entry.sha256) for entry in self.entries if entry.kind != "link"
        }
        wanted: Dict[Tuple[str, str], List[str]] = {}
        for path, content in contents.items():
            wanted.setdefault(content, []).append(path)
        lenders: Dict[str, Lender] = {}
        for manifest in release_manifest.list_newest_first(os.path.dirname(self.folder)):
            if not wanted:
                break
            if len(wanted) <= FEW and not release_manifest.mentions_any(
                manifest, (sha256 for _, sha256 in wanted)
            ):
                continue
            lent: Dict[Tuple[str, str], Lender] = {}
            for entry, lender in _lent_by(manifest, wanted):
                content = (entry.kind, entry.sha256)
                lent.setdefault(content, lender)
                if contents.get(entry.path) == content:
                    lenders[entry.path] = lender
            for content, lender in lent.items():
                for path in wanted.pop(content):
                    lenders.setdefault(path, lender)
        return lenders

    def _tidy(self, keep_partial: bool) -> Dict[str, int]:
        """Remove what is not in the manifest. Return {path: inode} of what stays."""
        leaves = {entry.path: entry for entry in self.entries}
        folders = release_manifest.parent_folders(leaves)
        inodes: Dict[str, int] = {}
        _remove_unlisted(self.folder, "", leaves, folders, inodes, keep_partial)
        return inodes


def _remove_unlisted(
    root: str,
    prefix: str,
    leaves: Dict[str, Entry],
    folders: Set[str],
    inodes: Dict[str, int],
    keep_partial: bool,
) -> None:
    with os.scandir(os.path.join(root, prefix)) as scan:
        children = list(scan)
    for child in children:
        path = prefix + child.name
        if child.is_dir(follow_symlinks=False):
            if path in folders:
                _remove_unlisted(root, path + "/", leaves, folders, inodes, keep_partial)
            elif not (keep_partial and child.name == PARTIAL):
                remove_folder(child.path)
        elif path in leaves and child.is_symlink() == (leaves[path].kind == "link"):
            inodes[path] = child.inode()
        elif not (keep_partial and _kept_as_partial(root, prefix, child, leaves)):
            os.unlink(child.path)


def _kept_as_partial(
    root: str, prefix: str, entry: "os.DirEntry[str]", leaves: Dict[str, Entry]
) -> bool:
    """If the entry is a temporary file that rsync was writing when its connection was cut, keep it
    as a partial file, which the next rsync resumes. Return whether it was kept."""
    hidden_name, _, suffix = entry.name.rpartition(".")
    name = hidden_name[1:]
    is_rsyncs = len(suffix) == _SUFFIX_CHARS and hidden_name == "." + name
    if not is_rsyncs or prefix + name not in leaves or not entry.is_file(follow_symlinks=False):
        return False
    folder = os.path.join(root, prefix, PARTIAL)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial, size = os.path.join(folder, name), entry.stat(follow_symlinks=False).st_size
    if os.path.lexists(partial) and os.lstat(partial).st_size >= size:
        return False
    os.replace(entry.path, partial)
    return True


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _is_shared(path: str) -> bool:
    """Return whether an older release shares the file. In that case, setting the file's mode would
    change that release too."""
    try:
        return os.lstat(path).st_nlink > 1
    except (OSError, ValueError):
        return False


def _lent_by(manifest: str, wanted: Collection[Tuple[str, str]]) -> Iterator[Tuple[Entry, Lender]]:
    """Yield each file of a release that has not changed since it was committed, if its (kind,
    sha256) is in `wanted`."""
    stored = release_manifest.load_manifest(manifest)
    if stored is None:
        return
    release = manifest[: -len(release_manifest.SUFFIX)]
    path_prefix, may_be_torn = os.path.basename(release) + "/", stored.may_be_torn
    try:
        root = os.open(release, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for entry in stored.entries:
            inode = _find_inode(entry, root) if (entry.kind, entry.sha256) in wanted else None
            if inode is not None and not (
                may_be_torn and not _has_content(release + "/" + entry.path, entry)
            ):
                yield entry, Lender(path_prefix + entry.path, entry.mtime_ns, inode)
    finally:
        os.close(root)


def _find_inode(entry: Entry, root: int) -> Optional[int]:
    """Return the inode of the entry's file in the open folder `root`, or None if the file is not as
    it was committed."""
    try:
        file_stat = os.stat(entry.path, dir_fd=root, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    is_executable = bool(file_stat.st_mode & stat.S_IXUSR)
    current = file_stat.st_size, file_stat.st_mtime_ns, is_executable
    committed = entry.size, entry.mtime_ns, entry.kind == "exec"
    return file_stat.st_ino if stat.S_ISREG(file_stat.st_mode) and current == committed else None


def _has_content(path: str, entry: Entry) -> bool:
    return hash_first_bytes(path, entry.size, whole=True) == entry.sha256


def _lend(source: str, path: str) -> bool:
    """Make a hard link to the source, or a copy if no link can be made. Return False if the source
    is gone."""
    try:
        try:
            os.link(source, path, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samestat(os.lstat(path), os.lstat(source)):
                os.unlink(path)
                return _lend(source, path)
        except FileNotFoundError:
            raise
        except OSError:
            from shutil import copy2  # imported only if the file system has no hard links

            copy2(source, path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _make_link(target: str, path: str) -> None:
    try:
        if os.readlink(path) == target:
            return
        os.unlink(path)
    except FileNotFoundError:
        pass
    os.symlink(target, path)
