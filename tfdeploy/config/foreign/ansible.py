"""Holds an Ansible inventory's groups, hosts and variables, and converts it to tfdeploy's format.

Only the variables that say how to reach a host are read. A variable of a host takes precedence
over the same variable of its groups, and that of a child group over that of its parents.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfdeploy.config import values
from tfdeploy.config.foreign.host_list import mapping_node
from tfdeploy.config.node import Node
from tfdeploy.config.yamlfile import parse_yaml, read_text
from tfdeploy.model.modes import ROLES
from tfdeploy.text.names import MAX_NAMES
from tfdeploy.text.nexts import most_similar

ASK_ANSIBLE = (
    "convert it with ansible-inventory: `tfdeploy inventory --from ansible -i {file} --output yaml`"
)
# Some variables have an old and a new name. If a host has both, the name that comes later in this
# table takes precedence.
_KEYS = {
    "ansible_ssh_host": "address",
    "ansible_host": "address",
    "ansible_ssh_port": "port",
    "ansible_port": "port",
    "ansible_ssh_user": "user",
    "ansible_user": "user",
    "ansible_ssh_private_key_file": "identity_file",
    "ansible_private_key_file": "identity_file",
    "ansible_python_interpreter": "python",
}
_SSH_ARGS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
_SSH_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", "libssh")
_JUMP = re.compile(r"(?:-J\s*|ProxyJump[= ])(\S+)")
_KNOWN_HOSTS = re.compile(r"UserKnownHostsFile[= ]([^\s'\"]+)")
_CONTENT = re.compile(
    r"^(?!\s*#|---|\.\.\.|\s*$)", re.MULTILINE
)  # matches a line of a YAML file that is neither empty nor a comment
_PATTERN = re.compile(r"\[([^\[\]]+)\]")
_RANGE = re.compile(r"([A-Za-z0-9]+):([A-Za-z0-9]+)(?::(\d{1,9}))?", re.ASCII)


@dataclass
class Group:
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: dict[str, Node] = field(default_factory=dict)


@dataclass
class Groups:
    """The content of an Ansible inventory and of its group_vars/ and host_vars/.

    `at`: the inventory file, as the location for errors.
    """

    at: Node
    groups: dict[str, Group] = field(default_factory=lambda: {"all": Group()})
    hosts: dict[str, Node] = field(default_factory=dict)  # {host: location of its first mention}
    # {host: {variable: value}}, for variables of the host itself
    variables: dict[str, dict[str, Node]] = field(default_factory=dict)

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def add_children(self, name: str, children: Iterable[str]) -> None:
        for child in children:
            self.group(name).children[child] = None
            self.group(child)

    def add_host(self, name: str, group: str, node: Node) -> None:
        self.hosts.setdefault(name, node)
        self.group(group).hosts[name] = None

    def members(self, group: str) -> dict[str, None]:
        """Return the hosts of the group and of all its child groups, at any depth."""
        below = dict.fromkeys([group])
        waiting = [group]
        for name in waiting:
            new = [child for child in self.groups[name].children if child not in below]
            below.update(dict.fromkeys(new))
            waiting += new
        return dict.fromkeys(host for name in below for host in self.groups[name].hosts)


def expand_pattern(pattern: str, node: Node) -> tuple[str, ...]:
    """Return the host names that a pattern stands for, such as web[01:50], web[1:9:2] or db-[a:f].
    Raises ConfigError."""
    match = _PATTERN.search(pattern)
    if match is None:
        return values.unfold_names(pattern, node)
    ends = _RANGE.fullmatch(match[1])
    if ends is None:
        raise node.error(
            f"tfdeploy cannot read the range {pattern!r}", "write ranges as web[01:50]"
        )
    low, high, step = ends.groups()
    if low.isdecimal() and high.isdecimal():
        inner = [name[1:] for name in values.unfold_names(f"n[{low}-{high}]", node)]
    else:
        inner = [chr(code) for code in range(ord(low[0]), ord(high[0]) + 1)]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    names: list[str] = []
    for each in inner[:: int(step or 1) or 1]:
        names += expand_pattern(f"{head}{each}{tail}", node)
        if len(names) > MAX_NAMES:
            raise node.error(f"{pattern!r} stands for more than {MAX_NAMES:,} names")
    return tuple(names)


def add_folder_variables(groups: Groups, folder: Path) -> None:
    """Add the variables in group_vars/ and host_vars/ of this folder. Raises ConfigError."""
    for name, group in groups.groups.items():
        group.variables |= _read_variables(folder / "group_vars", name)
    for name in groups.hosts:
        own = groups.variables.setdefault(name, {})
        own |= _read_variables(folder / "host_vars", name)


def _read_variables(folder: Path, name: str) -> dict[str, Node]:
    variables: dict[str, Node] = {}
    for path in (folder / name, folder / f"{name}.yml", folder / f"{name}.yaml"):
        files = sorted(path.glob("*.y*ml")) if path.is_dir() else [path] * path.is_file()
        for file in files:
            text = read_text(file)
            if _CONTENT.search(text):
                variables |= parse_yaml(text, file).keys
    return variables


def make_inventory(groups: Groups) -> Node:
    """Return the inventory as a tree in tfdeploy's own format. Raises ConfigError."""
    at, depths = groups.at, _group_depths(groups)
    by_host = {name: dict(groups.groups["all"].variables) for name in groups.hosts}
    for group in sorted(depths, key=lambda name: (depths[name], name)):
        for host in groups.members(group):
            by_host[host] |= groups.groups[group].variables
    hosts: dict[str, Node] = {}
    notes: dict[str, None] = {}
    for name, node in groups.hosts.items():
        variables = by_host[name] | groups.variables.get(name, {})
        hosts[name] = mapping_node(dict(_settings_from_variables(variables)), node)
        notes |= dict.fromkeys(_misspelling_notes(variables))
    top = mapping_node({"hosts": mapping_node(hosts, at)}, at)
    top.notes = list(notes)
    top.setting_names = {key: name for name, key in _KEYS.items()}
    roles = {
        role: Node("list", at.file, at.line, items=[at.text_node(n) for n in groups.members(name)])
        for role in ROLES
        for name in (role, f"{role}s")
        if name in groups.groups
    }
    if roles:
        top.keys["roles"] = mapping_node(roles, at)
    return top


