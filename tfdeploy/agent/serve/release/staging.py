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
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.agent.serve.release.store import ManifestEntry, remove_folder

# If at most this many hashes are wanted, the text of a manifest is searched for them first. A
# manifest that contains none of them is then skipped, because parsing it would take longer.
FEW = 64
# Number of random characters in the temporary names of rsync, such as .NAME.Xa7Xc2.
_SUFFIX_CHARS = 6


class LinkSource(NamedTuple):
    """A file of an older release that has the wanted content. `path`: relative to the job's folder
    of releases."""

    path: str
    mtime_ns: int
    inode: int


class StagingPlan(NamedTuple):
    """How to fill a staging folder. An entry that is neither in `missing` nor in `link_sources` is
    already in the folder, from an earlier sync."""

    is_new: bool
    missing: List[ManifestEntry]
    link_sources: Dict[str, LinkSource]  # path -> a file of another release with the same content


class BegunRelease(NamedTuple):
    """A release that is being received in this session. `missing`: paths of the files that this
    host lacks. `is_new`: True if the call of release.begin has made the staging folder, and nothing
    but the call of release.commit writes to it."""

    entries: List[ManifestEntry]
    missing: List[str]
    is_new: bool


class Staging:
    """The staging folder of a release. `folder` is in the job's folder of releases; the entries are
    already checked (check_entries in verbs.py)."""

    def __init__(self, folder: str, entries: List[ManifestEntry]) -> None:
        self.folder, self.entries = folder, entries

    def plan(self) -> StagingPlan:
        """Decide which files are missing and which can be linked. Changes nothing."""
        is_new, link_sources = not os.path.isdir(self.folder), self._find_link_sources()
        missing = [
            entry
            for entry in self.entries
            if entry.kind != "link"
            and entry.path not in link_sources
            and (is_new or not self._is_complete(entry))
        ]
        return StagingPlan(is_new, missing, link_sources)

    def fill_with_links(self, plan: StagingPlan) -> StagingPlan:
        """Make the folders, hard links and symbolic links of the release. Removes what is not in
        the manifest, except partially received files.

        A file that is still to be sent may have a hard link at its path that an older release
        shares. That link is removed, because rsync would change the mode of the shared file.

        Returns a copy of `plan`. In the copy, a file counts as missing if its link source (a file
        of an older release) is gone.
        """
        inodes: Dict[str, int] = {}
        if plan.is_new:
            os.makedirs(self.folder, exist_ok=True)
        else:
            # The folder gets a new time, because another host that shares the workdir removes
            # folders that have not changed for long.
            os.utime(self.folder)
            inodes = self.remove_unlisted_files(keep_partial=True)
            for entry in plan.missing:
                if _has_other_links(self._path_of(entry)):
                    os.unlink(self._path_of(entry))
        for folder in sorted(release_store.parent_folders(entry.path for entry in self.entries)):
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        for entry in self.entries:
            if entry.kind == "link":
                _make_symlink(entry.target, self._path_of(entry))
        unlinked = self._link_all(
            {
                path: link_source
                for path, link_source in plan.link_sources.items()
                if inodes.get(path) != link_source.inode
            }
        )
        link_sources = {
            path: link_source
            for path, link_source in plan.link_sources.items()
            if path not in unlinked
        }
        return plan._replace(
            missing=plan.missing + [each for each in self.entries if each.path in unlinked],
            link_sources=link_sources,
        )

    def entries_with_times(self, plan: StagingPlan) -> List[ManifestEntry]:
        """Return all entries of the manifest. The entry of each file that is in the staging folder
        gets the file's modification time. Call this after `fill_with_links`. This method also sets
        the modes of the files that an earlier sync has left in the staging folder."""
        missing, umask, stamped_entries = (
            {entry.path for entry in plan.missing},
            _current_umask(),
            [],
        )
        for entry in self.entries:
            link_source = plan.link_sources.get(entry.path)
            if link_source is not None:
                entry = entry._replace(mtime_ns=link_source.mtime_ns)
            elif entry.kind != "link" and entry.path not in missing:
                entry = self._set_mode_and_read_time(entry, umask) or entry
            stamped_entries.append(entry)
        return stamped_entries

    def remove_partial_files(self, missing: List[ManifestEntry]) -> None:
        """Remove what an interrupted sync was writing: partially received files, and files at the
        paths of the missing entries."""
        self.remove_unlisted_files(keep_partial=False)
        for entry in missing:
            if os.path.lexists(self._path_of(entry)):
                os.unlink(self._path_of(entry))

    def finish_received(self, received: Set[str]) -> Tuple[List[ManifestEntry], List[str]]:
        """Check the received files and set their modes. Return (all entries of the manifest, paths
        of wrong files). The entry of each received file gets the file's modification time. A
        received file is wrong if it is missing or has the wrong size. If no file is wrong, remove
        from the staging folder what is not in the manifest."""
        umask, entries, wrong = _current_umask(), [], []
        for entry in self.entries:
            done = self._set_mode_and_read_time(entry, umask) if entry.path in received else entry
            entries.append(done or entry)
            if done is None:
                wrong.append(entry.path)
        if not wrong:
            self.remove_unlisted_files(keep_partial=False)
        return entries, wrong

    def _set_mode_and_read_time(self, entry: ManifestEntry, umask: int) -> Optional[ManifestEntry]:
        """Set the mode of the entry's file, and return the entry with the file's time. Return None
        if there is no file of the right size."""
        try:
            file_stat = os.lstat(self._path_of(entry))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size != entry.size:
            return None
        mode = (0o755 if entry.kind == "exec" else 0o644) & ~umask
        if stat.S_IMODE(file_stat.st_mode) != mode:
            os.chmod(self._path_of(entry), mode)
        return entry._replace(mtime_ns=file_stat.st_mtime_ns)

    def _path_of(self, entry: ManifestEntry) -> str:
        return self.folder + "/" + entry.path

    def _is_complete(self, entry: ManifestEntry) -> bool:
        """Return whether an earlier sync has left the complete file of the entry."""
        path = self._path_of(entry)
        return not _has_other_links(path) and _has_content(path, entry)

    def _link_all(self, link_source_by_path: Dict[str, LinkSource]) -> Set[str]:
        """Make the hard links. Return the paths whose link could not be made, because the file to
        link to is gone. All paths are relative to one open folder, because the links are then made
        three times as fast as with absolute paths."""
        unlinked: Set[str] = set()
        parent, folder_name = os.path.split(self.folder)
        root = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for path, link_source in link_source_by_path.items():
                try:
                    os.link(
                        link_source.path,
                        folder_name + "/" + path,
                        src_dir_fd=root,
                        dst_dir_fd=root,
                        follow_symlinks=False,
                    )
                except OSError:
                    if not _link_or_copy(parent + "/" + link_source.path, self.folder + "/" + path):
                        unlinked.add(path)
        finally:
            os.close(root)
        return unlinked

    def _find_link_sources(self) -> Dict[str, LinkSource]:
        """Return {path: source of its hard link}. A source is an unchanged file of another release
        with the same content and kind, if possible also with the same path."""
        contents = {
            entry.path: (entry.kind, entry.sha256) for entry in self.entries if entry.kind != "link"
        }
        wanted: Dict[Tuple[str, str], List[str]] = {}
        for path, wanted_content in contents.items():
            wanted.setdefault(wanted_content, []).append(path)
        link_sources: Dict[str, LinkSource] = {}
        for manifest in release_store.list_manifests_newest_first(os.path.dirname(self.folder)):
            if not wanted:
                break
            if len(wanted) <= FEW and not release_store.contains_any_hash(
                manifest, (sha256 for _, sha256 in wanted)
            ):
                continue
            lent: Dict[Tuple[str, str], LinkSource] = {}
            for entry, link_source in _unchanged_files(manifest, wanted):
                content = (entry.kind, entry.sha256)
                lent.setdefault(content, link_source)
                if contents.get(entry.path) == content:
                    link_sources[entry.path] = link_source
            for lent_content, link_source in lent.items():
                for path in wanted.pop(lent_content):
                    link_sources.setdefault(path, link_source)
        return link_sources

    def remove_unlisted_files(self, keep_partial: bool) -> Dict[str, int]:
        """Remove what is not in the manifest. Return {path: inode} of what stays."""
        leaves = {entry.path: entry for entry in self.entries}
        folders = release_store.parent_folders(leaves)
        inodes: Dict[str, int] = {}
        _remove_unlisted(self.folder, "", leaves, folders, inodes, keep_partial)
        return inodes


