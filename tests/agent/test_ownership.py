"""A second account on the host: whatever it planted in the workdir, none of it is run, nothing is written, and the error says
what mends it. Root plays the user, so no permission of the system helps."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults.lines import params
from support.waiting import wait_for
from tfdeploy.agent import layout, ownership
from tfdeploy.agent.seen import SEEN, is_as_seen, marks
from tfdeploy.transport.agent.archive import agent_name, agent_zip
from tfdeploy.transport.agent.first_stage import PROGRAM

STRANGER = 4711
WITHIN_S = 30.0
SERVE = ("serve", "--workdir")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of a second account")
FOREIGN = "60 a second account"

AGENT = f".agent/{agent_name()}"
FOLDERS = {"workdir": "", "agents": ".agent", "agent": AGENT}
INNER = {"package": f"{AGENT}/tfdeploy/agent", "cache": f"{AGENT}/tfdeploy/agent/__pycache__"}
FILES = {"start": f"{AGENT}/__main__.py", "source": f"{AGENT}/tfdeploy/agent/main.py"}


def arrive(workdir: Path, python: str = sys.executable, **how: Any) -> tuple[str, dict[str, Any]]:
    """What a host does when tfdeploy comes: ("have" or "need", {}), or ("fail", what it said). The agent then ends."""
    packed = agent_zip()
    sent = PROGRAM + f"{agent_name()} n1 {workdir}\n".encode()
    after = f"{hashlib.sha256(packed).hexdigest()} {len(packed)}\n".encode() + packed
    words = [python, "-S", "-E", "-c", f"import sys;exec(sys.stdin.buffer.read({len(PROGRAM)}))"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how) as process:
        assert process.stdin and process.stdout
        process.stdin.write(sent)
        process.stdin.flush()
        process.stdout.readline()
        word = process.stdout.readline().decode().strip()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(after if word == "=tfdeploy-need=" else b"")
            process.stdin.close()
        out = process.stdout.read()  # through the same buffer as the lines before
    said = word + out.decode(errors="replace")
    if "=tfdeploy-fail=" in said:
        return "fail", json.loads(said.split("=tfdeploy-fail=")[1].splitlines()[0])
    assert "=tfdeploy-agent=" in said, (process.returncode, said)
    return word.strip("=").removeprefix("tfdeploy-"), {}


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """A workdir with the agent in it, as it was put there, below a folder that everybody may write to."""
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made) / "scratch"
        scratch.mkdir()
        scratch.chmod(0o1777)
        Path(made).chmod(0o755)
        assert arrive(scratch / "tfdeploy") == ("need", {})
        assert arrive(scratch / "tfdeploy") == ("have", {})
        yield scratch / "tfdeploy"


@pytest.fixture
def workdir(installed: Path) -> Iterator[Path]:
    copy = installed.parent / "copy"
    shutil.copytree(installed, copy)
    copy.chmod(0o700)
    yield copy
    for left in installed.parent.glob("copy*"):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


@pytest.fixture(params=["seen", "unseen"])
def seen(request: pytest.FixtureRequest, workdir: Path) -> bool:
    """Whether all of the agent was looked at when it was whole, so that a start only looks for what changed."""
    if request.param == "seen":
        note(workdir)
    return bool(request.param == "seen")


def test_an_arrival_clears_away_what_killed_ones_left_and_nothing_else(workdir: Path) -> None:
    agents = workdir / ".agent"
    shutil.rmtree(workdir / AGENT)
    for name in ("new-7-a1", "new-7-a1.old", "new-8-b2", "new-9-c3", "0123abcd"):
        (agents / name / "tfdeploy").mkdir(parents=True)
        (agents / name / "tfdeploy" / "main.py").write_text("half of it")
        if name != "new-8-b2":
            os.utime(agents / name, (1.0, 1.0))
    os.chown(agents / "new-9-c3", STRANGER, STRANGER)
    assert arrive(workdir) == ("need", {})
    assert {each.name for each in agents.iterdir()} == {agent_name(), "new-8-b2", "new-9-c3", "0123abcd"}


def note(workdir: Path) -> None:
    record = workdir / AGENT / SEEN
    record.write_text(marks(str(workdir / AGENT), (0, 0)))
    record.chmod(0o600)


@pytest.fixture
def trap(installed: Path) -> Path:
    """A file that is there once something ran that must not."""
    place = installed.parent.parent / "trapped"
    place.unlink(missing_ok=True)
    return place


def spring(trap: Path) -> str:
    return f"open({str(trap)!r}, 'w').close()\n"


def plant_code(folder: Path, trap: Path) -> None:
    """All of the agent's code below the folder does what the stranger wants."""
    for file in folder.rglob("*.py"):
        file.write_text(spring(trap) + file.read_text().replace("from __future__ import annotations", ""))


