"""List the code files of a folder with git, so that .gitignore has its usual meaning.

If the folder is not in a git checkout, an empty temporary repository is used. Nothing in the folder
is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tfdeploy.errors import Refused

IGNORE_FILE = ".tfdeployignore"
# A path with one of these steps is no code: git's data, a path out of the folder, and caches.
# `tfdeploy init` writes schemas for editors into .tfdeploy.
_NO_CODE_NAMES = """
    .git .. __pycache__ .mypy_cache .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints .tox
    .nox .DS_Store .tfdeploy
"""
_NO_CODE = frozenset(_NO_CODE_NAMES.split())
_ENVIRONMENT_FILES = ("pyvenv.cfg", "conda-meta/history")
# These variables are removed before git is started, because they would make git use another
# repository than that of the folder.
_LOCAL_VARIABLES = """
    GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
    GIT_COMMON_DIR GIT_NAMESPACE GIT_PREFIX GIT_CONFIG_PARAMETERS GIT_CEILING_DIRECTORIES
"""


def list_code(root: str, exclude: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return (paths of the code files relative to `root`, warnings).

    Git lists the paths. Python environments, caches, and paths that .tfdeployignore or `exclude`
    names are left out. A file that git tracks is listed even if the file was deleted. Raises
    Refused.
    """
    warnings: list[str] = []
    listed_paths = _list_repository(root, "", warnings)
    left_out = {path.rstrip("/") for path in exclude} | _find_python_environments(listed_paths)
    return sorted(path for path in listed_paths if not _is_left_out(path, left_out)), warnings


def git_tracked_paths(root: str, paths: list[str]) -> list[str]:
    """Return those of `paths` that git tracks.

    Each path is looked up in the innermost repository that contains it. Raises Refused.
    """
    return [path for path in paths if _is_git_tracked(root, path)]


def find_ignore_pattern(root: str, paths: list[str]) -> str:
    """Return the pattern by which git leaves out one of `paths`, and where the pattern is written.

    Example: "`models/` (.gitignore:4)". Returns "" if no pattern of the checkout or of the top
    folder's .tfdeployignore names a path. Raises Refused.
    """
    git = _Git(root, _is_in_checkout(root, is_nested=False), [])
    own = f"core.excludesFile={os.path.join(root, IGNORE_FILE)}"
    output = git.run("-c", own, "check-ignore", "--no-index", "-v", *paths)
    for source, line, pattern in re.findall(r"(?m)^(.+?):(\d+):(.*)\t", output):
        # Git prints the path from the top of the checkout.
        tops = (each for each in (Path(root), *Path(root).parents) if (each / ".git").exists())
        return f"`{pattern}` ({os.path.relpath(next(tops, Path(root)) / source, root)}:{line})"
    return ""


def _is_git_tracked(root: str, path: str) -> bool:
    """True if git tracks the path in the innermost repository that contains it."""
    parent, name = os.path.split(os.path.join(root, path))
    return _is_in_checkout(parent, is_nested=False) and bool(
        _Git(parent, True, []).list_files("-c", "--", f":(literal){name}")
    )


def _list_repository(folder: str, prefix: str, warnings: list[str]) -> set[str]:
    """Return the files of the repository in `folder`, and of the repositories inside it.

    If `folder` is in no repository, its files are listed too. `prefix`: the path from the top
    folder to `folder`, with a final slash; every returned path begins with it. Adds texts to
    `warnings`.
    """
    git = _Git(folder, _is_in_checkout(folder, is_nested=bool(prefix)), warnings)
    listed_paths = git.list_files("-c", "-o", "--exclude-standard") if git.in_checkout else set()
    if not listed_paths:
        # Either the folder is in no checkout, or the checkout ignores the folder. For example, a
        # checkout of the whole home folder may ignore most folders in it.
        git.in_checkout = False
        listed_paths = git.list_files("-o", "--exclude-standard")
    if any(os.path.basename(path) == IGNORE_FILE for path in listed_paths) or os.path.exists(
        os.path.join(folder, IGNORE_FILE)
    ):
        listed_paths -= git.list_files(
            *(("-c",) if git.in_checkout else ()),
            "-o",
            "-i",
            f"--exclude-per-directory={IGNORE_FILE}",
        )
    inner = _select_folders(folder, listed_paths)
    result = {prefix + path for path in listed_paths - inner}
    for name in sorted(path.rstrip("/") for path in inner):
        below = _list_repository(os.path.join(folder, name), f"{prefix}{name}/", warnings)
        if not below:
            warnings.append(
                f"{prefix}{name} is a submodule without files: git submodule update --init "
                + shlex.quote(name)
            )
        result |= below
    return result


