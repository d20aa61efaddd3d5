"""Collect the commands that tfdeploy's messages tell users to type. The messages are read from the
syntax trees of the package.

Each placeholder in a message is replaced by a sample value that fits the placeholder's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tfdeploy

PACKAGE = Path(tfdeploy.__file__).parent
RUN = "digits-20261121-101500-3fa1"
SAMPLES = {
    "_confirmed_command": "`echo everything | tfdeploy clean --everything -y`",
    "_copy_id": "`ssh-copy-id ml@192.0.2.13`",
    "_exclude_hint": "to go on without this host: --exclude n3",
    "_ssh_arguments": "ml@192.0.2.13",
    "agent": "/home/ml/tfdeploy/.agent/0a1b",
    "check": "",
    "command": "clean --everything -y",
    "command_line": "python train.py --lr 0.1",
    "count": "3",
    "death": "worker:0",
    "file_flags": "-i inventories/lab.yaml",
    "first_death": "worker:0",
    "fix": "chmod go-w /home/ml/tfdeploy",
    "fold_names": "n[1-4]",
    "folder": "/home/ml/code",
    "hint": "",
    "install": "`tfdeploy exec --limit n3 -- python3 -m pip install tf_keras`",
    "len": "3",
    "login": "ml@192.0.2.13",
    "meant": "status --watch",
    "mode": "async",
    "named": "",
    "number": "3",
    "on_host": "`tfdeploy exec --limit n3 -- true`",
    "other": "sync",
    "package": "rsync",
    "parent": "/home/ml/pages",
    "path": "/home/ml/tfdeploy/x",
    "path_aside": "/home/ml/tfdeploy/x.foreign",
    "pid": "4242",
    "prog": "tfdeploy launch",
    "run": RUN,
    "task": "worker:0",
    "verb": "--limit",
}
# Functions that return their first argument, perhaps changed in a way that does not matter here.
_SAME = ("clean", "cut", "quote", "shown", "str")
# Keyword arguments and variables whose values are no messages.
_NO_MESSAGE = ("command", "usage", "where")
_FIELD = re.compile(r"\{(\w+)\}")
_SPAN = re.compile(r"`([^`]*)`")
# A command of tfdeploy in a shell command, such as `echo everything | tfdeploy clean --everything`.
_OWN_COMMAND = re.compile(r"(?:^|.* )tfdeploy ([^>|]+)")


class Message(NamedTuple):
    """One message in the source code of the package. `place`: its file:line. `text`: the message
    with sample values in place of placeholders.
    """

    place: str
    text: str

    @property
    def file(self) -> str:
        return self.place.partition(":")[0]

    @property
    def spans(self) -> list[str]:
        """The parts in backquotes."""
        return _SPAN.findall(self.text)

    @property
    def advice(self) -> str:
        """The text without the parts in backquotes."""
        return _SPAN.sub("", self.text)


def messages(root: Path = PACKAGE) -> Iterator[Message]:
    """Yield all texts in the code below `root`, but no docstrings."""
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, text in _texts(tree):
            yield Message(f"{path.relative_to(root)}:{line}", text)


def commands(message: Message) -> Iterator[str]:
    """Yield the arguments of each command of tfdeploy that the message tells users to type."""
    for span in message.spans:
        match = _OWN_COMMAND.match(span)
        if match is not None:
            yield match[1]


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each expression below `node` whose value is a text. The parts of such
    an expression are not yielded on their own.
    """
    if isinstance(node, ast.expr):
        text = _text_of(node)
        if text is not None:
            yield node.lineno, text
            return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.keyword) and child.arg in _NO_MESSAGE:
            continue
        if isinstance(child, (ast.Assign, ast.AnnAssign)) and _assigned(child) in _NO_MESSAGE:
            continue
        yield from _texts(child)


def _assigned(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return str(getattr(target, "id", ""))


def _text_of(node: ast.expr) -> str | None:
    """Return the text of a literal, an f-string or a sum of these; None for anything else."""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, str):
            return None
        return _FIELD.sub(lambda field: SAMPLES.get(field[1], field[0]), node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else _sample(part.value)  # type: ignore[attr-defined]
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_text_of(side) for side in (node.left, node.right)]
        if any(side is not None for side in sides):
            return "".join(
                _sample(side) if text is None else text
                for text, side in zip(sides, (node.left, node.right), strict=True)
            )
    return None


def _sample(node: ast.expr) -> str:
    """Return a value that fits the name of the expression; for example a host's name."""
    text = _text_of(node)
    if text is not None:
        return text
    if isinstance(node, ast.IfExp):
        return _sample(node.body)
    if isinstance(node, ast.BoolOp):
        return _sample(node.values[0])
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        if name in _SAME and node.args:
            return _sample(node.args[0])
        if name == "command":  # HostCase.command
            return SAMPLES["on_host"]
        return SAMPLES.get(name, "n3")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return SAMPLES.get(str(node.slice.value), "n3")
    return SAMPLES.get(_last_name(node), "n3")


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))