def _remove_unlisted(
    root: str,
    prefix: str,
    entry_by_path: Dict[str, ManifestEntry],
    folders: Set[str],
    inode_by_path: Dict[str, int],
    keep_partial: bool,
) -> None:
    with os.scandir(os.path.join(root, prefix)) as scan:
        children = list(scan)
    for child in children:
        path = prefix + child.name
        if child.is_dir(follow_symlinks=False):
            if path in folders:
                _remove_unlisted(
                    root, path + "/", entry_by_path, folders, inode_by_path, keep_partial
                )
            elif not (keep_partial and child.name == PARTIAL):
                remove_folder(child.path)
        elif path in entry_by_path and child.is_symlink() == (entry_by_path[path].kind == "link"):
            inode_by_path[path] = child.inode()
        elif not (keep_partial and _save_as_partial(root, prefix, child, entry_by_path)):
            os.unlink(child.path)


def _save_as_partial(
    root: str, prefix: str, entry: "os.DirEntry[str]", entry_by_path: Dict[str, ManifestEntry]
) -> bool:
    """If the entry is a temporary file that rsync was writing when its connection was cut, keep it
    as a partial file, which the next rsync resumes. Return whether it was kept."""
    hidden_name, _, suffix = entry.name.rpartition(".")
    name = hidden_name[1:]
    is_rsyncs = len(suffix) == _SUFFIX_CHARS and hidden_name == "." + name
    if (
        not is_rsyncs
        or prefix + name not in entry_by_path
        or not entry.is_file(follow_symlinks=False)
    ):
        return False
    folder = os.path.join(root, prefix, PARTIAL)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial, size = os.path.join(folder, name), entry.stat(follow_symlinks=False).st_size
    if os.path.lexists(partial) and os.lstat(partial).st_size >= size:
        return False
    os.replace(entry.path, partial)
    return True


