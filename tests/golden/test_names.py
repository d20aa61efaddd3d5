"""No name on the wire, on a disk or on a command line has changed since the tag before-the-house.

names/before-the-house.json was recorded from that tag. names/since.json says what was added to it
since and what of it is gone, each with its reason: a name that others read is never gone.
    PYTHONPATH=tests python tests/golden/test_names.py --record FOLDER    writes the golden anew;
    FOLDER: a checkout of the tag
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.names import running
from support.names.sources import collect

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "names" / "before-the-house.json"
SINCE = HERE / "names" / "since.json"
SIDES = ("host", "control")
# what is compared name by name; of the others only what is lost counts, for a refactoring may add
# keys and words of its own
EXACT = (
    "command line",
    "settings of the command line",
    "event kinds",
    "exit codes",
    "agent words",
    "TFDEPLOY names",
    "environment",
    "error codes",
)
LOST = {f"{what}, {side} side": side for side in SIDES for what in ("keys", "words")}
# a new verb stands in the table of docs/agent-protocol.md, which the verbs themselves make
STAYING = ("agent verbs", "agent verbs under the lock")


def names_of(tree: Path) -> dict[str, Any]:
    """All categories of the tree that holds `tfdeploy/`, by its sources and by its running code."""
    done = subprocess.run(
        [sys.executable, str(running.__file__)],
        env={**_clean(), "PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, **collect(tree, set(found["agent verbs"]))}


def _clean() -> dict[str, str]:
    """What the caller has set must not become part of the golden."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TFDEPLOY_")}


def faults(golden: dict[str, Any], today: dict[str, Any], since: dict[str, Any]) -> Iterator[str]:
    """What is lost or new, by category and name, but for what `since` explains."""
    added, gone = since["added"], since["gone"]
    for kind in EXACT:
        before, now = _pairs(golden[kind]), _pairs(today[kind])
        yield from (f"{kind}: {name} is gone" for name in before - now - set(gone.get(kind, ())))
        yield from (f"{kind}: {name} is new" for name in now - before - set(added.get(kind, ())))
    for kind in STAYING:
        yield from (
            f"{kind}: {name} is gone"
            for name in set(golden[kind]) - set(today[kind]) - set(gone.get(kind, ()))
        )
    for kind, side in LOST.items():
        lost = set(golden[kind]) - set(today[f"there, {side} side"]) - set(gone.get(kind, ()))
        yield from (f"{kind}: {name} is gone" for name in lost)
    yield from _file_faults(
        golden, today, set(added.get("file names", ())), set(gone.get("file names", ()))
    )
    for kind in ("records", "fields a record must have"):
        yield from _record_faults(kind, golden[kind], today[kind], added.get(kind, {}))


def _pairs(names: Any) -> set[str]:
    return (
        {f"{name} = {value}" for name, value in names.items()}
        if isinstance(names, dict)
        else set(names)
    )


def _file_faults(
    golden: dict[str, Any], today: dict[str, Any], added: set[str], gone: set[str]
) -> Iterator[str]:
    """A text of the tag that only now stands where a file is named is no new name."""
    before, now = set(golden["file names"]), set(today["file names"])
    for names, said in ((golden, before), (today, now)):
        said.update(name for side in SIDES for name in names[f"there, {side} side"])
    yield from (f"file names: {name} is gone" for name in set(golden["file names"]) - now - gone)
    yield from (f"file names: {name} is new" for name in set(today["file names"]) - before - added)


def _record_faults(
    kind: str, golden: dict[str, list[str]], today: dict[str, list[str]], added: dict[str, Any]
) -> Iterator[str]:
    """The class may be called otherwise: its fields go over the wire."""
    now = [frozenset(fields) for fields in today.values()]
    for name, fields in golden.items():
        if frozenset(fields) | set(added.get(name, ())) not in now:
            yield (
                f"{kind}: {name} is no longer {', '.join(sorted({*fields, *added.get(name, ())}))}"
            )


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    return names_of(ROOT)


def test_no_name_has_changed_since_before_the_house(today: dict[str, Any]) -> None:
    assert "\n".join(sorted(faults(read(GOLDEN), today, read(SINCE)))) == ""


def test_what_was_added_or_is_gone_since_is_true_and_has_its_reason(today: dict[str, Any]) -> None:
    golden, since = read(GOLDEN), read(SINCE)
    for kind, names in since["added"].items():
        if kind == "outputs":
            continue  # test_outputs.py has seen them
        records = isinstance(golden[kind], dict) and kind != "exit codes"
        flat = (
            {name: why for fields in names.values() for name, why in fields.items()}
            if records
            else names
        )
        there = (
            {name for fields in today[kind].values() for name in fields}
            if records
            else _pairs(today[kind])
        )
        assert set(flat) <= there and all(flat.values()), kind
    for kind, names in since["gone"].items():
        if kind == "outputs":
            continue
        assert set(names) <= _pairs(golden[kind]) and all(names.values()), kind


PLANTED = (  # what is written otherwise, everywhere in the package -> what must be said of it
    (r"\bsurvivors\b", "remaining", "keys, host side: survivors is gone"),
    (r"\bgave_up\b", "resigned", "words, host side: gave_up is gone"),
    (r'"transfer"', '"moved"', "event kinds: moved is new"),
    (r'"lock_lost"', '"lock_gone"', "error codes: lock_lost is gone"),
    (r'"knowledge\.json"', '"known.json"', "file names: known.json is new"),
    (r'"supervisor\.lock"', '"held.lock"', "file names: supervisor.lock is gone"),
    (r"TFDEPLOY_TASK_ROLE", "TFDEPLOY_TASK_KIND", "TFDEPLOY names: TFDEPLOY_TASK_ROLE is gone"),
    (r'"--detach"', '"--away"', "command line: launch --away is new"),
    (r'"ssh": "a shell', '"shell": "a shell', "command line: ssh is gone"),
    (r'"run\.renew"', '"run.refresh"', "agent verbs: run.renew is gone"),
    (r'@fenced\n(?=@audited\("fetch")', "", "agent verbs under the lock: keep.place is gone"),
    (r"exit_code = 5", "exit_code = 6", "exit codes: SurvivorsLeft = 5 is gone"),
    (r"\blog_lost_bytes\b", "log_gone_bytes", "records: TaskStatus is no longer"),
    (r'"TF_GRPC_REUSE_PORT"', '"TF_REUSE_PORT"', "environment: TF_REUSE_PORT is new"),
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said of a tree with all of these changes."""
    tree = tmp_path_factory.mktemp("planted")
    shutil.copytree(
        ROOT / "tfdeploy", tree / "tfdeploy", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(tree / "tfdeploy/cli/arguments/ssh.py", tree / "tfdeploy/cli/arguments/shell.py")
    for path in (tree / "tfdeploy").rglob("*.py"):
        text = path.read_text()
        for pattern, instead, _ in PLANTED:
            text = re.sub(pattern, instead, text)
        path.write_text(text)
    return list(faults(read(GOLDEN), names_of(tree), read(SINCE)))


@pytest.mark.parametrize(("was", "instead", "said"), PLANTED, ids=[said for _, _, said in PLANTED])
def test_a_planted_change_is_seen(planted: list[str], was: str, instead: str, said: str) -> None:
    assert any(fault.startswith(said) for fault in planted), planted


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] != "--record":
        sys.exit(__doc__)
    GOLDEN.write_text(json.dumps(names_of(Path(sys.argv[2]).resolve()), indent=1) + "\n")


if __name__ == "__main__":
    main()
