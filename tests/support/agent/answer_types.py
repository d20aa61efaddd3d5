"""Every verb that the control side asks, by name; and what of an answer its type does not know."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import msgspec

from tfdeploy.agent import serve, wire
from tfdeploy.agent.serve.call import Verb as Answering
from tfdeploy.model.answers import audit, broadcast, clean, files, hosts, links, programs, runs, samples
from tfdeploy.model.answers.reading import read
from tfdeploy.model.answers.verb import Flow, Verb
from tfdeploy.operations.probe import PROBE


def verbs() -> dict[str, Verb[Any] | Flow[Any, Any]]:
    found = [
        each
        for module in (audit, broadcast, clean, files, hosts, links, programs, runs, samples)
        for each in vars(module).values()
    ]
    return {each.name: each for each in (*found, PROBE) if isinstance(each, (Verb, Flow))}


def agent_verbs() -> dict[str, Answering]:
    """Every verb that the agent answers, by name."""
    names = [each.name for each in pkgutil.walk_packages(serve.__path__, f"{serve.__name__}.")]
    return {verb: answer for name in names for verb, answer in vars(importlib.import_module(name)).get("VERBS", {}).items()}


def unknown(said: Any, cls: type[Any]) -> list[str]:
    """The fields of an answer that its type would drop, "tasks.0.pid". Raises BadShape where it is no such value."""
    return list(_dropped(said, _plain(read(said, cls)), ""))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=wire.to_wire)


def _dropped(said: Any, kept: Any, at: str) -> Any:
    if isinstance(said, dict):
        for name, each in said.items():
            if name in kept:
                yield from _dropped(each, kept[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(said, list):
        for number, (each, its) in enumerate(zip(said, kept, strict=True)):
            yield from _dropped(each, its, f"{at}.{number}")
