"""Reads hosts named on the command line: `n1,n2`, `gpu[01-08]` or `@slurm`.

A comma at the end marks a list of one host, such as `ml@10.0.0.7:2200,`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tfdeploy.config import values
from tfdeploy.config.node import Node
from tfdeploy.errors import ConfigError
from tfdeploy.text.allowed import USER, is_ip
from tfdeploy.text.names import split_outside_brackets

SLURM = "@slurm"
# An IPv6 address needs brackets only before a port.
_IPV6 = r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]|[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"
_HOST = re.compile(rf"(?:(?P<user>[^@]+)@)?(?P<address>{_IPV6}|[^:@]+)(?::(?P<port>\d{{1,5}}))?\Z")
_LIST = re.compile(r"(?=.*\w)(?=.*,|.*\[[^\[\]]+\])[\w.@:%\[\], -]+", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def is_host_list(text: str) -> bool:
    """Return True if the text after -i lists hosts, and False if it is the name of a file.

    A list of one host ends with a comma.
    """
    return text == SLURM or _LIST.fullmatch(text) is not None


def read_host_list(text: str, environ: Mapping[str, str]) -> Node:
    """Return the listed hosts as a tree in the format of an inventory. Raises ConfigError."""
    if text != SLURM:
        return hosts_mapping(split_hosts(Node("text", f"-i {text}", 0, text)))
    slurm_list = environ.get("SLURM_JOB_NODELIST", "")
    if not slurm_list:
        raise ConfigError(
            "there is no Slurm allocation here: SLURM_JOB_NODELIST is not set",
            where=f"-i {SLURM}",
            next="run tfdeploy inside salloc or sbatch, or name the hosts: -i n1,n2",
        )
    return hosts_mapping(split_hosts(Node("text", "SLURM_JOB_NODELIST", 0, slurm_list)))


def split_hosts(node: Node) -> list[Node]:
    """Return the settings of the hosts that a list names, with all ranges expanded.

    Raises ConfigError.
    """
    return [host for word in split_outside_brackets(node.text) for host in expand_host(word, node)]


def expand_host(word: str, node: Node) -> list[Node]:
    """Return the settings of the hosts that [user@]host[:port] stands for, each with an `address`.

    All ranges are expanded. Raises ConfigError.
    """
    match = _HOST.match(word)
    if (
        match is None
        or (":" in match["address"] and not is_ip(match["address"].strip("[]")))
        or not 1 <= int(match["port"] or 22) <= 65535
        or not USER.match(match["user"] or "root")
    ):
        raise node.error(f"{word!r} is not [user@]host[:port]", "write it as ml@192.0.2.10:2200")
    settings = {key: node.text_node(text) for key, text in match.groupdict().items() if text}
    address = match["address"]
    addresses = [address] if ":" in address else values.unfold_names(address, node)
    return [mapping_node({**settings, "address": node.text_node(each)}, node) for each in addresses]


def hosts_mapping(hosts: Iterable[Node]) -> Node:
    """Return these hosts as a tree in the format of an inventory.

    The name of a host is its address. If an address is listed with several ports, the name
    contains the port too.
    """
    hosts = list(hosts)
    count = Counter(host.keys["address"].text for host in hosts)
    named: dict[str, Node] = {}
    for host in hosts:
        address, port = host.keys["address"].text, host.keys.get("port")
        name = f"{address}-{port.text if port else 22}" if count[address] > 1 else address
        name = _NOT_IN_NAMES.sub("-", name).strip("-")
        if name in named:
            raise host.error(
                f"{address}{f':{port.text}' if port else ''} is named twice", "name it once"
            )
        named[name] = host
    file = hosts[0].file if hosts else "-i"
    top = Node("mapping", file, 0, setting_names={"address": "HOST"})
    top.keys["hosts"] = mapping_node(named, top)
    return top


def mapping_node(entries: Mapping[str, Node], at: Node) -> Node:
    """Return a mapping node with these entries and the file and line of `at`."""
    return Node("mapping", at.file, at.line, keys=dict(entries))
