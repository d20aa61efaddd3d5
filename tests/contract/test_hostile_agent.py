"""A host that lies, at the seam where its answers come in: its failure in words, and nobody else's. No traceback, no hang,
no file outside the destination, no byte that it was not meant to get."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults.doings import ANSWERS, LIAR, OTHER, Wires, doings_of
from support.faults.honest import WORKDIR, honest
from support.faults.hostile import LyingFleet
from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.reading import read
from tfdeploy.model.job import Job

QUICK, ALL = 12, 200  # lies of each verb


@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_the_honest_answers_here_are_whole(verb: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    """So that what is refused below is refused for the lie."""
    fleet = LyingFleet(lambda host, asked: None)
    for do in doings_of(verb):
        found = do(fleet, tmp_path, job)
        failed = {name: error.what for name, error in found.items() if isinstance(error, TfdeployError)}
        assert not failed or (verb in ("run.links", "tensorboard") and "makes no sense" not in str(failed)), failed
    for answer in honest(verb, LIAR, {"what": "files", "files": [["a.txt", 4]], "first": 0, "end": 9, "digest": "d" * 64}).items:
        read(answer[0], ANSWERS[verb].item)  # type: ignore[union-attr]


@pytest.mark.fault("59 a dozen lies to each verb, at the channel")
@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_a_lie_is_that_hosts_failure(verb: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    _lie(verb, range(QUICK), wires, tmp_path, job)


@pytest.mark.soak
@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_no_lie_is_more_than_that_hosts_failure(verb: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    _lie(verb, range(QUICK, ALL), wires, tmp_path, job)


def _lie(verb: str, seeds: range, wires: Wires, tmp_path: Path, job: Job) -> None:
    outside = _files(tmp_path)
    for seed in seeds:
        for number, do in enumerate(doings_of(verb)):
            here = tmp_path / "here" / str(seed)
            fleet = LyingFleet(lambda host, asked, seed=seed: seed if (host, asked) == (LIAR, verb) else None)  # type: ignore[misc]
            found = do(fleet, here, job)
            at = f"{verb}, doing {number}, seed {seed}: {found}"
            assert not isinstance(found.get(OTHER), TfdeployError), at
            error = found.get(LIAR)
            assert error is None or not isinstance(error, TfdeployError) or error.exit_code in (1, 3, 4), at
            assert not isinstance(error, TfdeployError) or (error.what and (LIAR in str(error.where) or LIAR in error.what)), at
    ours = {path.removeprefix("code/") for path in outside if path.startswith("code/")} - {"secret"}
    for sent in wires.sent.values():
        for folder, names in sent:
            assert folder.startswith(WORKDIR + "/") and ".." not in folder and names <= ours, (folder, names)
    assert {path for path in _files(tmp_path) if not path.startswith("here/")} == outside


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}
