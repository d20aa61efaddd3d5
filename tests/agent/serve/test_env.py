"""Test Python environments on a host. An environment is made without network, only once, and never
in part. It is not removed while a job uses it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.files.wheels import make_wheel
from support.waiting import wait_for
from tfdeploy.agent import layout
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic, installed
from tfdeploy.agent.ownership import UntrustedPath
from tfdeploy.agent.serve import probe
from tfdeploy.agent.serve.env import environments, verbs
from tfdeploy.agent.serve.env import install as env_install
from tfdeploy.model.answers.failures import format_advice

FILES = {"requirements.txt": "-r more/base.txt\n", "more/base.txt": "alpha==1.0\n"}


class Host:
    """A host of the tests: its workdir, the verbs that a test can call there, and the lines that
    the verbs have sent.
    """

    def __init__(self, workdir: Path) -> None:
        self.context = SessionContext(str(workdir), "")
        self.root = Path(layout.envs_dir(str(workdir)))
        self.said: list[dict[str, Any]] = []
        self.cancelled = threading.Event()
        wheels = Path(layout.data_dir(str(workdir), "job", "setup-wheels"))
        make_wheel(wheels, "alpha", "1.0", requires=("beta",))
        make_wheel(wheels, "beta", "2.1")

    def call(self, verb: str, digest: str = "d1", job: str = "job", **args: Any) -> Any:
        given = {
            "job": job,
            "digest": digest,
            "python": sys.executable,
            "files": FILES,
            "main": "requirements.txt",
        }
        given.update({"wheels": "setup-wheels"}, **args)
        return verbs.VERBS[verb](
            Call(self.context, given, b"", lambda item, _: self.said.append(item), self.cancelled)
        )

    def lines(self) -> list[str]:
        return [item["line"] for item in self.said if "line" in item]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(installed, "UV_PATHS", ("no-uv-here",))
    make_wheel(tmp_path / "elsewhere", "beta", "7.7")
    (tmp_path / "pip.conf").write_text(f"[install]\nfind-links = {tmp_path}/elsewhere\n")
    # The user's own settings of pip must not offer other packages.
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
    yield Host(tmp_path / "work")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def is_gone(pid: str) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1]
    except (FileNotFoundError, ProcessLookupError):
        return True


def fake(host: Host, name: str, *, used_by: str = "", whole: bool = True) -> Path:
    """Make a fake environment, which has a folder but no packages."""
    folder = host.root / name
    (folder / "bin").mkdir(parents=True)
    if whole:
        atomic.write_json(str(folder) + ".json", {})
    if used_by:
        environments.mark_used(str(folder), used_by)
    return folder


def test_it_is_made_offline_from_wheels_and_then_it_is_there(host: Host) -> None:
    assert host.call("env.state")["ready"] is False
    made = host.call("env.make")
    assert (
        made["ready"]
        and made["by"] == "pip"
        and made["packages"] == {"alpha": "1.0", "beta": "2.1"}
    )
    python = environments.interpreter_path(made["folder"])
    done = subprocess.run(
        [python, "-c", "import alpha, beta; print(alpha.VERSION)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1.0\n"
    assert any("alpha" in line for line in host.lines())
    assert not os.path.exists(made["folder"] + "/tmp") and os.stat(host.root).st_mode & 0o077 == 0

    before = os.stat(made["folder"]).st_mtime_ns
    host.said.clear()
    assert host.call("env.state") == made and host.call("env.make") == made
    assert host.said == [] and os.stat(made["folder"]).st_mtime_ns == before
    folder = environments.find_complete_environment(
        host.context.workdir, "d1", made["python_version"], sys.executable
    )
    assert folder == made["folder"]
    assert (
        environments.find_complete_environment(
            host.context.workdir, "d2", made["python_version"], sys.executable
        )
        is None
    )

    os.unlink(python)
    # The environment was complete, but now its interpreter does not start.
    assert host.call("env.state")["ready"] is False
    assert host.call("env.make")["ready"]


def test_a_host_that_comes_later_gets_what_the_others_have(host: Host) -> None:
    make_wheel(Path(layout.data_dir(host.context.workdir, "job", "setup-wheels")), "beta", "3.0")
    wanted = {"requirements.txt": "beta>=1\n"}
    assert host.call("env.make", "d1", files=wanted, pins={"beta": "2.1"})["packages"] == {
        "beta": "2.1"
    }
    assert host.call("env.make", "d2", files=wanted)["packages"] == {"beta": "3.0"}
    # The pin asks for beta 9.9. This version does not exist, so the pin is ignored.
    assert host.call("env.make", "d3", files=wanted, pins={"beta": "9.9"})["packages"] == {
        "beta": "3.0"
    }
    with pytest.raises(VerbError) as caught:
        host.call("env.make", "d4", files={"requirements.txt": "gamma\n"}, pins={"beta": "9.9"})
    assert "constraint" not in caught.value.what and "gamma" in caught.value.what


def test_what_cannot_be_met_leaves_its_own_lines_and_nothing_else(host: Host) -> None:
    with pytest.raises(VerbError, match="gamma") as caught:
        host.call("env.make", files={"requirements.txt": "gamma>=3\n"})
    assert caught.value.code == "setup_failed" and caught.value.what.startswith(
        "python -m pip: exit code 1\n"
    )
    assert any("gamma" in line for line in caught.value.details["lines"])
    assert [path.name for path in host.root.iterdir() if path.suffix != ".lock"] == []


def test_without_a_package_index_it_says_how_to_bring_wheels(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS")
    # No server listens on port 9.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(VerbError) as caught:
        host.call("env.make", wheels=None, files={"requirements.txt": "gamma\n"})
    assert caught.value.advice == "download_wheels", caught.value.what
    assert "pip download -d wheels" in str(format_advice("n1", caught.value.advice, {}))


@pytest.mark.parametrize(
    "line",
    [
        "dns error: failed to lookup address information: Temporary failure in name resolution",
        "  Caused by: tcp connect error: Connection refused (os error 111)",
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...: "
        "Failed to establish a new "
        "connection: [Errno 101] Network is unreachable')': /simple/gamma/",
        "  Because gamma was not found in the provided package locations and you require gamma>=3",
        "ERROR: No matching distribution found for gamma",
    ],
)
def test_lines_of_pip_and_uv_that_name_a_missing_source(line: str) -> None:
    offline = "distribution" in line or "package locations" in line
    assert env_install.lacks_package_source([line], is_offline=offline)
    assert not env_install.lacks_package_source(["error: command 'gcc' failed"], is_offline=offline)
    assert env_install.lacks_package_source([line], is_offline=False) != offline


@pytest.mark.parametrize(
    "text, code, words",
    [
        (
            'case "$*" in *find_spec*) echo \'=tfdeploy-able={"venv": false, "ensurepip": false, '
            '"pip": [23, 0]}\';; '
         '*) exec PYTHON "$@";; esac', "no_venv", "no module venv"),
        (
            'case "$*" in *find_spec*) echo \'=tfdeploy-able={"venv": true, "ensurepip": false, '
            '"pip": [20, 0]}\';; '
         '*) exec PYTHON "$@";; esac', "no_venv", "no module ensurepip"),
        ("echo =tfdeploy-version=2.7.18", "old_python", "is Python 2.7.18"),
        ("echo broken loader >&2; exit 127", "no_python", "broken loader"),
    ],
)  # fmt: skip
def test_an_interpreter_that_will_not_do(
    host: Host, tmp_path: Path, text: str, code: str, words: str
) -> None:
    python = script(tmp_path / "bin" / "python", text.replace("PYTHON", sys.executable))
    with pytest.raises(VerbError, match=words) as caught:
        host.call("env.make", python=str(python))
    assert caught.value.code == code and format_advice(
        "n1", caught.value.advice, caught.value.details
    )
    assert not [
        path for path in (host.root.iterdir() if host.root.exists() else ()) if path.is_dir()
    ]


def test_an_interpreter_that_is_not_there(host: Host) -> None:
    with pytest.raises(VerbError, match="no program /nowhere/python"):
        host.call("env.state", python="/nowhere/python")


def test_with_an_old_pip_the_environments_own_installs(host: Host, tmp_path: Path) -> None:
    """If the interpreter's pip is too old, the pip of the new environment installs the packages.

    If the new environment has no pip, the error says so. The test makes environments without
    ensurepip, because ensurepip takes seconds.
    """
    able = '=tfdeploy-able={"venv": true, "ensurepip": true, "pip": [20, 0]}'
    text = (
        f"case \"$*\" in *find_spec*) echo '{able}';; '-m venv '*) exec {sys.executable} -m venv "
        '--without-pip "$3";; '
    )
    python = script(tmp_path / "bin" / "python", text + f'*) exec {sys.executable} "$@";; esac')
    with pytest.raises(VerbError, match="No module named pip") as caught:
        host.call("env.make", python=str(python))
    assert "/.envs/" in caught.value.what


def test_uv_does_it_where_there_is_one(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv makes the environment if the host has uv. The test checks the arguments of uv."""
    log = tmp_path / "said"
    text = (
        f'echo "$@" >> {log}; if [ "$1" = venv ]; then exec {sys.executable} -m venv '
        '--without-pip "$4"; fi'
    )
    monkeypatch.setattr(installed, "UV_PATHS", (str(script(tmp_path / "bin" / "uv", text)),))
    made = host.call("env.make")
    first, second = log.read_text().splitlines()
    assert made["by"] == "uv" and first == f"venv --python {sys.executable} {made['folder']}"
    assert second.startswith(
        f"pip install --python {made['folder']}/bin/python -r "
        f"{made['folder']}/requirements/requirements.txt"
    )
    assert "--no-index --find-links" in second


