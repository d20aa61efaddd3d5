"""Convert a plan to the compact form that it has in files and on hosts, and back. Pure.

The command and environment of each task contain the addresses of the cluster, so the size of a
complete plan would grow with the square of the number of hosts. In the compact form, the long texts
that describe the cluster are stored only once. An argument or value that contains such a text
becomes a list of texts and numbers. A number is an index into the plan's `texts`: see
agent/wire.resolve_word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.model.cluster import cluster_json
from tfdeploy.model.plan import PLAN_VERSION, Plan, plan_from_json, plan_to_json

# The version of plan.json. In version 1, all arguments and values are complete texts, as in the
# output of `--dry-run --json`.
VERSION = 2
_LEAST_CHARS = 64  # a shorter text is not replaced by a reference


def shared_texts_of(plan: Plan) -> tuple[str, ...]:
    """Return the long texts that may be in the command or environment of every task: the cluster as
    JSON, the addresses of each role, and the addresses of all hosts. The longest text is first."""
    alone = cluster_json(plan.cluster)
    joined = [",".join(endpoints) for endpoints in plan.cluster.values()]
    around = ",".join(dict.fromkeys(host.address for host in plan.hosts))
    shared_texts = {text for text in (alone, *joined, around) if len(text) >= _LEAST_CHARS}
    return tuple(sorted(shared_texts, key=lambda text: (-len(text), text)))


def pack_value(word: str, shared_texts: Iterable[str]) -> str | list[str | int]:
    """Return the packed form of `word`, which is an argument or a variable's value. Each occurrence
    of a text of `shared_texts` is replaced by the text's index. A short word, or a word without
    such a text, is returned unchanged. wire.resolve_word reverses this."""
    if len(word) < _LEAST_CHARS:
        return word
    parts = _split_at_texts(word, list(enumerate(shared_texts)))
    return word if parts == [word] else parts


def pack_values(words: Mapping[str, str], shared_texts: Iterable[str]) -> dict[str, Any]:
    return {name: pack_value(word, shared_texts) for name, word in words.items()}


def plan_to_file(plan: Plan) -> dict[str, Any]:
    """Return the plan as the JSON object of plan.json."""
    texts = shared_texts_of(plan)
    fields = plan_to_json(plan)
    for task in fields["tasks"]:
        task["argv"] = [pack_value(word, texts) for word in task["argv"]]
        task["env"] = pack_values(task["env"], texts)
    return {**fields, "version": VERSION, "texts": list(texts)}


def plan_from_file(content: bytes) -> Plan:
    """Return a plan of this version or an older one. Raises ValueError or msgspec.ValidationError
    if `content` is not a plan."""
    fields = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError("no object")
    texts = fields.pop("texts", [])
    for task in fields.get("tasks", ()) if texts else ():
        task["argv"] = [wire.resolve_word(word, texts) for word in task["argv"]]
        task["env"] = {name: wire.resolve_word(word, texts) for name, word in task["env"].items()}
    return plan_from_json({**fields, "version": PLAN_VERSION})


def _split_at_texts(word: str, texts: list[tuple[int, str]]) -> list[str | int]:
    for position, (number, text) in enumerate(texts):
        before, pieces, after = word.partition(text)
        if pieces:
            remaining_texts = texts[position:]
            return [
                *(_split_at_texts(before, remaining_texts) if before else ()),
                number,
                *(_split_at_texts(after, remaining_texts) if after else ()),
            ]
    return [word]