def _is_in_checkout(folder: str, is_nested: bool) -> bool:
    """True if the folder is in a git checkout.

    `is_nested`: True if an outer repository contains the folder as one entry. The outer repository
    then does not count: the folder is in a checkout only if a repository begins in the folder
    itself.
    """
    above = () if is_nested else Path(folder).parents
    return any((parent / ".git").exists() for parent in (Path(folder), *above))


def _select_folders(folder: str, listed_paths: set[str]) -> set[str]:
    """Return those of the paths that are folders, and not links to folders.

    Git lists a folder only if a repository begins in it, or if it has replaced a tracked file. Each
    folder is read once, which is faster than a stat of each path.
    """
    folders: set[str] = set()
    for parent in {os.path.dirname(path.rstrip("/")) for path in listed_paths}:
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, parent)) as entries:
            folders.update(
                os.path.join(parent, entry.name)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            )
    return {path for path in listed_paths if path.rstrip("/") in folders}


class _Git:
    """Runs git for one folder."""

    def __init__(self, folder: str, in_checkout: bool, warnings: list[str]) -> None:
        self.folder = folder
        self.in_checkout = in_checkout
        self.warnings = warnings
        local = _LOCAL_VARIABLES.split()
        self.env = {key: value for key, value in os.environ.items() if key not in local}
        self.env |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}

    def list_files(self, *options: str) -> set[str]:
        """Return the paths that `git ls-files` prints with these options. Raises Refused."""
        output = self.run("-c", "core.quotePath=false", "ls-files", "-z", *options)
        return {path for path in output.split("\0") if path}

    def run(self, *options: str) -> str:
        """Return what git prints with these options. Raises Refused."""
        if self.in_checkout:
            return self._run([], options)
        with tempfile.TemporaryDirectory(prefix="tfdeploy-git-") as empty:
            for name in ("objects", "refs"):
                os.mkdir(os.path.join(empty, name))
            Path(empty, "HEAD").write_text("ref: refs/heads/none\n")
            return self._run([f"--git-dir={empty}", f"--work-tree={self.folder}"], options)

    def _run(self, repository_options: list[str], options: tuple[str, ...]) -> str:
        command = ["git", "-c", "core.fsmonitor=false", *repository_options, *options]
        try:
            completed = subprocess.run(
                command,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise Refused(
                "git is not installed on this machine, and tfdeploy needs git to list the code",
                where=self.folder,
                next="install the package git",
            ) from error
        # `git check-ignore` ends with 1 if no pattern names a path.
        if completed.returncode > 1:
            if not repository_options and b"not a git repository" in completed.stderr:
                return ""  # the folder's .git is broken or on another file system
            raise self._git_error(os.fsdecode(completed.stderr))
        self.warnings += [
            line
            for line in os.fsdecode(completed.stderr).splitlines()
            if "could not open directory" in line
        ]
        return os.fsdecode(completed.stdout)

    def _git_error(self, stderr: str) -> Refused:
        first = stderr.strip().splitlines()[0] if stderr.strip() else "git failed without a message"
        folder = shlex.quote(self.folder)
        return Refused(
            f"git cannot list the code: {first}",
            where=self.folder,
            next=f"`git config --global --add safe.directory {folder}`, if you trust its content"
            if "dubious ownership" in stderr
            else f"`git -C {folder} status`",
        )


def _find_python_environments(listed_paths: Iterable[str]) -> set[str]:
    """Return the folders that are Python environments.

    Such a folder contains the file pyvenv.cfg or conda-meta/history.
    """
    tails = tuple("/" + mark for mark in _ENVIRONMENT_FILES)
    return {path[: -len(tail)] for path in listed_paths for tail in tails if path.endswith(tail)}


def _is_left_out(path: str, left_out: set[str]) -> bool:
    """True if the path is no code: an ignore file, git's data, a cache, or one of `left_out`.

    A path with `..` is none either. git lists it if somebody has written it into the index, and it
    would lead to a file outside the folder.
    """
    steps = path.split("/")
    if steps[-1] == IGNORE_FILE or not _NO_CODE.isdisjoint(steps):
        return True
    return bool(left_out) and any(
        "/".join(steps[:length]) in left_out for length in range(1, len(steps) + 1)
    )
