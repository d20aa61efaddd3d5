"""What tfdeploy really says and writes, as shapes: the key paths of its JSON, the words where only
some are allowed, its files.

    PYTHONPATH=tests python tests/support/names/outputs.py --record FOLDER [ROUNDS]    FOLDER: a
    checkout of before-the-house

Names of this run, host, job and moment become RUN, HOST, JOB, HASH, so that two recordings can be
compared.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.lab.commandline import REPOSITORY, Tfdeploy
from support.lab.hosts import set_inventory
from support.lab.jobs import open_gate, write_job
from support.names.schemas import printed_faults
from support.waiting import wait_for
from tfdeploy import lab

GOLDEN = Path(__file__).parents[2] / "golden" / "names" / "outputs.json"
JOB = "golden"
# values of these keys are words of a fixed list
WORDS = {
    "state",
    "outcome",
    "kind",
    "code",
    "level",
    "mode",
    "stream",
    "step",
    "phase",
    "what",
    "check",
    "health",
}
_WORD = re.compile(r"[a-z][a-z_ ]{1,30}\Z")
_DATA_KEYS = (
    (re.compile(rf"\b{JOB}-([ab]|[0-9]{{8}}-[0-9]{{6}}-[0-9a-f]{{4}})\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"\bn\d\b"), "HOST"),
    (re.compile(r"\b(ps|worker)([:-])\d\b"), r"TASK\2N"),
    (re.compile(rf"\b{JOB}\b"), "JOB"),
    (re.compile(r"@[\w.-]+\Z"), "@WHERE"),
    (re.compile(r"\b(locks|fences)/(?!folders|prepare).*"), r"\1/HOSTNAME"),
)
_PASSING = re.compile(r"\.tmp\Z|\A\.cwd\.|\A\.staging|\Anew-|\.pyc\Z|\.aside-")
_TASK_ENVIRONMENT = re.compile(r"TFDEPLOY_|TF_|CUDA_")


def general(name: str) -> str:
    for pattern, instead in _DATA_KEYS:
        name = pattern.sub(instead, name)
    return name


def shape(value: Any, at: str) -> Iterator[str]:
    """`status.tasks[].state = running`: every path of keys, and the word at its end where it is one
    of a list."""
    if at.endswith("hosts[].versions"):
        yield at  # the programs are the machine's own
    elif isinstance(value, dict):
        yield from () if value else (at,)
        for key, each in value.items():
            yield from shape(each, f"{at}.{general(str(key))}")
    elif isinstance(value, list):
        yield at
        for each in value:
            yield from shape(each, f"{at}[]")
    else:
        yield at
        if at.rsplit(".", 1)[-1] in WORDS and isinstance(value, str) and _WORD.match(value):
            yield f"{at} = {value}"


def lines(text: str, at: str) -> Iterator[str]:
    """Of JSON lines, by what each is."""
    for line in filter(str.strip, text.splitlines()):
        row = json.loads(line)
        yield from shape(row, f"{at}({row.get('what') or row.get('kind') or ''})")


def values(text: str) -> Iterator[Any]:
    """Of JSON texts one behind the other."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        text = text[end:]
        yield value


def files(root: Path, at: str) -> Iterator[str]:
    """Below the root, but for code, agents and what is there for a moment."""
    for path in sorted(root.rglob("*")):
        steps = path.relative_to(root).parts
        if (
            any(map(_PASSING.search, steps))
            or "cwd" in steps[:-1]
            or (root.name == ".agent" and len(steps) > 1)
        ):
            continue
        if "releases" in steps[:-1] and len(steps) != steps.index("releases") + 2:
            continue
        name = f"{at}:{general('/'.join(steps))}"
        yield name
        if not path.is_file():
            continue
        if path.name in ("journal", "events.jsonl"):
            yield from lines(path.read_text(), name)
        elif path.suffix == ".json" or path.name.startswith("word."):
            yield from _json_file(path, name)


def _json_file(path: Path, name: str) -> Iterator[str]:
    try:
        yield from shape(json.loads(path.read_text()), name)
    except (OSError, ValueError):  # it has just gone, or is space that is kept free
        return


