"""Test the JSON Schemas of the job file and the inventory. The stored schemas, which editors use,
are up to date. The schemas accept every example, and they accept and refuse the same files as
tfdeploy itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.schemas import find_faults
from tfdeploy.cli.main import main
from tfdeploy.config import load_inventory, load_job, reference
from tfdeploy.config.file_schemas import FILE_SCHEMAS, file_schema_text
from tfdeploy.config.node import Node
from tfdeploy.config.schema import Key, schema_of
from tfdeploy.config.templates import inventory_text, job_text
from tfdeploy.config.yamlfile import parse_yaml
from tfdeploy.errors import ConfigError

ROOT = Path(__file__).parents[3]
RENEW = "python scripts/json_schemas.py writes them"
SCHEMAS: dict[str, Any] = {name: json.loads(file_schema_text(name)) for name in FILE_SCHEMAS}
JOB, INVENTORY = "job-file", "inventory-file"
# {key: why tfdeploy refuses some values of the key that the schema accepts}
WIDER = {
    "address": "a number of an address may be too large",
    "advertise": "a number of an address may be too large",
    "jump": "a number of an address may be too large",
    "python": "`..` in a path",
    "workdir": "`..` in a path",
    "ports": "the lower end must come first",
    "bwlimit": "a rate may be too small",
    "reserve": "a size may be too small",
    "logs.max": "a size may be too small",
    "ready.after": "a duration may be too long",
    "ready.timeout": "a duration may be too long",
    "finish.grace": "a duration may be too long",
    "restart.wait": "a duration may be too long",
    "restart.backoff": "the shorter pause must come first",
    "stall.after": "a duration may be too long",
    "stop.grace": "a duration may be too long",
    "data": "keys exclude each other",
    "keep": "folders overlap",
    "roles": "two roles have one name, or a command names no program",
    "command": "a command names no program",
    "secrets": "a name stands twice, or a command names no program",
    "env": "an empty GRPC_FAIL_FAST",
    "metrics": "the expression needs one group",
}


def value_of(node: Node) -> Any:
    """Convert a parsed YAML node to the value that an editor would check against the schema."""
    if node.kind == "list":
        return [value_of(item) for item in node.items]
    if node.kind == "mapping":
        return {key: value_of(child) for key, child in node.keys.items()}
    if node.kind == "number":
        return int(node.text) if re.fullmatch(r"[-+]?\d+", node.text) else float(node.text)
    others = {"nothing": None, "true or false": node.text.lower() in ("true", "yes", "on")}
    return others.get(node.kind, node.text)


def faults_of(name: str, text: str) -> list[str]:
    """Return the faults that the schema `name` finds in a file with this text."""
    return list(find_faults(value_of(parse_yaml(text, Path("x.yaml"))), SCHEMAS[name], {}))


def is_read(name: str, text: str, folder: Path) -> bool:
    """Return whether tfdeploy accepts a file with this text."""
    file = folder / "x.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        if name == JOB:
            load_job(file, environ={})
        else:
            load_inventory(file)
    except ConfigError:
        return False
    return True


def uncommented(text: str) -> str:
    """Return `text`, a file from `tfdeploy init`, with the # removed in front of every key that is
    commented out.
    """
    return re.sub(r"^#(?=\S|  )", "", text, flags=re.M)


def pages() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (page and number, (schema, text)) for each complete job file or inventory that the
    documentation shows.
    """
    job_keys = {key.name for key in reference.JOB} - {"roles"}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```ya?ml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        for number, text in enumerate(blocks):
            keys = set(re.findall(r"^(\w+):", text, re.M))
            if "hosts" in keys:
                yield f"{page.name}-{number}", (INVENTORY, text)
            elif keys & job_keys and page.parent.name != "reference":
                yield f"{page.name}-{number}", (JOB, text)


def examples() -> dict[str, tuple[str, str]]:
    """Return {name: (schema, text)} for every example of a job file or an inventory."""
    jobs = {str(path.relative_to(ROOT)): path for path in ROOT.glob("examples/**/tfdeploy*.yaml")}
    hosts = {str(path.relative_to(ROOT)): path for path in ROOT.glob("inventories/*.yaml")}
    assert len(jobs) >= 9 and len(hosts) >= 3
    job, every_key = (
        job_text(name="x", mode="async", command=["python", word])
        for word in ("train.py", "{data.digits}")
    )
    inventory = inventory_text({"n1": {"address": "192.0.2.1"}, "n2": {"user": "me"}})
    return {
        **{name: (JOB, path.read_text("utf-8")) for name, path in jobs.items()},
        **{name: (INVENTORY, path.read_text("utf-8")) for name, path in hosts.items()},
        **dict(pages()),
        "init-job": (JOB, job),
        "init-job-every-key": (JOB, uncommented(every_key)),
        "init-inventory": (INVENTORY, inventory),
        "init-inventory-every-key": (INVENTORY, uncommented(inventory)),
    }


@pytest.mark.parametrize("name", FILE_SCHEMAS)
def test_docs_prints_schema_in_docs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--schema", name]) == 0
    printed = capsys.readouterr().out
    assert (ROOT / f"docs/schemas/{name}.schema.json").read_text("utf-8") == printed, RENEW


@pytest.mark.parametrize("name", examples())
def test_schema_admits_every_example(name: str, tmp_path: Path) -> None:
    schema, text = examples()[name]
    assert is_read(schema, text, tmp_path)
    assert faults_of(schema, text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (JOB, "mode:\nsetup:\nenv:\nroles: {worker: }\n"),
        (JOB, "command: [python, train.py, 5, 0.1, true]\nenv: {A: 1, B: '', c: 0.5}\n"),
        (JOB, "secrets: {A: env, B: {file: ~/b}}\ndata: {x.y-z: /srv/x}\ncwd: src/.a\n"),
        (JOB, "roles: {master: {count: 0, per_host: 1}, worker: {as: work}}\n"),
        (JOB, "inventory: n1,n2\nlogs: {max: 1.5 GiB}\nstall: {after: 0s}\n"),
        (INVENTORY, "defaults:\nhosts: {n1: , 'r[1-2,4]n[01-03]': {user: '{name}'}}\n"),
        (INVENTORY, "hosts: {n1: {address: '[2001:db8::1]', gpus: [0, 1], ports: 2222}}\n"),
        (INVENTORY, "hosts: {n1: {address: 'fe80::1%eth0', jump: 'a@b:22,[::1]:5'}}\n"
                    "roles: {ps: n1}\n"),
        (INVENTORY, "hosts: {1: {workdir: /home/jürgen/x/, bwlimit: 5000, reserve: 0}}\n"),
        (INVENTORY, "hosts: {n: {identity_file: 'C:{{x}}', python: ~/v/bin/python, gpus: none}}\n"),
        (INVENTORY, "hosts: {2201: {address: 192.0.2.1, port: '{name}'}}\n"),
    ],
)  # fmt: skip
def test_schema_admits_what_reader_accepts(name: str, text: str, tmp_path: Path) -> None:
    assert is_read(name, text, tmp_path)
    assert faults_of(name, text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (JOB, "mode: asnyc"),
        (JOB, "mode: [async]"),
        (JOB, "command: python train.py"),
        (JOB, "command: []"),
        (JOB, "keep: checkpoints"),
        (JOB, "keep: [../out]"),
        (JOB, "cwd: /srv"),
        (JOB, "env: {TF_CONFIG: x}"),
        (JOB, "env: {A: true}"),
        (JOB, "env: {A: }"),
        (JOB, "env: [A=1]"),
        (JOB, "secrets: [A=1]"),
        (JOB, "secrets: {A: hunter2}"),
        (JOB, "roles: {workers: {count: 1}}"),
        (JOB, "roles: {worker: 2}"),
        (JOB, "roles: {worker: {count: -1}}"),
        (JOB, "ready: {timeout: 120}"),
        (JOB, "stop: {grace: 20 sec}"),
        (JOB, "restart: {max: always}"),
        (JOB, "restart: 3"),
        (JOB, "logs: {max: 1}"),
        (JOB, "data: ./data"),
        (JOB, "data: {x: {path: ./x, split: workers}}"),
        (JOB, "protect: yes"),
        (JOB, "name: two words"),
        (INVENTORY, "roles: {ps: [n1]}"),
        (INVENTORY, "hosts: [n1, n2]"),
        (INVENTORY, "hosts: {n1: 192.0.2.1}"),
        (INVENTORY, "hosts: {n 1: {}}"),
        (INVENTORY, "hosts: {'n[1-': {}}"),
        (INVENTORY, "hosts: {n1: {port: ssh}}"),
        (INVENTORY, "hosts: {n1: {port: 70000}}"),
        (INVENTORY, "hosts: {n1: {address: '192.0.2.1:22'}}"),
        (INVENTORY, "hosts: {n1: {user: root@n1}}"),
        (INVENTORY, "hosts: {n1: {workdir: tfdeploy}}"),
        (INVENTORY, "hosts: {n1: {gpus: all}}"),
        (INVENTORY, "hosts: {n1: {gpus: [0, 0]}}"),
        (INVENTORY, "hosts: {n1: {bwlimit: 50MB}}"),
        (INVENTORY, "hosts: {n1: }\nroles: {workers: [n1]}"),
    ],
)
def test_schema_and_reader_refuse_a_typical_mistake(name: str, text: str, tmp_path: Path) -> None:
    assert not is_read(name, text, tmp_path)
    assert faults_of(name, text) != []


def objects_in(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each mapping in the schema that has fixed keys."""
    if "properties" in schema:
        yield path
    for key, child in schema.get("properties", {}).items():
        yield from objects_in(child, (*path, key))
    if schema.get("additionalProperties"):
        names = schema["propertyNames"]["pattern"]
        name = next(
            candidate for candidate in ("n1", "worker", "A1") if re.search(names, candidate)
        )
        yield from objects_in(schema["additionalProperties"], (*path, name))


def mappings() -> list[tuple[str, tuple[str, ...]]]:
    return [(name, path) for name in FILE_SCHEMAS for path in objects_in(SCHEMAS[name])]


@pytest.mark.parametrize(("name", "path"), mappings(), ids=lambda each: ".".join(each))
def test_schema_and_reader_refuse_an_unknown_key(
    name: str, path: tuple[str, ...], tmp_path: Path
) -> None:
    value: Any = {"no_such_key": 1}
    for key in reversed(path):
        value = {key: value}
    if name == INVENTORY:
        value = {"hosts": {"n2": {}}, **value}
    assert any(
        "no_such_key is not in the schema" in fault for fault in faults_of(name, json.dumps(value))
    )
    file = tmp_path / "x.yaml"
    file.write_text(json.dumps(value))
    with pytest.raises(ConfigError, match="unknown key 'no_such_key'"):
        load_job(file, environ={}) if name == JOB else load_inventory(file)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a Hypothesis strategy that generates values which the schema accepts."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return st.one_of([_values_of_type(schema, kind) for kind in schema["type"]])


def _values_of_type(schema: dict[str, Any], kind: str) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind == "string":
        return texts_of(schema.get("pattern", "^(|[ -~]+)$"))
    if kind == "integer":
        return st.integers(low, high)
    if kind == "number":
        return st.floats(low, high, allow_nan=False, allow_infinity=False) | st.integers(low, high)
    if kind == "array":
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", 4), 4)
        return st.lists(
            values_of(schema["items"]), min_size=least, max_size=most,
            unique=schema.get("uniqueItems", False),
        )  # fmt: skip
    if kind == "object":
        return _mappings_of(schema)
    return {"null": st.none(), "boolean": st.booleans()}[kind]


def _mappings_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    least, most = schema.get("minProperties", 0), min(schema.get("maxProperties", 3), 3)
    if "properties" in schema:
        keys = {key: values_of(key_schema) for key, key_schema in schema["properties"].items()}
        every = st.fixed_dictionaries({}, optional=keys)
        return every.filter(lambda value: least <= len(value)) if least else every
    return st.dictionaries(
        texts_of(schema["propertyNames"]["pattern"]),
        values_of(schema["additionalProperties"]),
        min_size=least,
        max_size=most,
    )


def texts_of(pattern: str) -> st.SearchStrategy[str]:
    printable = st.characters(
        min_codepoint=0x20, max_codepoint=0x17E, exclude_categories=["C", "Z"]
    )
    return st.from_regex(pattern.replace("$", r"\Z"), alphabet=printable | st.just(" ")).filter(
        lambda text: re.search(pattern, text)
    )


def readers() -> list[tuple[str, Key]]:
    return [*reference.leaf_keys(reference.HOST), *reference.leaf_keys(reference.JOB)]


@pytest.mark.parametrize(("dotted", "key"), readers(), ids=lambda each: getattr(each, "name", each))
@given(data=st.data())
def test_reader_accepts_what_schema_admits(data: st.DataObject, dotted: str, key: Key) -> None:
    assert key.read is not None
    value = data.draw(values_of(schema_of(key.read)))
    node = parse_yaml(json.dumps({"key": value}), Path("x.yaml")).mapping()["key"]
    try:
        key.read(node)
    except ConfigError as error:
        assert dotted in WIDER, f"{value!r}: {error.what}"


def patterns_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (
            value for key, value in schema.items() if key == "pattern" and value.__class__ is str
        )
        for value in schema.values():
            yield from patterns_in(value)


def test_javascript_and_python_agree_on_each_pattern() -> None:
    """Test the patterns of the schemas in JavaScript too, because editors compile them in
    JavaScript's Unicode mode. This mode refuses \\Z and needless escapes.
    """
    patterns = {
        found_pattern for name in FILE_SCHEMAS for found_pattern in patterns_in(SCHEMAS[name])
    }
    assert len(patterns) > 10
    for pattern in patterns:
        escapes = re.findall(r"\\(.)", pattern)
        assert set(escapes) <= set("dswu.[]{}$?\\"), pattern
        assert "(?P" not in pattern and "(?i" not in pattern and "(?a" not in pattern
