"""Reads `secrets:` of the job file: which variables are secret, and the source of each value.

There are two forms: a list of names or of {name: source}, and a mapping of name: source. A source
is `env`, or one of {file: PATH}, {command: [WORD, ...]}, {environment: NAME}. The module
secret_values.py reads the values.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.config import values
from tfdeploy.config.jobvalues import VARIABLE_NAMES, check_variable, command, named_values_schema
from tfdeploy.config.node import Node
from tfdeploy.config.schema import Key, accepts, mapping_schema, read_values
from tfdeploy.model.job import SecretSource
from tfdeploy.text.allowed import VARIABLE

_HINT = "write it as {file: ~/.hf/token}, {command: [pass, show, db]}, {environment: NAME}, or env"
_SOURCE = (
    Key("file", "a file on this machine that contains the value", "file: ~/.hf/token", values.text),
    Key(
        "command",
        "a command that prints the value, and its arguments; it runs on this machine",
        "command: [pass, show, db]",
        command,
    ),
    Key(
        "environment",
        "a variable of your environment that contains the value",
        "environment: MY_TOKEN",
        values.variable,
        field="variable",
    ),
)

_NAMED_SOURCE = named_values_schema(
    {
        **mapping_schema(_SOURCE),
        "type": ["string", "object"],
        "pattern": "^env$",
        "minProperties": 1,
        "maxProperties": 1,
    },
    VARIABLE_NAMES,
)


@accepts(
    **{**_NAMED_SOURCE, "type": ["array", "object"]},
    items={**_NAMED_SOURCE, "type": ["string", "object"], "pattern": VARIABLE_NAMES},
)
def secrets(node: Node) -> dict[str, SecretSource]:
    """Return {variable name: source of its value}. A file path is returned as it is written.

    Raises ConfigError.
    """
    sources: dict[str, SecretSource] = {}
    for name, named, source in _secret_entries(node):
        check_variable(name, named)
        if name in sources:
            raise named.error(f"{name} stands twice", "name it once")
        sources[name] = _secret_source(name, source)
    return sources


def _secret_entries(node: Node) -> Iterator[tuple[str, Node, Node | None]]:
    """Yield (variable name, location of the name, source of the value).

    If the source is None, the value is in the caller's environment.
    """
    is_list = node.kind != "mapping"
    wanted = "a list of names, or a mapping of name: source"
    for item in node.list_items(wanted) if is_list else [node]:
        if item.kind == "mapping":
            yield from ((name, child, child) for name, child in item.keys.items())
        elif item.kind == "text" and VARIABLE.match(item.text):
            yield item.text, item, None
        else:
            # The error does not show the text: a user may have written NAME=value with the secret.
            raise item.error(
                "this is not the name of a variable; a job file must not contain the value itself",
                "write letters, digits and _",
            )


def _secret_source(name: str, node: Node | None) -> SecretSource:
    if node is None:
        return SecretSource(variable=name)
    if node.kind == "text" and node.text == "env":
        return SecretSource(variable=name, where=node.where)
    # A user may have written the secret itself here, so the error does not show the text.
    if node.kind != "mapping":
        raise node.error(
            f"{name} needs a source; a job file must not contain the value itself", _HINT
        )
    given = read_values(node, _SOURCE)
    if len(given) != 1:
        raise node.error(f"{name} needs one source, and has {len(given)}", _HINT)
    return SecretSource(**given, where=node.where)
