"""Test that the documented defaults of the inventory and the job file match the code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.config import reference
from tfdeploy.config.schema import Key
from tfdeploy.config.yamlfile import read_yaml
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job

# Keys whose default the reference describes in words, because it depends on other settings.
IN_WORDS = {
    "address",
    "advertise",
    "bwlimit",
    "code",
    "command",
    "cwd",
    "data",
    "env",
    "flags",
    "identity_file",
    "inventory",
    "jump",
    "keep",
    "known_hosts",
    "metrics",
    "mode",
    "name",
    "port",
    "reserve",
    "roles",
    "secrets",
    "setup_requirements",
    "setup_wheels",
    "slots",
    "user",
}


def rows(keys: tuple[Key, ...]) -> Iterator[Key]:
    for key in keys:
        yield from rows(key.keys) if key.keys else (key,)


def cases() -> list[tuple[type, Key]]:
    every = [(Host, key) for key in rows(reference.HOST)]
    every += [(Job, key) for key in rows(reference.JOB)]
    return [(kind, key) for kind, key in every if (key.field or key.name) not in IN_WORDS]


@pytest.mark.parametrize(("kind", "key"), cases(), ids=lambda each: getattr(each, "name", ""))
def test_documented_default_matches_model(kind: Any, key: Key, tmp_path: Path) -> None:
    (field,) = (
        field_of_model
        for field_of_model in fields(kind)
        if field_of_model.name == (key.field or key.name)
    )
    assert field.default is not MISSING and key.read is not None
    file = tmp_path / "x.yaml"
    file.write_text(f"key: {key.default}\n")
    assert key.read(read_yaml(file).mapping()["key"]) == field.default