def _current_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _has_other_links(path: str) -> bool:
    """Return whether an older release shares the file. In that case, setting the file's mode would
    change that release too."""
    try:
        return os.lstat(path).st_nlink > 1
    except (OSError, ValueError):
        return False


def _unchanged_files(
    manifest_path: str, wanted_contents: Collection[Tuple[str, str]]
) -> Iterator[Tuple[ManifestEntry, LinkSource]]:
    """Yield the files of a release that have not changed since the release was committed, and whose
    (kind, sha256) is in `wanted_contents`."""
    stored = release_store.load_manifest(manifest_path)
    if stored is None:
        return
    release = manifest_path[: -len(release_store.SUFFIX)]
    path_prefix, may_be_torn = os.path.basename(release) + "/", stored.may_be_torn
    try:
        root = os.open(release, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for entry in stored.entries:
            inode = (
                _find_inode(entry, root) if (entry.kind, entry.sha256) in wanted_contents else None
            )
            if inode is not None and not (
                may_be_torn and not _has_content(release + "/" + entry.path, entry)
            ):
                yield entry, LinkSource(path_prefix + entry.path, entry.mtime_ns, inode)
    finally:
        os.close(root)


def _find_inode(entry: ManifestEntry, root: int) -> Optional[int]:
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


def _has_content(path: str, entry: ManifestEntry) -> bool:
    return hash_first_bytes(path, entry.size, whole=True) == entry.sha256


def _link_or_copy(source: str, path: str) -> bool:
    """Make a hard link to the source, or a copy if no link can be made. Return False if the source
    is gone."""
    try:
        try:
            os.link(source, path, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samestat(os.lstat(path), os.lstat(source)):
                os.unlink(path)
                return _link_or_copy(source, path)
        except FileNotFoundError:
            raise
        except OSError:
            from shutil import copy2  # imported only if the file system has no hard links

            copy2(source, path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _make_symlink(target: str, path: str) -> None:
    try:
        if os.readlink(path) == target:
            return
        os.unlink(path)
    except FileNotFoundError:
        pass
    os.symlink(target, path)
