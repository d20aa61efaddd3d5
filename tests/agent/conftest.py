"""Provide the agent as it is installed on a host, clusters of hosts with the agent, and sessions
with the agent of one host.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import tfdeploy
from support.agent.client import Client
from support.agent.cluster import Cluster, NewClient, NewCluster
from support.agent.interpreter import AGENT_PYTHON
from support.agent.second_account import arrive
from tfdeploy.agent.run import folder as run_folder

PACKAGE = Path(tfdeploy.__file__).parent


@pytest.fixture(scope="session")
def agent_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of an installed agent."""
    folder = tmp_path_factory.mktemp("agent")
    shutil.copytree(
        PACKAGE / "agent",
        folder / "tfdeploy" / "agent",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(
        PACKAGE / "runtime",
        folder / "tfdeploy" / "runtime",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("__init__.py", "errors.py"):
        shutil.copy(PACKAGE / name, folder / "tfdeploy" / name)
    (folder / "__main__.py").write_text(
        "import sys\n\nfrom tfdeploy.agent.main import main\n\nsys.exit(main(sys.argv[1:]))\n"
    )
    return str(folder)


@pytest.fixture
def hosts(tmp_path: Path, agent_dir: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewCluster]:
    """Return a function that makes a cluster of the named hosts, as in hosts("n1", "n2").

    At the end, the fixture ends everything that the clusters have started.
    """
    monkeypatch.setattr(run_folder, "AGENT_DIR", agent_dir)
    monkeypatch.setattr(run_folder, "sys", SimpleNamespace(executable=AGENT_PYTHON))
    made: list[Cluster] = []

    def make(*names: str) -> Cluster:
        made.append(Cluster(tmp_path, agent_dir, list(names)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.clean()


@pytest.fixture
def serve(tmp_path: Path, agent_dir: str) -> Iterator[NewClient]:
    """Return a function `serve`. Each call opens a new session with the agent of one host.

    serve(CODE) runs a line of Python before the agent starts. serve(at=PATH) uses PATH as the
    workdir. serve(clone=NAME) opens a session with a simulated clone of this machine, which needs
    root. The clone has the same hostname, machine id and workdir.
    """
    made: list[Client] = []

    def start(before: str = "", at: Path = tmp_path, clone: str = "", **env: str) -> Client:
        command = [AGENT_PYTHON, "-S", "-E", agent_dir, "serve", "--workdir", str(at)]
        if clone:
            command = [
                "unshare",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                *command,
                "--host",
                clone,
            ]
        if before:
            line = (
                "import sys; sys.path.insert(0, %r); from tfdeploy.agent import frames, main; "
                "%s; main.main(sys.argv[1:])"
            )
            command[3:4] = ["-c", line % (agent_dir, before)]
        made.append(Client(command, dict(os.environ, **env) if env else None))
        return made[-1]

    yield start
    for client in made:
        client.clean()


def open_to_all() -> str | None:
    """Return a value of `dir` for tempfile's functions, so that every account can reach the files.

    It is /var/tmp if the default folder is private (see TMPDIR), else None, which selects the
    default folder.
    """
    usual = Path(tempfile.gettempdir())
    return (
        None if all(each.stat().st_mode & 0o001 for each in (usual, *usual.parents)) else "/var/tmp"
    )


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """Yield a workdir with a newly installed agent, in a folder that every user may write to."""
    with tempfile.TemporaryDirectory(dir=open_to_all()) as made:
        scratch = Path(made) / "scratch"
        scratch.mkdir()
        scratch.chmod(0o1777)
        Path(made).chmod(0o755)
        assert arrive(scratch / "tfdeploy") == ("need", {})
        assert arrive(scratch / "tfdeploy") == ("have", {})
        yield scratch / "tfdeploy"


@pytest.fixture
def workdir(installed: Path) -> Iterator[Path]:
    """Yield a copy of the workdir `installed`, so that a test may damage the copy."""
    copy = installed.parent / "copy"
    shutil.copytree(installed, copy)
    copy.chmod(0o700)
    yield copy
    for left in installed.parent.glob("copy*"):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


@pytest.fixture
def trap(installed: Path) -> Path:
    """Return the path of a file that exists only if forbidden code has run."""
    place = installed.parent.parent / "trapped"
    place.unlink(missing_ok=True)
    return place
