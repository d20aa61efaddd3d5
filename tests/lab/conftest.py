"""Provide fixtures for the tests that run on the hosts of a lab.

The labs and the command line come from tests/conftest.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.lab.event_pipe import EventPipe
from tfdeploy.lab import Lab

SSH_S = 20


@pytest.fixture
def ssh() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return ssh(lab, host, command), which runs OpenSSH with only the settings of the inventory.

    The client runs in the operator's network.
    """

    def call(
        where: Lab, host: str, command: str, *, timeout_s: int = 15
    ) -> subprocess.CompletedProcess[str]:
        row = next(each for each in where.status() if each["host"] == host)
        settings = dict(
            line.strip().split(": ", 1)
            for line in where.inventory.read_text().splitlines()
            if line.startswith("  ")
        )
        argv = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}"]
        argv += [
            "-o",
            f"UserKnownHostsFile={where.known_hosts}",
            "-o",
            "StrictHostKeyChecking=yes",
        ]
        argv += [
            "-i",
            settings["identity_file"],
            "-p",
            str(row["port"]),
            f"{settings['user']}@{row['address']}",
            command,
        ]
        return subprocess.run(
            where.operator_command(argv), capture_output=True, text=True, timeout=SSH_S, check=False
        )

    return call


@pytest.fixture(scope="session")
def shaky(new_lab: Callable[..., Lab]) -> Lab:
    """Return a lab of four hosts for tests that break and repair SSH."""
    return new_lab("isolated", 4)


@pytest.fixture(scope="module")
def hurt(new_lab: Callable[..., Lab]) -> Lab:
    """Return a lab of three hosts for a module whose tests break hosts."""
    return new_lab("isolated", 3)


@pytest.fixture
def new_pipe(tmp_path: Path) -> Iterator[Callable[[], EventPipe]]:
    """Return new_pipe(), which makes a pipe that can pause a launch at one event.

    The fixture closes the pipes at the end.
    """
    made: list[EventPipe] = []

    def make() -> EventPipe:
        made.append(EventPipe(tmp_path / f"events-{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pipe(new_pipe: Callable[[], EventPipe]) -> EventPipe:
    return new_pipe()
