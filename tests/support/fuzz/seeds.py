"""Return the files from which fuzzing starts.

These are the files of this repository that users copy, one file with every key, and files of other
tools. The file with every key also contains each key that is later added to `config/reference.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tfdeploy.config import reference
from tfdeploy.config.schema import Key

ROOT = Path(__file__).parents[3]
# Files that tfdeploy once read wrongly. If the fuzzer finds another such file, it is added here.
CORPUS = ROOT / "tests" / "golden" / "files"
Kind = Literal["inventory", "job"]


class Seed(NamedTuple):
    kind: Kind
    text: str


def list_seeds() -> list[Seed]:
    """Return the seeds in the same order at every call, so that a series can be repeated."""
    inventories = [path.read_text() for path in sorted((ROOT / "inventories").glob("*.yaml"))]
    jobs = [path.read_text() for path in sorted((ROOT / "examples").glob("*/tfdeploy.yaml"))]
    for case in sorted((ROOT / "tests" / "golden" / "plans").glob("*.json")):
        answer = json.loads(case.read_text())
        for host in answer["inventory"]["hosts"].values():
            host.update({"ports": "-".join(map(str, host["ports"]))} if "ports" in host else {})
        inventories.append(_as_block_yaml(answer["inventory"]))
        jobs.append(_job_file_of(answer.get("job", {})))
    all_jobs = [*dict.fromkeys(jobs), *_files_with_keys(reference.JOB)]
    all_inventories = [*dict.fromkeys(inventories), *_hosts_with_keys(), *FOREIGN]
    return [
        *(Seed("inventory", text) for text in all_inventories),
        *(Seed("job", text) for text in all_jobs),
    ]


def read_corpus() -> dict[str, bytes]:
    """Return {file name: content}. A name begins with the kind of the file."""
    return {
        path.name: path.read_bytes() for path in sorted(CORPUS.iterdir()) if path.suffix == ".yaml"
    }


def _as_block_yaml(value: Any, indent: str = "") -> str:
    """Return block YAML with one line for each value, so that a mutation can swap and indent
    lines.
    """
    if isinstance(value, dict) and value:
        return "".join(_as_yaml_entry(f"{key}:", child, indent) for key, child in value.items())
    return f"{indent}{json.dumps(value)}\n"


def _as_yaml_entry(key: str, child: Any, indent: str) -> str:
    if isinstance(child, dict) and child:
        return f"{indent}{key}\n{_as_block_yaml(child, indent + '  ')}"
    return f"{indent}{key} {json.dumps(child)}\n"


def _job_file_of(said: dict[str, Any]) -> str:
    """Return a job file with the values of a golden case (a stored example in the tests). The case
    names its fields as `Job` does.
    """
    names = {key.field or key.name: dotted for dotted, key in reference.leaf_keys(reference.JOB)}
    nested: dict[str, Any] = {"name": "digits", "mode": "async", "command": ["python", "train.py"]}
    for field, value in said.items():
        dotted = names.get(field)
        if dotted is not None and value is not None:
            first, _, rest = dotted.partition(".")
            shown = (
                f"{value:g}s" if field.endswith("_s") and isinstance(value, int | float) else value
            )
            nested[first] = {**nested.get(first, {}), rest: shown} if rest else shown
    return _as_block_yaml(nested)


def _files_with_keys(keys: tuple[Key, ...]) -> list[str]:
    """Return one file that contains the examples of all keys, and for each key one file that
    contains its example and the keys that every job needs.
    """
    examples = [key.example for key in keys]
    needed = "name: digits\nmode: async\ncommand: [python, train.py]\n"
    own = [
        f"{needed}{text}\n"
        for text in examples
        if text.partition(":")[0] not in ("name", "mode", "command")
    ]
    return ["\n".join(examples) + "\n", *own]


def _hosts_with_keys() -> list[str]:
    own = [key.example for key in reference.HOST if key.name != "address"]
    block = "".join(f"  {line}\n" for line in own)
    hosts = (
        "hosts:\n  n1: {address: 192.0.2.10}\n  n2: {address: 192.0.2.11}\n  gpu[03-05]: "
        "{address: '{name}.x.org'}\n"
    )
    roles = "roles:\n  ps: [n1]\n  worker: [n2, 'gpu[03-05]']\n"
    two = (
        "hosts:\n  n1: {{address: 192.0.2.10, {0}}}\n  n2: {{{0}}}\nroles: {{ps: [n1], worker: "
        "[n2]}}\n"
    )
    merged = f"defaults: &all\n{block}{hosts}  n9: {{<<: *all, address: 192.0.2.19}}\n{roles}"
    return [f"defaults:\n{block}{hosts}{roles}", merged, *(two.format(line) for line in own)]


FOREIGN = (
    "node1 slots=4\nnode2 slots=4 max-slots=8\n# a comment\nml@node3:2222\n",
    "192.0.2.1:2\n192.0.2.2:2\n",
    "[gpu]\nn[01:04] ansible_host=192.0.2.10 ansible_port=2200 "
    "ansible_user=ml\n\n[gpu:vars]\nansible_become=yes\n"
    "\n[all:children]\ngpu\n",
    "all:\n  vars: {ansible_user: ml}\n  children:\n    ps:\n      hosts:\n        n1: "
    "{ansible_host: 192.0.2.1}\n"
    "    worker:\n      hosts:\n        n[2:4]:\n",
)
