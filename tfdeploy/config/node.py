"""Holds one value of a file with its location, so that every error can say file:line:key.

This module knows neither YAML nor the meaning of keys. Scalars keep their text as written: `0.10`
stays 0.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tfdeploy.errors import ConfigError, UsageError
from tfdeploy.text.nexts import did_you_mean
from tfdeploy.text.units import list_first

Kind = Literal["text", "number", "true or false", "nothing", "list", "mapping"]
ANY_KEY = "`tfdeploy docs` shows every key and its values"
SCALARS = ("text", "number", "true or false")
# Limits the length of texts in an error message, because a value in a file may be 4 MiB long.
_SHOWN_CHARS = 1000
V = TypeVar("V")


@dataclass(eq=False, slots=True)
class Node:
    """A scalar (`text`), a list (`items`) or a mapping (`keys`), with its location."""

    kind: Kind
    file: str
    line: int
    text: str = ""
    parent: Node | None = None
    key: str = ""
    items: list[Node] = field(default_factory=list)
    keys: dict[str, Node] = field(default_factory=dict)
    # only in the top node of an inventory: texts about settings that have no effect
    notes: list[str] = field(default_factory=list)
    # Only in the top node of an inventory in another format: {setting of a host: what that format
    # calls it}, without the settings that the format lacks.
    setting_names: dict[str, str] | None = None

    @property
    def path(self) -> str:
        """Return the keys that lead to this node: hosts.n1.port, command[2]."""
        steps: list[str] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            steps.append(f"[{node.key}]" if node.parent.kind == "list" else f".{node.key}")
            node = node.parent
        return truncated("".join(reversed(steps)).lstrip("."))

    @property
    def location(self) -> str:
        """Return "file:line", or only "file" if the line is 0.

        The line is 0 if the value is not in a file, as in a list of hosts after -i.
        """
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def where(self) -> str:
        """Return "file:line:key"."""
        return f"{self.location}:{self.path}" if self.path else self.location

    def text_node(self, text: str, key: str = "") -> Node:
        """Return a new node with this text and key, and with the file and line of this node."""
        return Node("text", self.file, self.line, text, key=key)

    def error(self, what: str, next: str | None = None) -> ConfigError:
        """Return a ConfigError at this node's location.

        `next`: the remedy. If it is None, the error has the general hint ANY_KEY.
        """
        return ConfigError(truncated(what), where=self.where, next=truncated(next or ANY_KEY))

    def wrong_value(self, wanted: str, next: str | None = None) -> ConfigError:
        """Return an error that says that this value is not `wanted`, such as "a mapping"."""
        actual = "nothing" if self.kind == "nothing" else f"a {self.kind}"
        if self.kind in SCALARS:
            actual = quoted_truncated(self.text)
        # The key of an item of a list is only a number. So the error shows the name of the list
        # too: keep[1] says more than 1.
        key = self.path.rpartition(".")[2] if self.key.isdigit() else self.key
        return self.error(f"{key or 'this file'} must be {wanted}, not {actual}", next)

    def scalar(self, wanted: str = "text") -> str:
        """Return this node's text. Raises ConfigError unless the node is a text or a number."""
        if self.kind in ("text", "number"):
            return self.text
        hints = {"true or false": f'put quotes round it: "{self.text}"', "nothing": None}
        braces = "put quotes round a text that holds braces or brackets"
        raise self.wrong_value(wanted, hints.get(self.kind, braces))

    def mapping(self, wanted: str = "a mapping") -> dict[str, Node]:
        """Return this node's entries. Raises ConfigError unless the node is a mapping."""
        if self.kind != "mapping":
            raise self.wrong_value(wanted)
        return self.keys

    def list_items(self, wanted: str = "a list") -> list[Node]:
        """Return this node's items. Raises ConfigError unless the node is a list."""
        if self.kind != "list":
            raise self.wrong_value(
                wanted, f"write it as [{self.text}]" if self.kind in SCALARS and self.text else None
            )
        return self.items

    def call_at_location(self, action: Callable[..., V], *args: Any) -> V:
        """Return action(*args). If it raises UsageError, raise ConfigError at this location."""
        try:
            return action(*args)
        except ConfigError:
            raise
        except UsageError as error:
            raise self.error(error.what, error.next) from error


def truncated(text: str) -> str:
    """Return the text, cut off after _SHOWN_CHARS characters."""
    shown = f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
    return shown if len(text) > _SHOWN_CHARS else text


def quoted_truncated(text: str) -> str:
    """Return the text in quotes, cut off if it is long."""
    return repr(text) if len(text) <= 80 else f"{text[:60]!r}... ({len(text)} characters)"


def nearest_hint(word: str, known: Iterable[str], heading: str) -> str:
    """Return a hint that names the known word nearest to `word`, or else all known words."""
    existing = list(known)
    return did_you_mean(word, existing, f"{heading}: {list_first(existing, 40)}")
