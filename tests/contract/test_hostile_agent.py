"""Test a host that sends false answers: the operation fails on this host only, with an error that
names the host.

The operation must not print a traceback, hang, write a file outside its destination, or send the
host data that is not meant for it.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.faults.doings import ANSWERS, LIAR, OTHER, Operation, Wires, operations_of_verb
from support.faults.honest import WORKDIR, honest_answer
from support.faults.hostile import LyingFleet
from tfdeploy.errors import TfdeployError
from tfdeploy.model.job import Job
from tfdeploy.text.typed import convert_untrusted
from tfdeploy.transport.agent import stream

# How many false answers the test invents per verb: QUICK in ordinary tests, ALL in `make soak`.
QUICK, ALL = 12, 200
# In the tests, this number of seconds replaces every timeout after which a host counts as silent.
PATIENCE_S = 0.2
# A verb may make at most this many consecutive calls to the lying host.
STEPS = 40
ENDLESS = (
    "run.watch",
    "tensorboard",
    "broadcast.join",
    "broadcast.lend",
    "broadcast.read",
    "clean.workdir",
    "clean.everything",
)
# The verbs that must end in bounded time. The verbs of ENDLESS may wait forever.
STAYING = sorted(set(ANSWERS) - set(ENDLESS))


@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_honest_answers_are_accepted(verb: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    """Test that each operation accepts honest answers. Otherwise an operation in the other tests
    might fail for another reason than the false answer.
    """
    fleet = LyingFleet(lambda host, asked: None)
    for do in operations_of_verb(verb):
        outcome = do(fleet, tmp_path, job)
        failed = {
            name: error.what for name, error in outcome.items() if isinstance(error, TfdeployError)
        }
        assert not failed or (
            verb in ("run.links", "tensorboard") and "is invalid" not in str(failed)
        ), failed
    for answer in honest_answer(
        verb,
        LIAR,
        {"what": "files", "files": [["a.txt", 4]], "first": 0, "end": 9, "digest": "d" * 64},
    ).items:
        convert_untrusted(answer[0], ANSWERS[verb].item)  # type: ignore[union-attr]


@pytest.mark.fault("59 a dozen lies to each verb, at the channel")
@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_false_answer_fails_only_its_host(
    verb: str, wires: Wires, tmp_path: Path, job: Job
) -> None:
    _lie(verb, range(QUICK), wires, tmp_path, job)


@pytest.mark.soak
@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_no_false_answer_fails_another_host(
    verb: str, wires: Wires, tmp_path: Path, job: Job
) -> None:
    _lie(verb, range(QUICK, ALL), wires, tmp_path, job)


@pytest.mark.fault(
    "59 a host that lies, or goes on for ever, and stays: each verb ends in its time"
)
@pytest.mark.parametrize("verb", STAYING)
def test_false_answer_of_connected_host_delays_no_other(
    verb: str, wires: Wires, tmp_path: Path, job: Job
) -> None:
    _lie(verb, range(3), wires, tmp_path, job, PATIENCE_S)


@pytest.mark.soak
@pytest.mark.parametrize("verb", STAYING)
def test_no_false_answer_of_connected_host_delays_others(
    verb: str, wires: Wires, tmp_path: Path, job: Job
) -> None:
    _lie(verb, range(3, ALL), wires, tmp_path, job, PATIENCE_S)


def _seed_of_lie(verb: str, seed: int, host: str, asked: str) -> int | None:
    return seed if (host, asked) == (LIAR, verb) else None


def _lie(
    verb: str, seeds: range, wires: Wires, tmp_path: Path, job: Job, patience_s: float | None = None
) -> None:
    outside = _files(tmp_path)
    for seed in seeds:
        for number, operation in enumerate(operations_of_verb(verb)):
            destination = tmp_path / "destination" / str(seed)
            seed_of = partial(_seed_of_lie, verb, seed)
            value_read = _within(
                operation,
                LyingFleet(seed_of, patience_s),
                destination,
                job,
                f"{verb}, doing {number}, seed {seed}",
            )
            case = f"{verb}, doing {number}, seed {seed}: {value_read}"
            assert not isinstance(value_read.get(OTHER), TfdeployError), case
            error = value_read.get(LIAR)
            assert (
                error is None
                or not isinstance(error, TfdeployError)
                or error.exit_code in (1, 3, 4)
            ), case
            assert not isinstance(error, TfdeployError) or (
                error.what and (LIAR in str(error.where) or LIAR in error.what)
            ), case
    code_names = {path.removeprefix("code/") for path in outside if path.startswith("code/")} - {
        "secret"
    }
    for sent in wires.sent.values():
        for folder, names in sent:
            assert (
                folder.startswith(WORKDIR + "/") and ".." not in folder and names <= code_names
            ), (
                folder,
                names,
            )
    assert {path for path in _files(tmp_path) if not path.startswith("destination/")} == outside


def _within(
    operation: Operation, fleet: LyingFleet, destination: Path, job: Job, case: str
) -> dict[str, Any]:
    """Return the outcome of the operation for each host. Fail if the operation takes too long."""
    collected: list[dict[str, Any] | BaseException] = []

    def run() -> None:
        try:
            collected.append(operation(fleet, destination, job))
        # This thread passes the exception on to the thread of the test, which raises it.
        except BaseException as error:  # noqa: BLE001
            collected.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60.0 + stream.MAX_SILENCES * PATIENCE_S * STEPS)
    fleet.end()
    assert collected, f"{case}: the operation does not end"
    if isinstance(collected[0], BaseException):
        raise collected[0]
    return collected[0]


def _files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
