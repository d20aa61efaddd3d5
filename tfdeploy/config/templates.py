"""Builds the texts of the job file and the inventory that `tfdeploy init` writes.

The comments in these texts come from the reference. This module writes no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from tfdeploy.config import reference
from tfdeploy.config.schema import Key, LocatedValue
from tfdeploy.model.inventory import Host
from tfdeploy.text.names import fold_names, split_outside_brackets

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@-]*\Z", re.ASCII)
_NOT_PLAIN = ("yes", "no", "true", "false", "on", "off", "null")


def job_text(
    *,
    name: str,
    mode: str,
    command: Iterable[str],
    keep: Iterable[str] = (),
    data_paths: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    ps_command: Iterable[str] = (),
) -> str:
    """Return a job file with these keys, and all other keys as comments with their defaults.

    `ps_command`: the command of the role ps, if it has one of its own.
    """
    stated = {
        "name": f"name: {quoted(name)}",
        "mode": f"mode: {mode}",
        "command": f"command: [{', '.join(map(quoted, command))}]",
    }
    if words := ", ".join(map(quoted, ps_command)):
        stated["roles"] = f"roles: {{ps: {{command: [{words}]}}}}"
    if folders := [*keep]:
        stated["keep"] = f"keep: [{', '.join(map(quoted, folders))}]"
    if data_paths:
        stated["data"] = "data:" + "".join(
            f"\n  {key}: {quoted(data_paths[key])}" for key in data_paths
        )
    if env:
        stated["env"] = f"env: {{{', '.join(f'{key}: {quoted(env[key])}' for key in env)}}}"
    head = (
        "# What to train. Paths are relative to this file; `tfdeploy docs` prints the reference.\n"
    )
    return head + "".join(_commented_key(key, stated) for key in reference.JOB)


def settings_as_yaml(host: Host, given: Mapping[str, LocatedValue]) -> dict[str, str]:
    """Return the settings that the inventory states for this host, as YAML. The address is left out
    if it is the host's name."""
    settings = {}
    for key, each in given.items():
        value = getattr(host, key)
        if (key, value) != ("address", host.name):
            text = value if isinstance(value, str) else each.node.text
            settings[key] = quoted(text) if each.node.kind != "list" else str(list(value))
    return settings


def roles_text(hosts_by_role: Mapping[str, Iterable[str]]) -> str:
    """Return the key `roles:` as YAML, with host names folded to ranges such as n[1-3]."""
    rows = [
        f"\n  {role}: [{', '.join(map(quoted, split_outside_brackets(fold_names(names))))}]"
        for role, names in hosts_by_role.items()
    ]
    return f"roles:{''.join(rows)}"


def inventory_text(
    host_settings: Mapping[str, Mapping[str, str]], roles: Mapping[str, Iterable[str]] | None = None
) -> str:
    """Return the text of an inventory with these hosts. If `roles` is None, the text has only an
    example of roles in a comment, because the mode decides which roles hosts have by default.

    `host_settings`: {name: {key: value as YAML}}.
    """
    lines = "\n".join(
        f"  {name}: {{{', '.join(f'{key}: {text}' for key, text in keys.items())}}}"
        for name, keys in host_settings.items()
    )
    names = list(host_settings)
    example = roles_text({"ps": names[:1], "worker": names[1:] or names})
    stated_roles = roles_text(roles) if roles else "#" + example.replace("\n", "\n#")
    defaults = "\n".join(
        f"#  {key.example:<40}  # {key.text}"
        for key in reference.HOST
        if key.name not in ("address", "advertise")
    )
    return (
        "# The hosts. `tfdeploy docs` prints the reference, `tfdeploy inventory` prints what was "
        "understood.\n\n"
        "# settings of all hosts; if a setting of ssh is left out, ~/.ssh/config applies, else "
        f"ssh's default\n#defaults:\n{defaults}\n\n"
        "# name: settings. A range gpu[01-16] means several hosts, {name} means a host's name: "
        '{address: "{name}.example.org"}\n'
        f"hosts:\n{lines}\n\n# which hosts hold the variables (ps) and which train (worker); a "
        "host may do both. By default,\n# the first host is ps in the modes that have one, and all "
        f"others are workers\n{stated_roles}\n"
    )


def quoted(word: str) -> str:
    """Return the word, in quotes if YAML would otherwise not read it as exactly this text."""
    is_plain = _PLAIN.match(word) and word.lower() not in _NOT_PLAIN
    return word if is_plain else json.dumps(word, ensure_ascii=False)


def _commented_key(key: Key, yaml_by_key: Mapping[str, str]) -> str:
    default = f" (default: {key.default})" if key.default else ""
    commented = "\n".join("#" + line for line in key.example.splitlines())
    return f"\n# {key.text}{default}\n{yaml_by_key.get(key.name, commented)}\n"
