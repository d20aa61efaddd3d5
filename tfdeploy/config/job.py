"""Reads the job file, tfdeploy.yaml, into a Job. Other modules check the code and data folders."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfdeploy.config import reference
from tfdeploy.config.foreign.host_list import is_host_list
from tfdeploy.config.jobvalues import do_folders_overlap
from tfdeploy.config.node import Node, nearest_hint
from tfdeploy.config.schema import LocatedValue, read_keys
from tfdeploy.config.search import FolderSearch, FoundFile
from tfdeploy.config.yamlfile import read_yaml, shown_path
from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.machine.folders import home_folder
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import DEFAULT_METRICS, WHEELS, Job, SecretSource, Via
from tfdeploy.text.allowed import NAME
from tfdeploy.text.placeholders import check_placeholders, known_placeholders

FILE = "tfdeploy.yaml"


def find_job(flag: str | None, cwd: Path) -> FoundFile:
    """Return the job file that the flag -j names. Without -j, return the result of
    `find_job_at_or_above`.

    -j may also name a folder that contains tfdeploy.yaml. Raises ConfigError if there is no job
    file.
    """
    path, named = cwd / os.path.expanduser(flag or FILE), flag is not None
    # Unlike Path.is_dir, os.path.isdir raises no error for names that are too long.
    if os.path.isdir(path):
        path = path / FILE
    if named and os.path.exists(path):
        return FoundFile(path, named_explicitly=True)
    if not named and (job_file := find_job_at_or_above(cwd)):
        return job_file
    near = path.with_suffix(".yml")
    hint = "name the job file with -j FILE, or write a new one with `tfdeploy init`"
    raise ConfigError(
        "no job file",
        where=shown_path(path) if named else f"{FILE} in {FolderSearch.upwards(cwd)}",
        next=f"-j {shown_path(near)}" if os.path.exists(near) else hint,
    )


def find_job_at_or_above(cwd: Path) -> FoundFile | None:
    """Return the tfdeploy.yaml in `cwd`, else in the nearest folder above it.

    Return None if there is no such file.
    """
    job_file = _first_job_file(FolderSearch.upwards(cwd).folders)
    return FoundFile(job_file, named_explicitly=False) if job_file else None


def find_job_above(folder: Path) -> Path | None:
    """Return the tfdeploy.yaml in the nearest folder above `folder`.

    Verbs that run in `folder` use this job file if `folder` itself contains none. Return None if
    there is no such file.
    """
    return _first_job_file(FolderSearch.upwards(folder).folders[1:])


def _first_job_file(folders: Iterable[Path]) -> Path | None:
    return next((folder / FILE for folder in folders if os.path.isfile(folder / FILE)), None)


def load_job(path: Path, *, environ: Mapping[str, str]) -> Job:
    """Return the job with its defaults filled in. Raises ConfigError.

    Only HOME is read from `environ`.
    """
    root = read_yaml(path)
    given = read_keys(root, reference.JOB)
    folder, home = path.parent.resolve(), home_folder(environ) or "~"

    def absolute(path: str) -> str:
        return _absolute_path(path, folder, home)

    fields: dict[str, Any] = {
        **{"name": _folder_name(folder, root), "mode": None, "command": (), "code": "."},
        **{name: each.value for name, each in given.items()},
    }
    for field in ("code", "inventory", "setup_requirements", "setup_wheels"):
        if field in fields and not (field == "inventory" and is_host_list(fields[field])):
            fields[field] = absolute(fields[field])
    fields["data"] = {
        name: source if source.from_host else replace(source, path=absolute(source.path))
        for name, source in fields.get("data", {}).items()
    }
    fields["metrics"] = DEFAULT_METRICS | fields.get("metrics", {})
    sources: dict[str, SecretSource] = fields.pop("secrets", {})
    fields["secret_sources"] = {
        name: replace(source, file=source.file and absolute(source.file))
        for name, source in sources.items()
        if source.where
    }
    job = Job(
        **fields,
        secrets=tuple(sources),
        same_error_ends="restart_max" not in given,
        source=shown_path(path),
        folder=str(folder),
        places=_key_locations(given),
    )
    _refuse_overlapping_folders(job, given)
    _refuse_invalid_setup(job, root, given)
    _refuse_unknown_placeholders_and_double_variables(job, given)
    _refuse_short_ready_timeout(job, given)
    return job


def check_source_hosts(job: Job, inventory: Inventory) -> None:
    """Raise ConfigError if a data set comes from a host that is not in the inventory."""
    known = [host.name for host in inventory.hosts]
    for name, source in job.data.items():
        if source.from_host is not None and source.from_host not in known:
            raise ConfigError(
                f"data set {name} comes from {source.from_host}, which is no host of the inventory",
                where=job.places.get(f"data.{name}", f"data.{name}"),
                next=nearest_hint(source.from_host, known, "its hosts are"),
            )


def with_data_via(job: Job, via: Via | None) -> Job:
    """Return the job with this `via` (the value of --via) for all its data sets.

    If `via` is None, each data set keeps the `via` of the job file. Raises UsageError if a data set
    cannot be sent in this way.
    """
    if via is None:
        return job
    for name, source in job.data.items():
        if via == "rsync" and (source.from_host is not None or source.split != "none"):
            how = f"comes from {source.from_host}"
            if source.from_host is None:
                how = "is split among the workers"
            raise UsageError(
                f"rsync sends a complete data set from this machine, but data set {name} {how}",
                where="--via",
                next="add --via auto",
            )
    return replace(job, data={name: replace(source, via=via) for name, source in job.data.items()})


def check_command_words(words: tuple[str, ...], job: Job) -> None:
    """Raise UsageError if the words after `--` are not a valid `command` of a job file."""
    if not words or not words[0] or words[0].startswith("-"):
        raise UsageError(
            "no program after --",
            where="the command line",
            next="`tfdeploy launch -- python train.py`",
        )
    for word in words:
        check_placeholders(word, known_placeholders(job.data, job.keep))


def _folder_name(folder: Path, root: Node) -> str:
    name = folder.name
    if "name" not in root.keys and not NAME.match(name):
        raise root.error(
            f"the folder's name {name!r} cannot be the job's name",
            "give the job a name: `name: digits`",
        )
    return name


def _absolute_path(given: str, folder: Path, home: str) -> str:
    """Return the path as an absolute path, without any `..`.

    Another module compares such paths as text, to find out whether data is inside the code folder.
    """
    path = Path(home + given[1:]) if given == "~" or given.startswith("~/") else folder / given
    return os.path.realpath(path) if ".." in path.parts else str(path)


def _key_locations(value_by_field: dict[str, LocatedValue]) -> dict[str, str]:
    """Return {key of the job file: its location, "file:line:key"}.

    The keys are `command`, `cwd`, `keep`, and `env.NAME`, `data.NAME`, `metrics.NAME` and
    `roles.NAME` for each entry.
    """
    return {
        **{
            key: value_by_field[key].node.where
            for key in ("command", "cwd", "keep")
            if key in value_by_field
        },
        **{
            f"{key}.{name}": node.where
            for key in ("env", "data", "metrics", "roles")
            if key in value_by_field
            for name, node in value_by_field[key].node.keys.items()
        },
    }


def _refuse_overlapping_folders(job: Job, value_by_field: dict[str, LocatedValue]) -> None:
    """Raise ConfigError if a data set is the code folder itself, or overlaps a `keep` folder."""
    code = os.path.realpath(job.code)
    for name, source in job.data.items():
        if source.from_host is not None:
            continue
        node = value_by_field["data"].node.keys[name]
        inside = os.path.relpath(os.path.realpath(source.path), code)
        if inside == ".":
            raise node.error(
                f"data set {name} is the code folder itself", "name a folder or file in it"
            )
        for kept in job.keep:
            if do_folders_overlap(inside, kept):
                raise node.error(
                    f"data set {name} and keep folder {kept} overlap",
                    "use separate folders for the data and for what the program writes",
                )


def _refuse_invalid_setup(job: Job, root: Node, value_by_field: dict[str, LocatedValue]) -> None:
    """Raise ConfigError if `setup` names no requirements, or if its folder of wheels cannot be
    used.

    The folder of wheels must not be the code folder. A data set must not have the name WHEELS,
    which is reserved for the wheels.
    """
    setup = root.keys.get("setup")
    if setup is not None and setup.kind != "nothing" and job.setup_requirements is None:
        raise setup.error(
            "setup names no requirements", "write it as setup: {requirements: requirements.txt}"
        )
    if job.setup_wheels is None:
        return
    wheels = value_by_field["setup_wheels"].node
    if os.path.realpath(job.setup_wheels) == os.path.realpath(job.code):
        raise wheels.error(
            "the folder of wheels is the code folder itself",
            "put the wheels into a folder of their own",
        )
    if WHEELS in job.data:
        data_set = value_by_field["data"].node.keys[WHEELS]
        raise data_set.error(
            f"the name {WHEELS} is taken by the folder of wheels", "give the data set another name"
        )


def _refuse_unknown_placeholders_and_double_variables(
    job: Job, given: dict[str, LocatedValue]
) -> None:
    """Raise ConfigError if the job uses an unknown placeholder, or if a variable is both in `env`
    and in `secrets`."""
    known = known_placeholders(job.data, job.keep)
    roles = given["roles"].node.keys.values() if "roles" in given else ()
    commands = [role.keys["command"] for role in roles if "command" in role.keys]
    commands += [given["command"].node] if "command" in given else []
    variables = given["env"].node.keys if "env" in given else {}
    for item in (*(item for command in commands for item in command.items), *variables.values()):
        item.call_at_location(check_placeholders, item.text, known)
    for name in variables.keys() & {*job.secrets}:
        raise variables[name].error(
            f"{name} is both in env and in secrets, but env is not kept secret",
            f"remove {name} from env",
        )


def _refuse_short_ready_timeout(job: Job, value_by_field: dict[str, LocatedValue]) -> None:
    """Raise ConfigError unless ready.timeout is longer than ready.after.

    A program without a port counts as up only after ready.after. With a shorter ready.timeout, it
    could never be up in time.
    """
    for name in ("ready_after_s", "ready_timeout_s"):
        if name in value_by_field and job.ready_after_s >= job.ready_timeout_s:
            raise value_by_field[name].node.error(
                f"ready.after ({job.ready_after_s:g} s) is not shorter than ready.timeout "
                f"({job.ready_timeout_s:g} s): "
                "a program that never loads TensorFlow would time out before it counts as up",
                "write it as ready: {after: 5s, timeout: 2m}",
            )
