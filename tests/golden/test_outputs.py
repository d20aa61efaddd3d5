"""What tfdeploy says and writes has the shape that it had at the tag before-the-house:
`support.names.outputs` recorded it.

What was added or is gone since stands in names/since.json, as "outputs", with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.names.outputs import GOLDEN, Recording
from tfdeploy.lab import Lab

NAMES = Path(__file__).parent / "names"
PASSING = (" = starting", " = moving", " = killed")  # words that a moment later are others
# a file is remembered only if it was older than two seconds when it was read
BY_CHANCE = "here:trees/HASH.json."


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return found


@pytest.fixture(scope="module")
def known_words() -> set[str]:
    names = json.loads((NAMES / "before-the-house.json").read_text())
    return {word for side in ("host", "control") for word in names[f"words, {side} side"]}


def faults(golden: dict[str, Any], today: Iterable[str], words: set[str]) -> Iterator[str]:
    """A word that the tag knows may stand where it was not recorded: what a run is just doing
    differs from time to time."""
    since = json.loads((NAMES / "since.json").read_text())
    added, gone = (since[what].get("outputs", {}) for what in ("added", "gone"))
    now = {each for each in today if not each.startswith(BY_CHANCE)}
    always = {each for each in golden["always"] if not each.startswith(BY_CHANCE)}
    yield from (f"gone: {each}" for each in always - now - set(gone) if not each.endswith(PASSING))
    for each in now - {*always, *golden["at times"], *added}:
        path, _, word = each.partition(" = ")
        if word not in words or path not in always:
            yield f"new: {each}"


def test_outputs_and_files_have_the_shape_they_had(
    golden: dict[str, Any],
    known_words: set[str],
    new_lab: Callable[..., Lab],
    tfdeploy: Callable[[Lab], Tfdeploy],
) -> None:
    """In a lab of its own: `runs --all` and what lies beside the job are part of it."""
    seen = Recording(tfdeploy(new_lab("loopback", 3))).make()
    assert "\n".join(sorted(faults(golden, seen, known_words))) == ""


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        ("stop.hosts[].survivors", "stop.hosts[].remaining"),
        ("status.tasks[].state = running", "status.tasks[].state = going"),
        ("ended:golden:runs/RUN/hosts/HOST/decided", "ended:golden:runs/RUN/hosts/HOST/done"),
        ("ended:golden:runs/RUN/plan.json.mode", "ended:golden:runs/RUN/plan.json.way"),
        ("unreachable: exit 4", "unreachable: exit 5"),
    ],
)
def test_a_planted_change_of_shape_is_seen(
    golden: dict[str, Any], known_words: set[str], was: str, instead: str
) -> None:
    planted = {instead if each == was else each for each in golden["always"]}
    assert sorted(faults(golden, planted, known_words)) == [f"gone: {was}", f"new: {instead}"]
