"""Lies that were believed once, each by itself; test_hostile_agent.py draws any others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doings import LIAR, OTHER, PLAN, Wires, syncs
from honest import FILES, JOB, WORKDIR, Said, honest
from hostile import LyingFleet

from tfdeploy.errors import BadAnswer
from tfdeploy.model.answers.hosts import Hello
from tfdeploy.model.answers.reading import BadShape, read
from tfdeploy.model.job import Job
from tfdeploy.operations.stop import Stopped, stop

STAGING = f"{WORKDIR}/jobs/{JOB}/releases/.staging-x"
BEGUN = {"staging": STAGING, "missing": list(FILES), "linked": 0, "rsync": True}
ASKED_FOR = {  # verb and answer, and what is said of it
    "an ignored file": ("release.begin", {**BEGUN, "missing": ["a.txt", "secret"]}, "asks for 'secret'"),
    "a key behind a link": ("release.begin", {**BEGUN, "missing": ["notes/id_ed25519"]}, "asks for 'notes/id_ed25519'"),
    "a path that leads out": ("release.begin", {**BEGUN, "missing": ["../data/a.txt"]}, "asks for"),
    "one file for ever": ("release.begin", {**BEGUN, "missing": ["a.txt"] * 9}, "more than once"),
    "later": ("release.commit", {"changed": ["secret"]}, "asks for 'secret'"),
    "a place elsewhere": ("release.begin", {**BEGUN, "staging": "/etc/cron.d"}, "outside its workdir"),
    "a place that leads out": ("release.begin", {**BEGUN, "staging": f"{WORKDIR}/../../x"}, "outside its workdir"),
    "a place like its workdir": ("release.begin", {**BEGUN, "staging": f"{WORKDIR}2/x"}, "outside its workdir"),
    "data elsewhere": ("data.begin", {"folder": "/etc"}, "outside its workdir"),
    "data over all its workdir": ("data.begin", {"folder": WORKDIR}, "outside its workdir"),
}


@pytest.mark.fault("59 a host asks for files that are not for it")
@pytest.mark.parametrize("case", ASKED_FOR)
def test_only_entries_of_the_manifest_leave(case: str, wires: Wires, tmp_path: Path, job: Job) -> None:
    verb, value, words = ASKED_FOR[case]
    found = syncs(LyingFleet(lambda host, asked: Said([], value) if (host, asked) == (LIAR, verb) else None), tmp_path, job)
    assert isinstance(found[LIAR], BadAnswer) and words in found[LIAR].what and found[LIAR].exit_code == 1
    assert found[OTHER].sent == ["code", "data digits"]
    assert wires.sent[LIAR] == [] or (
        case.startswith(("later", "data")) and not any("secret" in names for _, names in wires.sent[LIAR])
    )


@pytest.mark.fault("59 a nonsensical answer to stop")
@pytest.mark.parametrize("value", [None, "stopped", {"survivors": "none"}, {"survivors": [{"pid": "all"}]}, {"seconds": "soon"}])
def test_stop_stops_the_others_whatever_one_host_says(value: Any) -> None:
    fleet = LyingFleet(lambda host, asked: Said([], value) if host == LIAR else None)
    found = stop(fleet, PLAN, grace_s=0.0)
    assert isinstance(found[LIAR], BadAnswer) and "run.stop makes no sense" in found[LIAR].what
    assert found[OTHER] == Stopped([{"pid": 7, "state": "D", "command": "x"}], 0.1)


def test_a_hello_is_checked_like_every_answer() -> None:
    said = honest("hello", LIAR, {}).value
    for name, value in {"workdir": "tfdeploy", "clock": float("nan"), "pid": "1", "home": "/home/\x1b[2J"}.items():
        with pytest.raises(BadShape):
            read({**said, name: value}, Hello)
