"""A release while it is received: what is there, what older releases can lend by hard links, what rsync has to bring.

A file that is shared with an older release (one inode, several names) is never changed, neither mode nor content.
"""

from __future__ import annotations

import os
import re
import shutil
import stat

from tfdeploy.agent.annotations import Dict, List, Optional, Set, Tuple
from tfdeploy.agent.host import file_sum
from tfdeploy.agent.layout import PARTIAL
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve import release_manifest
from tfdeploy.agent.serve.release_manifest import Entry

_BEING_WRITTEN = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}$", re.DOTALL)  # as rsync names it: .NAME.Xa7Xc2
FEW = 64  # up to so many contents are searched in a manifest's bytes before it is parsed


class StagingPlan(NamedTuple):
    is_new: bool
    missing: List[Entry]
    sources: Dict[str, str]  # path -> the file of an older release with this content


class Staging:
    """`folder` is in the job's folder of releases; the entries are checked (release_manifest.check)."""

    def __init__(self, folder: str, entries: List[Entry]) -> None:
        self.folder, self.entries = folder, entries
        self._seen: Dict[str, os.stat_result] = {}  # the files that `changed` found right

    def plan(self) -> StagingPlan:
        """Changes nothing. A file that is there already and right is neither missing nor lent."""
        is_new = not os.path.isdir(self.folder)
        by_path, by_content = self._lenders()
        missing, sources = [], {}
        for entry in self.entries:
            if entry.kind == "link":
                continue
            key = (entry.kind, entry.sha256)
            source = by_path.get(entry.path) or by_content.get(key)
            if source is not None:
                sources[entry.path] = source
            elif is_new or _is_shared(self._at(entry)) or content_of(self._at(entry), entry.size) != entry.sha256:
                missing.append(entry)
        return StagingPlan(is_new, missing, sources)

    def fill(self, plan: StagingPlan) -> List[Entry]:
        """Makes folders, hard links and symbolic links; removes what is not in the manifest, but for partial files.

        Returns the entries whose source in an older release is gone by now: they are missing too.
        """
        if plan.is_new:
            os.makedirs(self.folder, exist_ok=True)
        else:
            self._tidy(keep_partial=True)
        for folder in sorted(release_manifest.folders(entry.path for entry in self.entries)):
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        for entry in self.entries:
            if entry.kind == "link":
                _make_link(entry.target, self._at(entry))
        lent = [entry for entry in self.entries if entry.path in plan.sources]
        return [entry for entry in lent if not lend(plan.sources[entry.path], self._at(entry))]

    def drop_partial(self, missing: List[Entry]) -> None:
        """Removes partial files, and what is at the paths of missing entries: an earlier sync ended while it wrote them."""
        self._tidy(keep_partial=False)
        for entry in missing:
            if os.path.lexists(self._at(entry)):
                os.unlink(self._at(entry))

    def changed(self, received: Set[str]) -> List[str]:
        """The paths that are not what the manifest says. Reads the content of received files only."""
        return [entry.path for entry in self.entries if not self._is_right(entry, entry.path in received)]

    def finish(self, lent: Set[str]) -> None:
        """Sets the modes of all files that are not lent, and removes what is not in the manifest."""
        umask = os.umask(0o077)
        os.umask(umask)
        for entry in self.entries:
            if entry.kind != "link" and entry.path not in lent:
                mode = (0o755 if entry.kind == "exec" else 0o644) & ~umask
                if entry.path not in self._seen or stat.S_IMODE(self._seen[entry.path].st_mode) != mode:
                    os.chmod(self._at(entry), mode)
        self._tidy(keep_partial=False)

    def stamped(self) -> List[Entry]:
        """The entries with the times that their files had when `changed` found them right."""
        return [
            entry._replace(mtime_ns=self._seen[entry.path].st_mtime_ns if entry.kind != "link" else 0) for entry in self.entries
        ]

    def _at(self, entry: Entry) -> str:
        return self.folder + "/" + entry.path

    def _is_right(self, entry: Entry, received: bool) -> bool:
        path = self._at(entry)
        try:
            if entry.kind == "link":
                return os.readlink(path) == entry.target
            found = os.lstat(path)
        except (OSError, ValueError):
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != entry.size:
            return False
        if received and content_of(path, entry.size) != entry.sha256:
            return False
        self._seen[entry.path] = found
        return True

    def _lenders(self) -> Tuple[Dict[str, str], Dict[Tuple[str, str], str]]:
        """Files of the other releases that are still as committed: with the content that we want at that path, and by
        (kind, sha256)."""
        here = {entry.path: (entry.kind, entry.sha256) for entry in self.entries if entry.kind != "link"}
        wanted = set(here.values())
        by_path: Dict[str, str] = {}
        by_content: Dict[Tuple[str, str], str] = {}
        for manifest in release_manifest.newest_first(os.path.dirname(self.folder)):
            if not wanted:
                break
            if len(wanted) <= FEW and not release_manifest.mentions(manifest, (sha256 for _, sha256 in wanted)):
                continue
            release = manifest[: -len(release_manifest.SUFFIX)] + "/"
            stored = release_manifest.load(manifest)
            for entry in stored.entries if stored is not None else ():
                key = (entry.kind, entry.sha256)
                if key in wanted and _is_as_committed(release + entry.path, entry):
                    by_content.setdefault(key, release + entry.path)
                    if here.get(entry.path) == key:
                        by_path.setdefault(entry.path, release + entry.path)
            wanted -= by_content.keys()
        return by_path, by_content

    def _tidy(self, keep_partial: bool) -> None:
        leaves = {entry.path: entry for entry in self.entries}
        _tidy(self.folder, "", leaves, release_manifest.folders(leaves), keep_partial)


