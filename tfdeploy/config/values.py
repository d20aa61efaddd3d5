"""Reads single values. A reader takes a node and returns a checked value, or raises ConfigError.

The error shows how to write the value. Values that reach ssh, rsync or a host are checked here
against allow-lists, and none of them may begin with `-`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from tfdeploy.config.node import Node, nearest_hint, quoted_truncated
from tfdeploy.config.schema import Schema, accepts, join_alternative_patterns, schema_of
from tfdeploy.text.allowed import (
    HOSTNAME,
    NAME,
    PROGRAM,
    USER,
    VARIABLE,
    is_host_path,
    is_hostname,
    is_ip,
    is_printable_text,
)
from tfdeploy.text.names import MAX_NAMES, expand_ranges, split_outside_brackets
from tfdeploy.text.units import BYTES, LEAST_RATE, MOST_RATE, SECONDS, parse_rate

NAME_FORM = "a name of letters, digits, _ . and -, at most 63 characters, not beginning with - or ."
MOST_HOPS = 16  # limits the jump hosts in one `jump`
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?([A-Za-z]*)\Z", re.ASCII)
_HOP = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?\Z", re.ASCII)
Gpus = Literal["auto", "none"] | int | tuple[int, ...]
# Patterns for JSON Schemas. They must have the same meaning in Python and in JavaScript.
TEXT_PATTERN = r"^(?!-)[^\u0000-\u001f\u007f]{1,4096}$"
_AMOUNT_PATTERN = r"^\d{1,12}(\.\d{1,9})? ?"
DURATION_PATTERN = f"{_AMOUNT_PATTERN}({'|'.join(SECONDS)})$"
_SIZE_PATTERN = f"{_AMOUNT_PATTERN}({'|'.join(BYTES)})$"
_HOST_PATH_PATTERN = "^~?/.*[^/.]"


@accepts("string", pattern=TEXT_PATTERN)
def text(node: Node) -> str:
    """Return a text that is not empty, has no control characters, and does not begin with `-`."""
    given = node.scalar()
    if not is_printable_text(given):
        raise node.wrong_value("a text that has no control characters and does not begin with -")
    return given


@accepts("string", pattern=TEXT_PATTERN.replace("-)", r"-|.*\$\{)"))
def local_path(node: Node) -> str:
    """Return a path on this machine that both tfdeploy and ssh can read.

    Raises ConfigError for `${`, because ssh expands ${NAME} and has no escape for it.
    """
    given = text(node)
    if "${" in given:
        raise node.wrong_value(
            "a path without ${", "write the path itself, as in ~/.ssh/id_ed25519"
        )
    return given


def _make_text_reader(wanted: str, allowed: re.Pattern[str], form: str) -> Callable[[Node], str]:
    """Return a function that reads a text. The function raises ConfigError if `allowed` does not
    match the text.

    `form`: a description of the allowed texts, for the error.
    """

    @accepts("string", pattern=join_alternative_patterns(allowed))
    def read(node: Node) -> str:
        given = node.scalar(wanted)
        if not allowed.match(given):
            raise node.wrong_value(form)
        return given

    return read


name = _make_text_reader("a name", NAME, NAME_FORM)
variable = _make_text_reader(
    "the name of a variable", VARIABLE, "the name of a variable: letters, digits and _"
)
user = _make_text_reader("a user name", USER, "a user name: letters, digits, _ . + and -")


def mapping_of(wanted: str, schema: Schema) -> Callable[[Node], dict[str, Node]]:
    """Return a function that reads a mapping, and returns the nodes of its values. Other functions
    read these nodes."""

    @accepts(**schema)
    def read(node: Node) -> dict[str, Node]:
        return node.mapping(wanted)

    return read


def one_of(*words: str) -> Callable[[Node], str]:
    """Return a function that reads a value and accepts only these words."""
    wanted = " | ".join(words)

    @accepts("string", enum=[*words])
    def read(node: Node) -> str:
        given = node.scalar(wanted)
        if given not in words:
            raise node.wrong_value(wanted, nearest_hint(given, words, "one of"))
        return given

    return read


def whole_number(low: int, high: int) -> Callable[[Node], int]:
    """Return a function that reads a whole number from `low` to `high`, both included."""
    wanted = f"a whole number from {low} to {high}"

    @accepts("integer", minimum=low, maximum=high)
    def read(node: Node) -> int:
        given = node.scalar(wanted)
        if not re.match(r"\d{1,18}\Z", given, re.ASCII) or not low <= int(given) <= high:
            raise node.wrong_value(wanted)
        return int(given)

    return read


slots = whole_number(1, 1024)
port = whole_number(1, 65535)
_gpu = whole_number(0, 1023)
gpu_count = whole_number(0, 1024)
_byte_count = whole_number(0, 1 << 50)


@accepts("string", "integer", pattern=r"^\d{1,5}(-\d{1,5})?$", minimum=1, maximum=65535)
def ports(node: Node) -> tuple[int, int]:
    """Return (lowest, highest) of a range of ports, both included."""
    match = re.match(r"(\d{1,5})(?:-(\d{1,5}))?\Z", node.text, re.ASCII)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise node.wrong_value(
            "a range of ports, lower end first, from 1 to 65535", "write it as 2222-2299"
        )
    return low, high


@accepts(
    "string",
    pattern=join_alternative_patterns(HOSTNAME)
    + r"|^\[?[\da-fA-F]*:[\da-fA-F]*:[\da-fA-F:.]*(%[\w.-]{1,15})?\]?$",
)
def address(node: Node) -> str:
    """Return a host name or an address, without the brackets of [IPv6]."""
    given = node.scalar("a host name or address")
    bare = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    if ":" in bare and is_ip(bare):
        return bare
    if bare != given or not is_hostname(given):
        head, _, tail = given.rpartition(":")
        has_port = tail.isdigit() and is_hostname(head.strip("[]"))
        hint = f"write address: {head} and port: {tail}" if has_port else None
        raise node.wrong_value("a host name or an IP address", hint)
    return given


@accepts("string", pattern=rf"^(?!-)[^,\s]+(,(?!-)[^,\s]+){{0,{MOST_HOPS - 1}}}$")
def jump(node: Node) -> str:
    """Return the jump hosts: [user@]host[:port], separated by commas, or `none` for no jump."""
    given = node.scalar("a jump host")
    hops = given.split(",", MOST_HOPS)
    if len(hops) > MOST_HOPS:
        raise node.wrong_value(
            f"at most {MOST_HOPS} jump hosts",
            "name only the hosts through which the connection passes",
        )
    for hop in hops:
        login, at, rest = hop.rpartition("@")
        match = _HOP.match(rest)
        bracketed, plain, port = match.groups() if match else ("", "", None)
        fits = is_ip(bracketed) if bracketed else is_hostname(plain or "")
        if not fits or (port and not 1 <= int(port) <= 65535) or (at and not USER.match(login)):
            raise node.wrong_value(
                "[user@]host[:port], several with commas", "write it as ml@bastion.example.org:22"
            )
    return given


@accepts("string", pattern=_HOST_PATH_PATTERN)
def host_path(node: Node) -> str:
    """Return the path of a folder or file on a host. The path must begin with / or ~/."""
    given = node.scalar("a path on the host")
    if not is_host_path(given):
        raise node.wrong_value(
            "a path on the host that begins with / or ~/, without ..",
            "write it as ~/tfdeploy or /scratch/tfdeploy",
        )
    return given.rstrip("/")


@accepts("string", pattern=f"{join_alternative_patterns(PROGRAM)}|{_HOST_PATH_PATTERN}")
def python(node: Node) -> str:
    given = node.scalar("an interpreter")
    if "/" in given:
        return host_path(node)
    if not PROGRAM.match(given):
        raise node.wrong_value(
            "the name or the path of an interpreter", "write it as python3.11 or ~/venv/bin/python"
        )
    return given


@accepts(
    "string",
    "integer",
    "array",
    pattern="^(auto|none)$",
    minimum=0,
    maximum=1024,
    items=schema_of(_gpu),
    uniqueItems=True,
)
def gpus(node: Node) -> Gpus:
    """Return "auto", "none", a count, or a list of indices."""
    if node.kind == "list":
        numbers = tuple(_gpu(item) for item in node.items)
        if len(set(numbers)) < len(numbers):
            raise node.error("a GPU stands twice in the list", "name each GPU once")
        return numbers or "none"
    given = node.scalar("auto, none, a count or a list")
    if given == "auto":
        return "auto"
    if given == "none":
        return "none"
    if not given.isdecimal():
        raise node.wrong_value(
            "auto, none, a count or a list", "write it as auto, none, 2 or [0, 1]"
        )
    return gpu_count(node) or "none"


@accepts("string", pattern=DURATION_PATTERN)
def seconds(node: Node) -> float:
    """Return a duration in seconds."""
    value = _number_with_unit(node, "a duration with its unit", SECONDS, "write it as 5s, 2m or 1h")
    if value > 86400 * 365:
        raise node.wrong_value("at most 365d")
    return value


@accepts("string", pattern=_SIZE_PATTERN)
def size_bytes(node: Node) -> int:
    """Return a size in bytes."""
    value = int(_number_with_unit(node, "a size with its unit", BYTES, "write it as 1GiB or 500MB"))
    if not 65536 <= value <= 1 << 50:
        raise node.wrong_value("a size from 64KiB to 1024TiB")
    return value


@accepts("string", "integer", pattern=_SIZE_PATTERN, minimum=0, maximum=1 << 50)
def reserve(node: Node) -> int:
    """Return a number of bytes, read from a size with its unit or from a plain number.

    A plain number is accepted because `tfdeploy inventory` prints one.
    """
    is_plain = node.scalar("a size with its unit").isdecimal()
    return _byte_count(node) if is_plain else size_bytes(node)


@accepts(
    "string",
    "integer",
    pattern=r"^\d{1,12}(\.\d{1,9})?[KMG]?$",
    minimum=LEAST_RATE,
    maximum=MOST_RATE,
)
def rate(node: Node) -> int:
    """Return a data rate in bytes a second."""
    try:
        return parse_rate(node.scalar("bytes a second"))
    except ValueError:
        raise node.wrong_value(
            "bytes a second, from 1K to 1024G", "write it as 500K, 50M or 1G: powers of 1024"
        ) from None


def _number_with_unit(
    node: Node, wanted: str, factor_by_unit: dict[str, int] | dict[str, float], hint: str
) -> float:
    given = node.scalar(wanted)
    match = _AMOUNT.match(given)
    if match is None or match[2] not in factor_by_unit:
        raise node.wrong_value(wanted, hint)
    return float(match[1]) * factor_by_unit[match[2]]


def unfold_name_list(node: Node) -> list[tuple[str, Node]]:
    """Return (host name, location) for each name in the node. The node is a name, a range such as
    n[01-16], or a list of names and ranges."""
    words = split_outside_brackets(node.text.replace(" ", ","))
    if len(words) > 1:
        shown = ", ".join(f'"{word}"' if "[" in word else word for word in words)
        raise node.wrong_value("a list of hosts", f"write it as {node.key}: [{shown}]")
    items = node.items if node.kind == "list" else [node]
    located_names = []
    for item in items:
        for host in unfold_names(item.scalar("a host's name"), item):
            located_names.append((host, item))
        if len(located_names) > MAX_NAMES:
            raise node.error(f"more than {MAX_NAMES:,} names", "write a smaller range")
    return located_names


def unfold_names(text: str, node: Node) -> tuple[str, ...]:
    """Return the names that a range such as n[01-16] stands for, or the single name.

    Raises ConfigError if one of the names is not allowed.
    """
    names: tuple[str, ...] = (
        node.call_at_location(expand_ranges, text) if {"[", "]"} & {*text} else (text,)
    )
    if not NAME.match(max(names, key=len)):
        raise node.error(
            f"{quoted_truncated(text)} is not {NAME_FORM}",
            "give the host a plain name, and write its network address as `address:`",
        )
    return names