def chown_all(path: Path) -> None:
    for each in [path, *path.rglob("*")]:
        os.lchown(each, STRANGER, STRANGER)


def as_another_users(path: Path, trap: Path) -> None:
    if path.is_dir():
        plant_code(path, trap)
    chown_all(path)


def as_open_to(mode: int) -> Callable[[Path, Path], None]:
    def make(path: Path, trap: Path) -> None:
        path.chmod(mode)

    return make


def elsewhere(trap: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=trap.parent)) / "elsewhere"


def as_a_link(path: Path, trap: Path) -> None:
    path.symlink_to(path.rename(elsewhere(trap)))


def as_a_fifo(path: Path, trap: Path) -> None:
    path.rename(elsewhere(trap))
    os.mkfifo(path, 0o600)


def as_a_file(path: Path, trap: Path) -> None:
    path.rename(elsewhere(trap))
    path.write_text(spring(trap))


def as_a_hard_link(path: Path, trap: Path) -> None:
    os.link(path, f"{trap}.second-name")


def bytecode(workdir: Path) -> Path:
    """That of the agent's main module, which the first start of it left there."""
    return Path(importlib.util.cache_from_source(str(workdir / FILES["source"])))


def planted_bytecode(path: Path, trap: Path) -> None:
    """Python would run it: its head names the size and time of the source."""
    code = compile(spring(trap), str(path), "exec")
    path.write_bytes(path.read_bytes()[:16] + marshal.dumps(code))
    os.chown(path, STRANGER, STRANGER)


OF_FOLDERS = {
    "another user's": as_another_users,
    "for all to write": as_open_to(0o777),
    "for its group to write": as_open_to(0o770),
    "a link": as_a_link,
    "a fifo": as_a_fifo,
    "a file": as_a_file,
}
OF_FILES = {
    "another user's": as_another_users,
    "for all to write": as_open_to(0o666),
    "a link": as_a_link,
    "a fifo": as_a_fifo,
    "a hard link": as_a_hard_link,
}
PLANTS = {
    **{f"{FOREIGN}: {name}, {how}": (path, plant) for name, path in FOLDERS.items() for how, plant in OF_FOLDERS.items()},
    **{f"{FOREIGN}: {name}, {how}": (path, plant) for name, path in INNER.items() for how, plant in list(OF_FOLDERS.items())[:5]},
    **{f"{FOREIGN}: {name}, {how}": (path, plant) for name, path in FILES.items() for how, plant in OF_FILES.items()},
    **{f"{FOREIGN}: bytecode, {how}": (None, plant) for how, plant in {**OF_FILES, "planted": planted_bytecode}.items()},
}


def listing(folder: Path) -> dict[str, Any]:
    """Everything below the folder, as it must stay."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        about = path.lstat()
        found[str(path)] = about.st_mode, about.st_uid, about.st_size, about.st_mtime_ns, about.st_ino
    return found


@pytest.mark.parametrize(("path", "plant"), params(PLANTS))
def test_what_another_user_planted_is_refused(workdir: Path, trap: Path, path: str | None, plant: Any) -> None:
    note(workdir)
    plant(workdir / path if path is not None else bytecode(workdir), trap)
    before = listing(workdir.parent)
    kind, said = arrive(workdir)
    assert (kind, said.get("code")) == ("fail", "foreign"), said
    assert said["what"].startswith(str(workdir)) and said["next"]
    assert not trap.exists() and listing(workdir.parent) == before
    if not said["next"].startswith("write "):
        subprocess.run(["sh", "-c", said["next"]], check=True)
        for second in trap.parent.glob("*second-name"):
            second.unlink()
        assert arrive(workdir)[0] in ("have", "need")
        assert not trap.exists() and arrive(workdir) == ("have", {})


def other_code(path: Path) -> None:
    path.write_text("raise SystemExit('other code')\n")


def unnoticed(path: Path) -> None:
    """Changed, and of its old size and time."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"import", b"export"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


DAMAGES = {
    "60 edited, of its old size and time": lambda agent: unnoticed(agent / "tfdeploy/agent/serve/server.py"),
    "60 edited, the look itself": lambda agent: unnoticed(agent / "tfdeploy/agent/seen.py"),
    "60 emptied": lambda agent: (agent / "tfdeploy/agent/serve/server.py").write_bytes(b""),
    "60 edited": lambda agent: other_code(agent / "tfdeploy/agent/serve/server.py"),
    "60 missing": lambda agent: (agent / "tfdeploy/agent/serve/server.py").unlink(),
    "60 a module of a library's name": lambda agent: other_code(agent / "json.py"),
    "60 a package of a library's name": lambda agent: ((agent / "json").mkdir(), other_code(agent / "json/__init__.py")),
    "60 bytecode without a source": lambda agent: (agent / "json.pyc").write_bytes(b"\0" * 20),
    "60 nothing in it": lambda agent: [shutil.rmtree(agent), agent.mkdir(0o700)],
}


