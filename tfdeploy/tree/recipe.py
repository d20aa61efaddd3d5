"""Read the inputs of a Python environment: requirements files and a folder of wheels.

This module writes nothing. It refuses a requirement with a relative path, because hosts do not have
such a path. The error names the file and the line.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.agent.host import file_sum
from tfdeploy.errors import ConfigError, Refused
from tfdeploy.tree.datasets import DataListing, list_data_set
from tfdeploy.tree.hash_cache import HashCache, make_stamp
from tfdeploy.tree.withheld_files import NONE, WithheldFiles

MOST_BYTES = 1 << 20  # maximum size of a requirements file, in bytes
MOST_FILES = 100  # maximum number of requirements files, counting included files
WHEELS = (".whl", ".tar.gz", ".zip")
_INCLUDE = re.compile(r"(?:-[rc]\s*|--(?:requirement|constraint)[\s=]\s*)(.+)\Z")
_OPTION = re.compile(r"(-e|--editable|-f|--find-links)[\s=]*(.+)\Z")
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True)
class EnvironmentRecipe:
    """The inputs of a Python environment.

    `files`: {path relative to the common folder of all requirements files: text}.
    `main_file`: the path in `files` of the requirements file that includes the others.
    `wheels`: the listing of the folder of wheels, or None if there is no such folder.
    `digest`: a hash of all files and wheels.
    """

    main_file: str
    files: dict[str, str]
    wheels: DataListing | None
    digest: str


def read_recipe(
    requirements: Path,
    wheels: Path | None,
    hash_cache: Path | None = None,
    *,
    setting: str = "setup",
    withheld_files: WithheldFiles = NONE,
) -> EnvironmentRecipe:
    """Return the inputs of a Python environment.

    `hash_cache`: the folder of the hash cache, or None to cache no hashes.
    `setting`: file and key of the setting that names the requirements and the wheels, for errors.
    `withheld_files`: files that must not be sent.

    Raises ConfigError (a file is missing, unreadable or withheld, or a path that hosts cannot have)
    and Refused (the folder has no wheel).
    """
    texts = _read_with_includes(requirements, f"{setting}.requirements")
    for requirements_file in texts:
        file = withheld_files.find(str(requirements_file)) if withheld_files.by_path else None
        if file is not None:
            raise ConfigError(
                f"{requirements_file} is {file.description}",
                where=f"{setting}.requirements",
                next="name a requirements file",
            )
    root = os.path.commonpath([path.parent for path in texts])
    files = {os.path.relpath(path, root): text for path, text in sorted(texts.items())}
    listing, contents = (
        _list_wheels(wheels, hash_cache, f"{setting}.wheels", withheld_files)
        if wheels
        else (None, {})
    )
    total = hashlib.sha256()
    for path, text in files.items():
        total.update(f"{path}\0{hashlib.sha256(text.encode()).hexdigest()}\0".encode())
    for path, sha256 in sorted(contents.items()):
        total.update(os.fsencode(f"wheel {path}\0{sha256}\0"))
    return EnvironmentRecipe(
        os.path.relpath(next(iter(texts)), root), files, listing, total.hexdigest()[:32]
    )


def _read_with_includes(requirements: Path, setting_name: str) -> dict[Path, str]:
    """Return {absolute path: text} of the requirements file and of all files that it includes.

    The requirements file comes first. The options -r and -c include files. `setting_name`: the name
    of the setting of the requirements file, for errors. Raises ConfigError.
    """
    texts: dict[Path, str] = {}
    to_read = [(Path(os.path.abspath(requirements)), setting_name)]
    while to_read:
        path, where = to_read.pop()
        if path in texts:
            continue
        if len(texts) == MOST_FILES:
            raise ConfigError(
                f"more than {MOST_FILES} requirements files",
                where=where,
                next="include fewer files",
            )
        texts[path] = _read_requirements(path, where)
        for line, requirement in logical_lines(texts[path]):
            position = f"{path}:{line}"
            included = _INCLUDE.match(requirement)
            name = included[1].strip().strip("\"'") if included else ""
            if name and "://" not in name:
                if os.path.isabs(name):
                    raise ConfigError(
                        f"{name} is an absolute path of this machine",
                        where=position,
                        next="write the path relative to this requirements file",
                    )
                to_read.append((Path(os.path.normpath(path.parent / name)), position))
            elif not included:
                _refuse_local_path(requirement, position)
    return texts


def _read_requirements(path: Path, where: str) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(
                f"{path} is larger than {MOST_BYTES} bytes",
                where=where,
                next="name a requirements file",
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no file {path}", where=where, next="correct the name, or create the file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("not in UTF-8", where=str(path), next="save the file in UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", where=where, next="name a file that you can read"
        ) from error


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each requirement or option in a requirements file.

    A line that ends with a backslash is joined with the next line; the number is that of the first
    line. Comments are removed.
    """
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first if joined else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            joined += line[:-1] + " "
            continue
        requirement, joined = _COMMENT.sub("", joined + line).strip(), ""
        if requirement:
            yield first, requirement
    if joined.strip():
        yield first, joined.strip()


def _refuse_local_path(requirement: str, position: str) -> None:
    """Raise ConfigError if the line names a relative path, which hosts do not have.

    An absolute path is accepted, because it may be on a file system that all hosts share.
    """
    option = _OPTION.match(requirement)
    named = (
        option[2] if option else requirement.split(";")[0].split(" --")[0].split("@")[-1].strip()
    )
    if "://" in requirement or named.startswith(("/", "~", "-", "file:/")):
        return
    if option or named.startswith(".") or "/" in named or named.lower().endswith(WHEELS):
        raise ConfigError(
            f"{requirement[:100]!r} lies on this machine, and the hosts do not have it",
            where=position,
            next="put the package's wheel into a folder, write `setup: {wheels: FOLDER}` in the "
            "job file, and write only the package's name in this line",
        )


def _list_wheels(
    folder: Path, hash_cache: Path | None, setting_name: str, withheld_files: WithheldFiles
) -> tuple[DataListing, dict[str, str]]:
    """Return (listing of the folder of wheels, {path of each file in it: hash}).

    Raises ConfigError if there is no such folder, and Refused if it has no wheel.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}",
            where=setting_name,
            next="correct the name, or create the folder",
        )
    if not any(path.is_file() and path.name.endswith(WHEELS) for path in folder.rglob("*")):
        raise Refused(
            "the folder of wheels holds no wheel",
            where=str(folder),
            next="`pip download -r requirements.txt -d wheels`",
        )
    listing = list_data_set(folder, withheld_files)
    hashes, digests = HashCache(hash_cache, os.path.realpath(folder)), {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            digests[name] = _hash_wheel(path, name, hashes)
    hashes.save()
    return listing, digests


def _hash_wheel(path: Path, name: str, hashes: HashCache) -> str:
    began = time.time_ns()
    with path.open("rb") as stream:
        now = os.fstat(stream.fileno())
        cached = hashes.get(name, make_stamp(now)) if stat.S_ISREG(now.st_mode) else None
        if cached is not None:
            return cached[1]
        digest, _ = file_sum.hash_open_file(stream.fileno())
        hashes.put(name, make_stamp(now), digest, began)
        return digest
