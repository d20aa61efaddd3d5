"""Parses a YAML file into a tree of nodes with line numbers, or raises a ConfigError.

No other module calls the YAML parser. This module reads parser events, so no tag in the file can
create a Python object. Deep nesting is refused, because it would overflow the C stack. An alias of
a list or mapping refers to the same node as its anchor, so nested aliases cost no memory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from tfdeploy.config.node import Kind, Node, truncated
from tfdeploy.errors import ConfigError

MAX_BYTES = 4 << 20  # limits the size of a file
MAX_DEPTH = 32  # lists and mappings may be nested at most this deep
_TOO_DEEP = f"lists and mappings are nested more than {MAX_DEPTH} levels deep"
_FORM = "`tfdeploy docs` shows the form of the file"
# A file may have at most this many nodes, because each takes about 300 bytes of memory, and a file
# of 4 MiB could have two million nodes. 300,000 nodes are enough for 10,000 hosts with ten keys
# each.
MAX_NODES = 300_000
MAX_MERGED = 100_000  # the merge keys `<<:` of a file may add at most this many entries
_BOOLEANS = {
    word
    for base in ("yes", "no", "true", "false", "on", "off")
    for word in (base, base.title(), base.upper())
}
_TAGS = ("str", "int", "float", "bool", "null", "map", "seq", "merge", "timestamp")
_NOTHING = {"", "~", "null", "Null", "NULL"}
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # YAML's line breaks
# Matches a line such as `mode:plain`, in which no blank follows the colon after the key.
_JOINED = re.compile(r"\s*[A-Za-z_]\w*:[^\s/:][^:]*\Z")
_NO_FILE: dict[type[Exception], tuple[str, str]] = {
    FileNotFoundError: ("no such file", "check the path, or write a new file with `tfdeploy init`"),
    IsADirectoryError: ("a folder, not a file", "name a file that can be read"),
}
_HINTS = {
    "cannot start any token": "indent with spaces (YAML takes no tabs), and put quotes round words "
    "that begin with @ ` or %",
    "unknown escape character": "put single quotes round a text that has a \\",
    "mapping values are not allowed": "put quotes round a text that holds ': '",
}


def read_yaml(path: Path) -> Node:
    """Return the file's top mapping.

    Raises ConfigError if the file is missing, unreadable, not UTF-8, bad YAML, empty or not a
    mapping.
    """
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path) -> Node:
    """Return the top mapping of the file's text.

    Raises ConfigError if it is bad YAML, empty or not a mapping.
    """
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        root = _Builder(shown_path(path), _last_line(text), events).build()
    except yaml.YAMLError as error:
        raise _to_config_error(error, path, text) from error
    if root is None or root.kind == "nothing":
        file, commented = shlex.quote(shown_path(path)), text.strip() and root is None
        raise ConfigError(
            f"the file {'holds only comments' if commented else 'is empty'}",
            where=shown_path(path),
            next=("remove the # before the lines that you need, or " if commented else "")
            + f"`mv {file} {file}.old`, then `tfdeploy init` writes a file with explanations"
            # Moving a device such as /dev/null away would damage this machine.
            if path.is_file()
            else "name a file",
        )
    if root.kind != "mapping":
        joined = _JOINED.match(root.text)
        raise root.wrong_value(
            "a mapping (key: value)", "write a blank after the colon" if joined else _FORM
        )
    return root


def shown_path(path: Path) -> str:
    """Return the path as messages show it: relative if it is below the current folder."""
    try:
        below = path.relative_to(Path.cwd())
    except (ValueError, OSError):
        return str(path)
    return str(below if below.parts else path)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises ConfigError if the file is missing, unreadable, too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            # The number of bytes is limited, because the path may name a device that never ends,
            # such as /dev/zero.
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        what, next = _NO_FILE.get(type(error), (what, "name a file that can be read"))
        raise ConfigError(what, where=shown_path(path), next=next) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"the file has more than {MAX_BYTES >> 20} MiB: too large for an inventory or job file",
            where=shown_path(path),
            next="name another file",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        is_utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise ConfigError(
            "UTF-16, not UTF-8" if is_utf16 else "not UTF-8",
            where=f"{shown_path(path)}:{line}",
            next="save the file as UTF-8" + (" (iconv -f UTF-16 -t UTF-8)" if is_utf16 else ""),
        ) from error


def _to_config_error(error: yaml.YAMLError, path: Path, text: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = (
        getattr(error, "problem", None)
        or getattr(error, "reason", None)
        or str(error).splitlines()[0]
    )
    line = text.encode().count(b"\n", 0, getattr(error, "position", 0))
    if mark:
        line = min(mark.line, _last_line(text))
    # Newer releases of libyaml also limit the depth, and may refuse the file before this module
    # does.
    if "maximum nesting depth" in problem:
        return ConfigError(_TOO_DEEP, where=f"{shown_path(path)}:{line + 1}", next=_FORM)
    hint = next(
        (hint for words, hint in _HINTS.items() if words in problem),
        "check quotes, brackets and indentation in that line; quote words that contain { or [",
    )
    # Without a blank after the colon, YAML takes `mode:plain` for a text, and the parser reports an
    # error only on the next line.
    for at, each in enumerate(_BREAK.split(text)[: line + 1]):
        if at >= line - 1 and _JOINED.match(each):
            line, hint = at, f"write a blank after the colon in {each.strip()!r}"
    return ConfigError(f"bad YAML: {problem}", where=f"{shown_path(path)}:{line + 1}", next=hint)


def _last_line(text: str) -> int:
    """Return the number of the last line that is not empty; the first line is 0.

    The line is the location of errors at the end of the file.
    """
    return len(_BREAK.findall(text.rstrip()))


class _Builder:
    """Turns parser events into nodes.

    `last_line`: the line to report for errors at the end of the file.
    """

    def __init__(self, file: str, last_line: int, events: Iterator[yaml.Event]) -> None:
        self.file, self.last_line, self.events = file, last_line, events
        self.anchors: dict[str, Node] = {}
        self.merged = self.nodes = 0

    def build(self) -> Node | None:
        root = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise self._yaml_error(
                    event,
                    "another document begins",
                    "write only one document into a file: remove the second ---",
                )
            if isinstance(event, yaml.NodeEvent):
                root = self._build_node(event, None, "", 0)
        return root

    def _build_node(self, event: yaml.Event, parent: Node | None, key: str, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._yaml_error(
                event,
                f"the file has more than {MAX_NODES:,} words and values",
                "write ranges, as in n[01-16], or several files",
            )
        if isinstance(event, yaml.AliasEvent):
            return self._aliased_node(event, parent, key)
        node, anchor = self._childless_node(event, parent, key), getattr(event, "anchor", None)
        if depth > MAX_DEPTH:
            raise node.error(_TOO_DEEP, _FORM)
        if node.kind == "list":
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                node.items.append(self._build_node(event, node, str(len(node.items)), depth + 1))
        elif node.kind == "mapping":
            self._fill_mapping(node, depth)
        if anchor:
            self.anchors[anchor] = node
        return node

    def _childless_node(self, event: yaml.Event, parent: Node | None, key: str) -> Node:
        kind: Kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "list"
        text = ""
        if isinstance(event, yaml.ScalarEvent):
            text = event.value
            kind = _scalar_kind(text) if event.implicit[0] else "text"
        tag = getattr(event, "tag", None)
        if tag is not None and tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
            raise self._yaml_error(
                event,
                f"the tag {tag} means nothing here",
                "put quotes round a text that begins with !",
            )
        return Node(kind, self.file, self._line(event), text, parent, key)

    def _aliased_node(self, event: yaml.AliasEvent, parent: Node | None, key: str) -> Node:
        """Return the node that an alias refers to.

        For a scalar, the node is a copy with the location of the alias. For a list or mapping, it
        is the anchored node itself, with the location of the anchor.
        """
        anchored = self.anchors.get(event.anchor or "")
        if anchored is None:
            raise self._yaml_error(
                event,
                f"undefined alias *{event.anchor}",
                "an alias *name must come after its anchor &name",
            )
        if anchored.kind in ("list", "mapping"):
            return anchored
        return replace(anchored, line=self._line(event), parent=parent, key=key)

    def _fill_mapping(self, node: Node, depth: int) -> None:
        lines: dict[str, int] = {}
        merges: list[Node] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._build_node(event, node, getattr(event, "value", ""), depth + 1)
            if key.kind in ("list", "mapping"):
                raise key.error(
                    "a key must be a word", "put quotes round a name that begins with [ or {"
                )
            value = self._build_node(next(self.events), node, key.text, depth + 1)
            # A value may begin on a line below its key. Errors then name the line of the key. But a
            # list or mapping that an alias stands for keeps the line of its anchor.
            if value.parent is node:
                value.line = key.line
            if key.text == "<<":
                merges += value.items if value.kind == "list" else [value]
                continue
            if key.text in lines:
                first = lines[key.text]
                can_join = value.keys and value.keys.keys().isdisjoint(node.keys[key.text].keys)
                raise key.error(
                    f"the key {key.text} is given twice: lines {first} and {key.line}",
                    f"join them: move the entries of line {key.line} to line {first}"
                    if can_join
                    else "remove one of them",
                )
            lines[key.text] = key.line
            node.keys[key.text] = value
        for source in merges:
            self.merged += len(source.keys)
            if source.kind != "mapping":
                raise source.error("<<: takes mappings")
            if self.merged > MAX_MERGED:
                raise source.error(f"the merge keys <<: add more than {MAX_MERGED} keys")
            for name, value in source.keys.items():
                node.keys.setdefault(name, value)

    def _yaml_error(self, event: yaml.Event, what: str, next: str) -> ConfigError:
        return ConfigError(
            truncated(f"bad YAML: {what}"), where=f"{self.file}:{self._line(event)}", next=next
        )

    def _line(self, event: yaml.Event) -> int:
        return min(event.start_mark.line, self.last_line) + 1 if event.start_mark is not None else 1


def _scalar_kind(plain: str) -> Kind:
    if plain in _NOTHING:
        return "nothing"
    if plain in _BOOLEANS:
        return "true or false"
    try:
        float(plain)
    except ValueError:
        return "text"
    return "number"