class Recording:
    """One operator's way through the verbs, on a loopback lab of three hosts. `seen`: the shapes of
    all that came."""

    def __init__(self, operator: Tfdeploy) -> None:
        self.operator = operator
        self.seen: set[str] = set()

    def say(self, name: str, *words: str, exit_code: int = 0) -> Any:
        """The verb with --json; how it exited and what it printed are seen."""
        at = words.index("--") if "--" in words else len(words)
        done = self.operator.run(*words[:at], "--json", *words[at:])
        assert done.returncode == exit_code, (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        self.seen.add(f"{name}: exit {done.returncode}")
        answers = list(
            values(done.stdout if done.stdout.strip() else done.stderr[done.stderr.index("{") :])
        )
        for each in answers:
            # else an older version is recorded
            if self.operator.env["PYTHONPATH"] == str(REPOSITORY):
                assert printed_faults(words, each) == [], each
            self.seen.update(shape(each, name))
        return answers[0]

    def make(self) -> set[str]:
        self._before_a_run()
        self._a_run_that_succeeds()
        self._a_run_that_is_stopped()
        for path in (self.operator.home / "state").iterdir():
            self.seen.update(files(path, "here"))
        return self.seen

    def _before_a_run(self) -> None:
        write_job(
            self.operator,
            JOB,
            "quick.py",
            "--steps=30",
            "--gate=10",
            "--save",
            keep=["checkpoints"],
        )
        (self.operator.cwd / "bad.yaml").write_text(f"name: {JOB}\nmode: nothing\n")
        kept = self.operator.env["TFDEPLOY_INVENTORY"]
        elsewhere = str(set_inventory(self.operator, hosts={"n3": {"port": 1}}))
        self.operator.env["TFDEPLOY_INVENTORY"] = kept
        told = (
            ("no such run", 2, "status", "nobody-1"),
            ("not built", 2, "compare"),
            ("no such flag", 2, "status", "--nothing"),
            ("bad job", 2, "launch", "-j", "bad.yaml", "--dry-run"),
            ("inventory", 0, "inventory"),
            ("reference", 0, "docs"),
            ("exec", 0, "exec", "--", "true"),
            ("exec failed", 1, "exec", "--", "false"),
            ("unreachable", 4, "exec", "-i", elsewhere, "--", "true"),
            ("dry run", 0, "launch", "--dry-run"),
        )
        with ThreadPoolExecutor(3) as side_by_side:
            for done in [
                side_by_side.submit(self.say, name, *words, exit_code=code)
                for name, code, *words in told
            ]:
                done.result()
        self.say("sync", "sync")

    def _a_run_that_succeeds(self) -> None:
        run = f"{JOB}-a"
        events = self.operator.home / "events"
        self.say("launch", "launch", "--detach", "--name", run, "--events", str(events))
        self.seen.update(lines(events.read_text(), "event"))
        self._until(
            run, lambda rows: all((row["step"] or 0) >= 10 for row in rows if row["task"] != "ps:0")
        )
        self._workdirs("running")
        rows = self.say("status", "status", run)["tasks"]
        environ = (
            Path(f"/proc/{rows[1]['pid']}/environ")
            .read_bytes()
            .decode(errors="replace")
            .split("\0")
        )
        names = (word.partition("=")[0] for word in environ)
        self.seen.update(f"environment: {name}" for name in names if _TASK_ENVIRONMENT.match(name))
        self.say("logs", "logs", run, "-n", "5")
        self.say("live run", "launch", "--detach", "--no-sync", exit_code=3)
        self.say("fetch", "fetch", run, "--to", str(self.operator.home / "fetched"))
        self.seen.update(files(self.operator.home / "fetched", "fetched"))
        open_gate(self.operator, run, JOB)
        self.operator.wait_until("succeeded", run)
        self.say("status of what succeeded", "status", run)

    def _a_run_that_is_stopped(self) -> None:
        run = f"{JOB}-b"
        write_job(
            self.operator,
            JOB,
            "quick.py",
            "--steps=100000",
            restart={"max": 1, "backoff": ["100ms", "100ms"]},
        )
        self.say("launch", "launch", "--detach", "--name", run)
        (row,) = (
            row for row in self.operator.json("status", run)["tasks"] if row["task"] == "worker:1"
        )
        self.operator.run(
            "exec", "--limit", row["host"], "--", "kill", "-9", str(row["pid"]), exit_code=0
        )
        self._until(
            run,
            lambda rows: (
                all(row["state"] == "running" for row in rows)
                and sum(row["restarts"] for row in rows) == 1
            ),
        )
        self.say("status", "status", run)
        self.say("stop", "stop", run)
        self.say("status of what was stopped", "status", run)
        self.say("runs", "runs", "--all")
        self._workdirs("ended")

    def _until(self, run: str, true: Any) -> None:
        wait_for(
            lambda: true(self.operator.json("status", run)["tasks"]),
            60,
            f"{run} is as far as it is to be",
        )

    def _workdirs(self, when: str) -> None:
        for host in self.operator.lab.hosts:
            root = self.operator.lab.root / "hosts" / host / "home" / "tfdeploy"
            self.seen.update(
                each
                for part in (JOB, ".indoubt", ".agent")
                for each in files(root / part, f"{when}:{part}")
            )


def record(tree: Path, rounds: int) -> dict[str, list[str]]:
    """`always`: in every round; `at times`: in some, for they depend on the moment."""
    made = lab.up("golden-record", "loopback", 3)
    found = []
    try:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                operator = Tfdeploy(made, Path(folder) / "operator")
                operator.env["PYTHONPATH"] = str(tree)
                found.append(Recording(operator).make())
            for host in made.hosts:
                shutil.rmtree(made.root / "hosts" / host / "home" / "tfdeploy")
    finally:
        made.down()
    always = set.intersection(*found)
    return {"always": sorted(always), "at times": sorted(set.union(*found) - always)}


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] != "--record":
        sys.exit(__doc__)
    found = record(Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) > 3 else 4)
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