@pytest.mark.parametrize("damage", [pytest.param(how, id=name, marks=pytest.mark.fault(name)) for name, how in DAMAGES.items()])
@pytest.mark.usefixtures("seen")
def test_a_damaged_agent_comes_again_by_itself(workdir: Path, damage: Any) -> None:
    damage(workdir / AGENT)
    assert arrive(workdir) == ("need", {})
    assert arrive(workdir) == ("have", {})
    assert [path.name for path in (workdir / ".agent").iterdir()] == [agent_name()]


def test_all_of_the_agent_is_read_once_and_then_only_what_changed(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from a look that was as young as the files: they may change again and show the same time."""
    at, name = str(workdir), agent_name()
    wait_for(lambda: arrive(workdir) == ("have", {}) and is_as_seen(at, name), WITHIN_S, "the agent to be known")
    with monkeypatch.context() as patched:
        patched.setattr(ownership, "_agent_content", lambda *_: pytest.fail("all of it was read again"))
        assert ownership.has_agent(at, name)
    (workdir / AGENT / SEEN).write_text("nonsense")
    assert not is_as_seen(at, name)
    assert arrive(workdir) == ("have", {}) and is_as_seen(at, name)


BLOCK_BYTES = 4096


@pytest.mark.fault("44 a full disk cuts the agent's bytecode short, and has room again")
def test_bytecode_that_a_full_disk_cut_short_is_written_again(workdir: Path) -> None:
    """Python before 3.13 leaves it so. What fits into one block is written as a whole or not at all."""
    lengths = {each: each.stat().st_size for each in bytecode(workdir).parent.glob("*.pyc")}
    long = [each for each, length in lengths.items() if length > BLOCK_BYTES]
    for each in long:
        os.truncate(each, BLOCK_BYTES)
    assert long and bytecode(workdir) not in long
    assert arrive(workdir) == ("have", {})
    assert [each.name for each in long if each.exists() and each.stat().st_size < lengths[each]] == []


def test_the_bytecode_of_every_room_is_looked_at(workdir: Path) -> None:
    packages = {
        each.parent.relative_to(workdir / AGENT / "tfdeploy/agent") for each in (workdir / AGENT).glob("tfdeploy/agent/**/*.py")
    }
    assert {f"{Path('tfdeploy/agent') / each}/__pycache__" for each in packages} <= set(ownership._CACHES)


def test_bytecode_that_others_write_at_this_moment_is_no_damage(workdir: Path) -> None:
    """As every host of a shared workdir does at its first start. They write beside the place, and rename."""
    folder, over = bytecode(workdir).parent, threading.Event()
    (workdir / AGENT / SEEN).unlink(missing_ok=True)

    def write(number: int) -> None:
        while not over.is_set():
            fresh = folder / f"some.pyc.{number}"
            fresh.write_bytes(b"")
            fresh.rename(folder / "some.pyc")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for each in writers:
        each.start()
    try:
        assert all(ownership.has_agent(str(workdir), agent_name()) for _ in range(60))
    finally:
        over.set()
        for each in writers:
            each.join()


def test_a_file_that_was_replaced_between_two_looks_has_no_second_name(tmp_path: Path) -> None:
    path = tmp_path / "some.pyc"
    with path.open("wb") as file:
        path.unlink()
        about = os.fstat(file.fileno())
    assert about.st_nlink == 0
    ownership._check_entry(about, str(path), str(tmp_path), stat.S_IFREG)


@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [(0o777, 0, "may be written to by others (mode 0777)"), (0o775, 0, "mode 0775"), (0o1777, STRANGER, "belongs to")],
)
def test_a_folder_above_it_in_which_others_may_replace_it(tmp_path: Path, mode: int, owner: int, words: str) -> None:
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    os.chown(above, owner, owner)
    above.chmod(mode)
    for workdir in (above / "tfdeploy", above / "mine/tfdeploy"):
        kind, said = arrive(workdir)
        assert kind == "fail" and words in said["what"] and str(workdir) in said["what"] and said["next"]
        assert not workdir.exists()


def test_links_above_it_are_followed_with_the_same_eyes(tmp_path: Path) -> None:
    (tmp_path / "real/home").mkdir(parents=True)
    (tmp_path / "home").symlink_to("real/../real/home")
    assert arrive(tmp_path / "home/tfdeploy")[0] == "need"
    assert arrive(tmp_path / "home/tfdeploy")[0] == "have"
    (tmp_path / "real").chmod(0o777)
    assert arrive(tmp_path / "home/tfdeploy")[0] == "fail"
    (tmp_path / "real").chmod(0o755)
    os.lchown(tmp_path / "home", STRANGER, STRANGER)
    assert "belongs to" in arrive(tmp_path / "home/tfdeploy")[1]["what"]


def test_a_link_of_the_users_own_is_answered_with_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(0o700)
    (tmp_path / "tfdeploy").symlink_to("disk")
    assert arrive(tmp_path / "tfdeploy")[1]["next"] == f"write `workdir: {tmp_path}/disk` in the inventory"


def test_a_home_whose_owners_the_file_server_changes_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "tfdeploy").mkdir(0o700)
    for path in (tmp_path, tmp_path / "tfdeploy"):
        os.chown(path, 65534, 65534)
    kind, said = arrive(tmp_path / "tfdeploy", env={"HOME": str(tmp_path)})
    assert kind == "fail" and said["code"] == "foreign"
    os.chown(tmp_path, 0, 0)
    said = arrive(tmp_path / "tfdeploy", env={"HOME": str(tmp_path)})[1]
    assert "its file server changes owners" in said["what"] and "local disk" in said["next"]


def test_an_ordinary_users_workdir_beside_others(installed: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no interpreter that another account may run")
    place = installed.parent / "theirs"
    how = {"user": STRANGER, "group": STRANGER, "extra_groups": [], "cwd": "/", "env": {"HOME": "/nonexistent"}}
    assert arrive(place, python, **how) == ("need", {})
    assert arrive(place, python, **how) == ("have", {})
    assert arrive(place)[1]["code"] == "foreign"  # root's own is another
    os.chown(place, STRANGER + 1, STRANGER + 1)
    assert "belongs to" in arrive(place, python, **how)[1]["what"]


OF_A_RUN = ["job", *(f"job/{name}" for name in ("releases", "data", "keep", "locks", "runs")), "job/runs/r1", "job/runs/r1/hosts"]
OF_A_RUN += ["job/runs/r1/hosts/n1", "job/runs/r1/hosts/n1/tasks"]
OF_A_TASK = [*OF_A_RUN, "job/runs/r1/hosts/n1/tasks/worker-0"]


@pytest.fixture
def run(workdir: Path, trap: Path) -> Path:
    """A run whose part tells the minder and the supervisor to spring the trap."""
    for path in OF_A_TASK:
        (workdir / path).mkdir(0o700, exist_ok=True)
    folder = Path(layout.host_dir(str(workdir), "job", "r1", "n1"))
    task = {"task": "worker:0", "role": "worker", "index": 0, "argv": ["touch", str(trap)], "env": {}}
    part = {"run": "r1", "job": "job", "mode": "async", "host": "n1", "plan_digest": "d", "release": "r", "tasks": [task]}
    (folder / "part.json").write_text(json.dumps(part))
    (workdir / "job/runs/r1/cwd").mkdir()
    return folder


@pytest.mark.fault(f"{FOREIGN}: a part of a job")
@pytest.mark.parametrize("path", OF_A_RUN)
@pytest.mark.parametrize("how", ["another user's", "for all to write", "a link"])
def test_a_foreign_part_of_a_job_is_refused_to_serve_and_minder(
    run: Path, workdir: Path, trap: Path, serve: Any, path: str, how: str
) -> None:
    OF_FOLDERS[how](workdir / path, trap)
    before = listing(workdir / "job")
    client = serve(at=workdir)
    error = client.call("run.status", job="job", run="r1")["error"]
    assert error["code"] == "refused" and str(workdir / path) in error["what"] and error["next"]
    if path.startswith("job/runs") or path == "job":
        done = start(workdir, "minder", str(run))
        assert done.returncode == 3 and str(workdir / path) in done.stderr
    assert listing(workdir / "job") == before and not trap.exists()


@pytest.mark.fault(f"{FOREIGN}: a task's folder")
@pytest.mark.parametrize("path", [path for path in OF_A_TASK if path.startswith("job/runs")])
def test_a_foreign_folder_of_a_run_is_refused_to_supervise(run: Path, workdir: Path, trap: Path, path: str) -> None:
    (workdir / path).chmod(0o770)
    done = start(workdir, "supervise", str(run), "worker:0", "1")
    assert done.returncode == 3 and f"chmod go-w {workdir / path}" in done.stderr and not trap.exists()
    (workdir / path).chmod(0o700)
    (run / "state.json").write_text(json.dumps({"run": "r1", "job": "job", "host": "n1", "phase": "ended"}))
    assert start(workdir, "supervise", str(run), "worker:0", "1").returncode == 0


def start(workdir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-E", str(workdir / AGENT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def test_nothing_is_started_from_an_agent_that_was_changed(workdir: Path) -> None:
    ownership.check_agent(str(workdir / AGENT))
    (workdir / FILES["source"]).write_text("")
    with pytest.raises(ownership.NotOurs, match="not the agent that was put there"):
        ownership.check_agent(str(workdir / AGENT))
