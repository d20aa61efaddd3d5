"""Reads the job file's structured values: command, data, keep, roles, env, metrics.

Each reader takes a node and returns plain values. job.py checks rules that involve several keys.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex

from tfdeploy.agent.wire import TASK_MARKERS
from tfdeploy.config import values
from tfdeploy.config.node import SCALARS, Node, nearest_hint
from tfdeploy.config.schema import (
    Key,
    Schema,
    accepts,
    allow_empty,
    join_alternative_patterns,
    mapping_schema,
    read_values,
    schema_of,
)
from tfdeploy.errors import ConfigError
from tfdeploy.model.job import (
    OTHERS,
    PART_VARIABLES,
    SPLITS,
    VIAS,
    DataSource,
    RoleRule,
    part_number_variable,
)
from tfdeploy.model.modes import ROLES
from tfdeploy.text.allowed import NAME, VARIABLE, is_host_path
from tfdeploy.text.user_regexes import compile_user_pattern

# Endings of names of checkpoint files, which are not folders.
_CHECKPOINT_FILES = (".pt", ".pth", ".npz", ".npy", ".pkl", ".h5", ".hdf5", ".safetensors")
MOST_KEPT = 1000  # at most this many `keep` folders; an answer of a host may list no more
# TensorFlow 1's name of the chief. A job file's `master: {}` means `chief: {as: master}`.
_CHIEF = "master"
RESERVED = (
    "TF_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "PYTHONUNBUFFERED",
    "no_grpc_proxy",
    "no_proxy",
    *TASK_MARKERS,
)

_NAMES = join_alternative_patterns(NAME)
VARIABLE_NAMES = join_alternative_patterns(VARIABLE).replace(
    "^", f"^(?!({'|'.join(RESERVED)})$|TFDEPLOY_TASK_|{PART_VARIABLES})"
)
# Matches the path of a folder inside the code.
_INSIDE_PATTERN = r"^(?![-/~])(?!(.*/)?\.\.(/|$))[^{}\\\u0000-\u001f\u007f]{1,4096}$"


def named_values_schema(schema: Schema, names: str = _NAMES) -> Schema:
    """Return the JSON Schema of a mapping whose keys match `names` and whose values match
    `schema`."""
    return {
        "type": ["object"],
        "propertyNames": {"pattern": names},
        "additionalProperties": schema,
    }


@accepts("array", items={"type": ["string", "number", "boolean"]}, minItems=1)
def command(node: Node) -> tuple[str, ...]:
    """Return the words of the command. A number is returned as it is written.

    Raises ConfigError if the command is one text instead of a list: tfdeploy uses no shell, so
    nothing would split the text into words.
    """
    if node.kind in SCALARS:
        try:
            split: list[str] = []
            for word in shlex.split(node.text[:500]):
                # If two words together are the path of an existing file, the path contains a blank.
                # They then stay one word.
                joined = " ".join([*split[-1:], word])
                is_path = os.path.exists(os.path.join(os.path.dirname(node.file), joined))
                split[-1:] = [joined] if is_path else [*split[-1:], word]
            listed = ", ".join(f'"{word}"' for word in split)
        except ValueError:
            listed = "python, train.py"
        raise node.wrong_value("a list of words", f"write it as [{listed}]")
    words = tuple(_command_word(item) for item in node.list_items("a list of words"))
    if not words or not words[0] or words[0].startswith("-"):
        raise node.error("the command names no program", "write it as [python, train.py]")
    return words


def _command_word(item: Node) -> str:
    if item.kind not in SCALARS:
        raise item.wrong_value(
            "a word", "put quotes round a word that holds braces or brackets, or is empty"
        )
    if "\0" in item.text:
        raise item.error("the word contains a NUL character", "remove the NUL character")
    return item.text


@accepts("string", pattern=join_alternative_patterns(NAME).replace("$", ":/.*[^/.]"))
def _host_and_path(node: Node) -> tuple[str, str]:
    given = node.scalar("HOST:/absolute/path")
    host, _, path = given.partition(":")
    if not NAME.match(host) or not path.startswith("/") or not is_host_path(path):
        raise node.wrong_value(
            "HOST:/absolute/path, with a host of the inventory",
            "write it as `from: n1:/srv/images`",
        )
    return host, posixpath.normpath(path)


_SOURCE = (
    Key("path", "folder or file on this machine", "path: ./images", values.text),
    Key(
        "from",
        "HOST:/PATH of a data set that is on a host",
        "from: n1:/srv/images",
        _host_and_path,
        field="origin",
    ),
    Key(
        "split",
        "worker: each worker gets its part of the data set",
        "split: worker",
        values.one_of(*SPLITS),
    ),
    Key(
        "others",
        "what the other roles get if the data set is split among the workers",
        "others: all",
        values.one_of(*OTHERS),
    ),
    Key("via", "how the data set is sent", "via: rsync", values.one_of(*VIAS)),
)


def _data_source(node: Node) -> DataSource:
    if node.kind != "mapping":
        return DataSource(values.text(node))
    given = read_values(node, _SOURCE)
    if ("path" in given) == ("origin" in given):
        what = "both `path` and `from`" if "path" in given else "neither `path` nor `from`"
        raise node.error(
            f"data set {node.key} has {what}",
            "write one of them, as in {path: ./images} or {from: n1:/srv/images}",
        )
    host, path = given.pop("origin", (None, given.pop("path", None)))
    source = DataSource(path, host, **given)
    if "others" in given and source.split == "none":
        raise node.keys["others"].error(
            "`others` needs a data set that is split", "add `split: worker`, or remove `others`"
        )
    if source.via == "rsync" and (host is not None or source.split != "none"):
        key = "from" if host is not None else "split"
        raise node.keys["via"].error(
            f"`via: rsync` does not work with `{key}`: rsync sends the complete data set from here",
            f"remove `via` or `{key}`",
        )
    return source


@accepts(
    **named_values_schema(
        {**schema_of(values.text), **mapping_schema(_SOURCE), "type": ["string", "object"]}
    )
)
def data(node: Node) -> dict[str, DataSource]:
    """Return {name: data set}. Paths are returned as they are written.

    For a split data set, tfdeploy sets environment variables that contain the data set's name in
    capitals. Raises ConfigError if two split data sets would set the same variables.
    """
    sources: dict[str, DataSource] = {}
    names_by_variable: dict[str, str] = {}
    for name, child in node.mapping("a mapping of name: path").items():
        _check_entry_name(name, child)
        sources[name] = source = _data_source(child)
        if source.split != "none":
            other = names_by_variable.setdefault(part_number_variable(name), name)
            if other != name:
                raise child.error(
                    f"{name} and {other} would both set {part_number_variable(name)}",
                    "give one of them another name",
                )
    return sources


def _check_entry_name(name: str, node: Node) -> None:
    if not NAME.match(name):
        raise node.error(
            f"{name[:80]!r} is not {values.NAME_FORM}",
            "write it as `data: {digits: ./data/digits}`",
        )


@accepts("string", pattern=_INSIDE_PATTERN)
def cwd(node: Node) -> str:
    """Return the normalised path of a folder, relative to the code; "" is the code folder."""
    path = _path_inside_code(node, "cwd: src")
    return "" if path == "." else path


def _path_inside_code(node: Node, example: str, *refused_paths: str) -> str:
    """Return the node's path, normalised. Raises ConfigError if the path leads out of the code
    folder, or contains a brace or backslash.

    `example`: a correct value, which the error shows. `refused_paths`: more paths that are refused.
    """
    given = values.text(node)
    path = posixpath.normpath(given)
    link_leads_outside = (
        given.startswith(("/", "~")) or ".." in given.split("/") or {*given} & {*"{}\\"}
    )
    if link_leads_outside or path in refused_paths:
        raise node.error(
            f"{given!r} is not a folder inside the code",
            f"write it relative to the code, as in {example}",
        )
    return path


def do_folders_overlap(folder: str, other: str) -> bool:
    """Return whether two normalised folders are the same, or one is inside the other."""
    return f"{folder}/".startswith(f"{other}/") or f"{other}/".startswith(f"{folder}/")


@accepts("array", items={"type": ["string"], "pattern": _INSIDE_PATTERN}, maxItems=MOST_KEPT)
def keep(node: Node) -> tuple[str, ...]:
    """Return the `keep` folders as normalised paths relative to the code.

    Raises ConfigError if one of them is inside another.
    """
    folders: dict[str, Node] = {}
    items = node.list_items("a list of folders")
    if len(items) > MOST_KEPT:
        raise node.error(
            f"`keep` has {len(items):,} folders, but at most {MOST_KEPT:,} are allowed",
            "name a folder that contains these folders",
        )
    for item in items:
        path = _path_inside_code(item, "[checkpoints]", ".")
        if path.endswith(_CHECKPOINT_FILES):
            raise item.error(
                f"`keep` names folders, and {path} is the name of a file",
                "let the program save in a folder, and name that: `keep: [checkpoints]`",
            )
        for other, named in folders.items():
            if do_folders_overlap(path, other):
                raise item.error(
                    f"{item.text!r} and {named.text!r} (line {named.line}) overlap",
                    "remove one of them",
                )
        folders[path] = item
    return tuple(folders)


_RULE = (
    Key("count", "total number of tasks of this role", "count: 2", values.whole_number(0, 10_000)),
    Key(
        "per_host",
        "number of tasks of this role on each of its hosts",
        "per_host: 1",
        values.whole_number(1, 1024),
    ),
    Key("gpus", "number of GPUs of each task", "gpus: 1", values.gpu_count),
    Key(
        "command",
        "the command of this role, if the role has its own",
        "command: [python, ps.py]",
        command,
    ),
    Key("as", "what the program calls the role", "as: master", values.variable, field="called"),
)


@accepts(
    **named_values_schema(allow_empty(mapping_schema(_RULE)), f"^({'|'.join((_CHIEF, *ROLES))})$")
)
def roles(node: Node) -> dict[str, RoleRule]:
    """Return {role: its number of tasks, GPUs, name and command}, from the key `roles`."""
    given = node.mapping("a mapping of role: rule")
    if {_CHIEF, "chief"} <= given.keys():
        raise given[_CHIEF].error("master and chief are one role", "write one of them")
    rules_by_role: dict[str, RoleRule] = {}
    for name, node in given.items():
        role, called = ("chief", _CHIEF) if name == _CHIEF else (name, "")
        check_role(role, node)
        if node.kind not in ("nothing", "mapping"):
            raise _role_not_mapping_error(name, node)
        read = {} if node.kind == "nothing" else read_values(node, _RULE)
        rule = RoleRule(**{"called": called, **read})
        if rule.called in {*ROLES, *(each.called for each in rules_by_role.values())} - {role, ""}:
            raise node.error(
                f"{name} and another role have the same name in the program: {rule.called}",
                "give each role its own name",
            )
        rules_by_role[role] = rule
    return rules_by_role


def _role_not_mapping_error(role: str, node: Node) -> ConfigError:
    """Return the error for a role of the job file that has a list of hosts or a number as its
    value. The value must be a mapping."""
    if node.text.isdecimal():
        return node.wrong_value("a mapping", f"write {role}: {{count: {node.text}}}")
    hosts = [item.text for item in node.items] or re.split("[, ]+", node.text)
    listed = ", ".join(hosts) if hosts[0] else "n2, n3"
    return node.wrong_value(
        "a mapping such as {count: 2}",
        f"hosts belong into the inventory: remove this line, and write {role}: [{listed}] below "
        "`roles:` of the inventory",
    )


def check_role(role: str, node: Node) -> None:
    """Raise ConfigError if `role` is not a known role."""
    if role not in ROLES:
        raise node.error(f"unknown role {role[:60]!r}", nearest_hint(role, ROLES, "the roles are"))


@accepts(**named_values_schema({"type": ["string", "number"]}, VARIABLE_NAMES))
def env(node: Node) -> dict[str, str]:
    """Return the environment variables of the key `env`. A number is returned as it is written.

    Raises ConfigError for booleans, and for variables that tfdeploy sets itself.
    """
    variables = {}
    for name, child in node.mapping("a mapping of NAME: value").items():
        check_variable(name, child)
        if child.kind == "true or false":
            raise child.error(
                f"{name} is a boolean, and programs expect different spellings of it",
                f'write "1", "0", or "{child.text}" with quotes',
            )
        if child.kind not in ("text", "number"):
            raise child.wrong_value("text or a number", 'write "" for an empty value')
        if "\0" in child.text:
            raise child.error(f"{name} contains a NUL character", "remove the NUL character")
        if name == "GRPC_FAIL_FAST" and not child.text:
            raise child.error(
                "an empty GRPC_FAIL_FAST aborts TensorFlow",
                "remove the variable, or set it to use_caller",
            )
        variables[name] = child.text
    return variables


def check_variable(name: str, node: Node) -> None:
    """Raise ConfigError if a job file must not set the environment variable `name`.

    The reason is an invalid name, or a variable that tfdeploy itself sets.
    """
    if not VARIABLE.match(name):
        raise node.error(
            f"{name[:80]!r} is not the name of a variable", "write letters, digits and _"
        )
    if name in RESERVED or name.startswith(("TFDEPLOY_TASK_", PART_VARIABLES)):
        raise node.error(
            f"{name} is set by tfdeploy for each task",
            f"remove {name}; `tfdeploy launch --dry-run` shows its value",
        )


@accepts(**named_values_schema({"type": ["string"], "format": "regex"}))
def metrics(node: Node) -> dict[str, str]:
    """Return {name of a metric: regular expression}.

    Raises ConfigError for an expression that does not compile, or has not exactly one group.
    """
    patterns = {}
    for name, child in node.mapping("a mapping of name: regular expression").items():
        _check_entry_name(name, child)
        pattern = child.scalar("a regular expression")
        try:
            groups = compile_user_pattern(pattern).groups
        except ValueError as error:
            raise child.error(
                f"{name}: bad regular expression: {error}", "use Python's syntax, in single quotes"
            ) from error
        if groups != 1:
            raise child.error(
                f"the pattern of {name} has {groups} groups, but must have exactly one: the number",
                r"write the pattern as 'step[ =:]+(\d+)', and all further groups as (?:...)",
            )
        patterns[name] = pattern
    return patterns


@accepts("array", items=schema_of(values.seconds), minItems=2, maxItems=2)
def backoff(node: Node) -> tuple[float, float]:
    """Return the first and the longest pause before a restart, in seconds."""
    parts = node.list_items("a list of two durations, as in [1s, 60s]")
    if len(parts) != 2:
        raise node.error(
            "backoff is a list of two durations: the first pause and the longest pause",
            "write backoff: [1s, 60s]",
        )
    first, longest = (values.seconds(part) for part in parts)
    if first > longest:
        raise node.error(
            "the first pause is longer than the longest one",
            "write the shorter one first, as in [1s, 60s]",
        )
    return first, longest