def test_the_real_uv_makes_the_same_environment_from_wheels(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "UV_PATHS", (str(Path(sys.executable).with_name("uv")),))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    made = host.call("env.make")
    assert (made["by"], made["ready"]) == ("uv", True)
    code = "import alpha, sys; print(alpha.VERSION, sys.prefix)"
    output = subprocess.run(
        [f"{made['folder']}/bin/python", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == ["1.0", os.path.realpath(made["folder"])]
    with pytest.raises(VerbError, match="gamma") as caught:
        host.call("env.make", digest="d2", files={"requirements.txt": "gamma>=3\n"})
    assert caught.value.code == "setup_failed" and "uv" in caught.value.what


def test_two_at_once_make_one(host: Host) -> None:
    results: list[Any] = []
    threads = [
        threading.Thread(daemon=True, target=lambda: results.append(host.call("env.make")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 2 and results[0] == results[1] and results[0]["ready"]
    assert [item for item in host.said if "waiting" in item]
    assert sum("Successfully installed" in line for line in host.lines()) == 1


def test_one_that_is_given_up_leaves_no_process_and_no_half(host: Host, tmp_path: Path) -> None:
    """The first call is cancelled while the installer and its child process hang. A second call
    then makes the environment from the beginning.
    """
    pids = tmp_path / "pids"
    hangs = (
        f'case "$*" in "-m venv"*) sleep 600 & echo $! $$ > {pids}; echo hanging; wait;; *) exec '
        f'{sys.executable} "$@";; esac'
    )
    python = script(tmp_path / "bin" / "python", hangs)

    def given_up(item: dict[str, Any], _: bytes) -> None:
        if item.get("line") == "hanging":
            host.cancelled.set()

    args = {
        "job": "job",
        "digest": "d1",
        "python": str(python),
        "files": FILES,
        "main": "requirements.txt",
    }
    with pytest.raises(VerbError, match="the setup was cancelled"):
        verbs.make_environment(Call(host.context, args, b"", given_up, host.cancelled))
    assert host.context.closing_functions == {}
    assert not any(path.is_dir() for path in host.root.iterdir())
    for pid in pids.read_text().split():
        wait_for(lambda pid=pid: is_gone(pid), 20, f"{pid} is gone")

    script(python, f'exec {sys.executable} "$@"')
    host.cancelled.clear()
    assert host.call("env.make", python=str(python))["ready"]


def test_a_half_that_was_left_is_made_anew(host: Host) -> None:
    name = os.path.basename(host.call("env.state")["folder"])
    partial = fake(host, name, whole=False)
    (partial / "bin" / "python").symlink_to(sys.executable)
    assert host.call("env.state")["ready"] is False
    assert host.call("env.make")["packages"] == {"alpha": "1.0", "beta": "2.1"}


def test_the_last_few_of_each_job_stay_and_those_of_live_runs(host: Host) -> None:
    names = [f"{number:016x}" for number in range(7)]
    for age, name in enumerate(names[:5]):
        fake(host, name, used_by="job")
        mark = next((host.root / (name + ".used")).iterdir())
        os.utime(mark, (1000 - age, 1000 - age))
    fake(host, names[5], used_by="other")
    fake(host, names[6], whole=False)
    busy = fake(host, "f" * 16, whole=False)
    run = Path(layout.host_dir(host.context.workdir, "job", "r1", "n1"))
    run.mkdir(parents=True)
    atomic.write_json(
        str(run / "part.json"), {"tasks": [{"path_prepend": [str(host.root / names[4] / "bin")]}]}
    )
    atomic.write_json(str(run / "state.json"), {"phase": "committed"})
    with busy.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        environments.remove_old_environments(host.context.workdir, names[0], 3)
    left = sorted(path.name for path in host.root.iterdir() if path.is_dir() and path.suffix == "")
    assert left == sorted([*names[:3], names[4], names[5], "f" * 16])
    atomic.write_json(str(run / "state.json"), {"phase": "ended"})
    environments.remove_old_environments(host.context.workdir, names[0], 3)
    assert sorted(
        path.name for path in host.root.iterdir() if path.is_dir() and path.suffix == ""
    ) == sorted([*names[:3], names[5]])


@pytest.mark.parametrize(
    "files, main", [({"../x": ""}, "../x"), ({"/etc/x": ""}, "/etc/x"), ({"a": ""}, "b")]
)
def test_files_stay_inside(host: Host, files: dict[str, str], main: str) -> None:
    with pytest.raises(VerbError) as caught:
        host.call("env.make", files=files, main=main)
    assert caught.value.code == "bad_argument"


def test_the_probe_takes_the_environments_interpreter_once_it_is_whole(host: Host) -> None:
    def facts(setup: str | None) -> dict[str, Any]:
        return probe.probe_host(
            Call(
                host.context,
                {"python": sys.executable, "ports": [1, 0], "gpus": "none", "setup": setup},
            )
        )

    assert facts("d1")["environment"] is None and facts("d1")["python"] == sys.executable
    wheels = Path(layout.data_dir(host.context.workdir, "job", "setup-wheels"))
    make_wheel(wheels, "tensorflow", "2.99.0")
    made = host.call("env.make", files={"requirements.txt": "tensorflow"})
    host_facts = facts("d1")
    assert (
        host_facts["environment"] == made["folder"]
        and host_facts["python"] == made["folder"] + "/bin/python"
    )
    assert (
        host_facts["tensorflow"] == "2.99.0"
        and host_facts["python_version"] == made["python_version"]
    )
    assert facts(None)["environment"] is None and facts("d2")["python"] == sys.executable
    os.unlink(host_facts["python"])
    os.symlink("/bin/false", host_facts["python"])
    assert facts("d1")["environment"] is None and facts("d1")["python"] == sys.executable


@pytest.mark.fault("60 an environment that others may write to")
def test_an_environment_that_others_may_write_to_is_not_run(host: Host, tmp_path: Path) -> None:
    trapped = tmp_path / "trapped"
    name = environments.environment_name(
        "d1", ".".join(map(str, sys.version_info[:3])), sys.executable
    )
    script(host.root / name / "bin/python", f"touch {trapped}\n")
    (host.root / f"{name}.json").write_text("{}")
    (host.root / name).chmod(0o777)
    for verb in ("env.state", "env.make"):
        with pytest.raises(UntrustedPath, match="may be written to by others"):
            host.call(verb)
    assert not trapped.exists()


@pytest.mark.parametrize(
    "pins",
    [
        {"a": "1\n--find-links /x"},
        {"a\n-r x": "1"},
        {"-e": "1"},
        {"a": 1},
        {"a": "1;x"},
        ["a"],
        {"a": "*"},
    ],
)
def test_pins_are_names_and_versions(host: Host, pins: Any) -> None:
    with pytest.raises(VerbError) as caught:
        host.call("env.make", files={"requirements.txt": ""}, pins=pins)
    assert caught.value.code == "bad_argument"


def test_what_is_no_package_and_version_is_not_told(tmp_path: Path) -> None:
    folder = tmp_path / "e/lib/python3/site-packages"
    for name in (
        "numpy-1.26.4",
        "~umpy-1.0",
        "Typing_Extensions-4.9.0",
        "x-1\n--find-links",
        "tf-2.21.0.dev20260101+cuda12",
        "pip-23",
    ):
        (folder / f"{name}.dist-info").mkdir(parents=True)
    packages = env_install.installed_packages(str(tmp_path / "e"))
    assert packages == {
        "numpy": "1.26.4",
        "tf": "2.21.0.dev20260101+cuda12",
        "typing-extensions": "4.9.0",
    }