def _group_depths(groups: Groups) -> dict[str, int]:
    """Return {group: its depth}, the number of steps on the longest path from a top group.

    Raises ConfigError if a group contains itself, directly or through other groups.
    """
    depths = dict.fromkeys(groups.groups, 0)
    waiting = list(groups.groups)
    for name in waiting:
        for child in groups.groups[name].children:
            if depths[child] <= depths[name]:
                depths[child] = depths[name] + 1
                waiting.append(child)
                if depths[child] > len(depths):
                    raise groups.at.error(
                        f"the group {child} contains itself", "correct `children`"
                    )
    return depths


def _misspelling_notes(variables: Mapping[str, Node]) -> Iterator[str]:
    """Yield a note for each variable whose name may be a misspelling of a variable that tfdeploy
    reads."""
    for name, node in variables.items():
        near = most_similar(name, _KEYS, 0.9) or name
        if near != name:
            yield f"{node.location}: the variable {name} has no effect: did you mean {near}?"


def _settings_from_variables(variables: dict[str, Node]) -> Iterator[tuple[str, Node]]:
    connection = variables.get("ansible_connection")
    if connection is not None and connection.text.rpartition(".")[2] not in _SSH_CONNECTIONS:
        raise connection.error(
            f"ansible_connection={connection.text}: tfdeploy reaches hosts by SSH only",
            "remove the host from the inventory, or list all other hosts: -i n1,n2",
        )
    for name, key in _KEYS.items():
        node = variables.get(name)
        if node is None or (key == "python" and node.text.startswith("auto")):
            continue
        _refuse_template(node)
        node.key = name
        yield key, node
    for name in _SSH_ARGS:
        node = variables.get(name)
        if node is None:
            continue
        if jump := _jump_from_ssh_args(node):
            yield "jump", node.text_node(jump)
        known_hosts = _KNOWN_HOSTS.search(node.text)
        # Many inventories name the file /dev/null, which makes ssh accept every host key. tfdeploy
        # always checks host keys, so it ignores /dev/null.
        if known_hosts is not None and known_hosts[1] != "/dev/null":
            yield "known_hosts", node.text_node(known_hosts[1])


def _refuse_template(node: Node) -> None:
    if "{{" in node.text:
        raise node.error(
            f"tfdeploy does not evaluate templates: {node.text}", ASK_ANSIBLE.format(file=node.file)
        )


def _jump_from_ssh_args(node: Node) -> str:
    """Return the jump host that these ssh options name; "" if they name none.

    Raises ConfigError for a ProxyCommand other than `ssh -W %h:%p HOST`.
    """
    _refuse_template(node)
    match = _JUMP.search(node.text)
    if match is not None:
        return match[1].strip("'\"")
    for option in split_words(node, node.text):
        if option.startswith("ProxyCommand"):
            command = option.removeprefix("ProxyCommand").strip("= ")
            jump = _proxy_command_host(split_words(node, command))
            if not jump:
                raise node.error(
                    f"tfdeploy reads no ProxyCommand but `ssh -W %h:%p HOST`: {command}",
                    "write it into ~/.ssh/config, which tfdeploy honours",
                )
            return jump
    return ""


def split_words(node: Node, command: str) -> list[str]:
    """Return the words of a command line. Raises ConfigError at the location of `node`."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise node.error(
            f"{command!r} cannot be split into words: {error}", "close the quotes"
        ) from error


def _proxy_command_host(command: list[str]) -> str:
    """Return [user@]host[:port] from the words of `ssh -W %h:%p HOST`; "" for any other command."""
    options: dict[str, str] = {}
    hosts: list[str] = []
    words = iter(command[1:] if command[:1] == ["ssh"] else ())
    for word in words:
        if word in ("-W", "-p", "-l", "-o", "-i", "-F"):
            options[word] = next(words, "")
        elif not word.startswith("-"):
            hosts.append(word)
    if len(hosts) != 1 or options.get("-W") not in ("%h:%p", "[%h]:%p"):
        return ""
    user = f"{options['-l']}@" if "-l" in options else ""
    port = f":{options['-p']}" if "-p" in options else ""
    return f"{user}{hosts[0]}{port}"