def _tidy(root: str, prefix: str, leaves: Dict[str, Entry], folders: Set[str], keep_partial: bool) -> None:
    with os.scandir(os.path.join(root, prefix)) as found:
        entries = list(found)
    for found_entry in entries:
        path = prefix + found_entry.name
        if found_entry.is_dir(follow_symlinks=False):
            if path in folders:
                _tidy(root, path + "/", leaves, folders, keep_partial)
            elif not (keep_partial and found_entry.name == PARTIAL):
                shutil.rmtree(found_entry.path)
        elif path in leaves and found_entry.is_symlink() == (leaves[path].kind == "link"):
            continue
        elif not (keep_partial and _kept_as_partial(root, prefix, found_entry, leaves)):
            os.unlink(found_entry.path)


def _kept_as_partial(root: str, prefix: str, found: "os.DirEntry[str]", leaves: Dict[str, Entry]) -> bool:
    """Keeps what rsync was writing when its connection was cut as a partial file, where the next rsync goes on."""
    name = _BEING_WRITTEN.match(found.name)
    if name is None or prefix + name.group(1) not in leaves or not found.is_file(follow_symlinks=False):
        return False
    folder = os.path.join(root, prefix, PARTIAL)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial = os.path.join(folder, name.group(1))
    if os.path.lexists(partial) and os.lstat(partial).st_size >= found.stat(follow_symlinks=False).st_size:
        return False
    os.replace(found.path, partial)
    return True


def content_of(path: str, size: int) -> Optional[str]:
    """The sha256 of a file of exactly that size; None: there is no such file."""
    return file_sum.of_first(path, size, whole=True)


def _is_shared(path: str) -> bool:
    """Whether it is an older release's file too: setting its mode would change that release."""
    try:
        return os.lstat(path).st_nlink > 1
    except (OSError, ValueError):
        return False


def _is_as_committed(path: str, entry: Entry) -> bool:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    is_executable = bool(found.st_mode & stat.S_IXUSR)
    committed = (entry.size, entry.mtime_ns, entry.kind == "exec")
    return stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns, is_executable) == committed


def lend(source: str, path: str) -> bool:
    """A hard link to the source, or a copy where no link can be made. False: the source is gone."""
    try:
        try:
            os.link(source, path, follow_symlinks=False)
        except FileExistsError:
            if not os.path.samestat(os.lstat(path), os.lstat(source)):
                os.unlink(path)
                return lend(source, path)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, path, follow_symlinks=False)
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
