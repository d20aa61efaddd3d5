"""Test hostile texts in every field of the inventory and the job file, and on the command line.

Each text is either refused or passed on unchanged. Real shells, ssh and rsync run the commands that
the package `transport` builds from the texts. They run in an empty folder, which must stay empty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from support.fuzz import reading
from support.fuzz.injection import CANARY, VALUES, WORDS, braced, quoted
from support.fuzz.seeds import Kind
from tfdeploy.cli.run_names import check_run_name
from tfdeploy.config import find_inventory, find_job, load_inventory, load_job, reference
from tfdeploy.config.foreign.host_list import is_host_list
from tfdeploy.config.inventory import InventoryFile
from tfdeploy.errors import Refused, UsageError
from tfdeploy.lab.folder import lab_folder
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.store.runs import RunStore
from tfdeploy.text.allowed import is_run_id
from tfdeploy.transport.agent import bootstrap
from tfdeploy.transport.quoting import command_line
from tfdeploy.transport.ssh.argv import quote_for_rsync, ssh_argv
from tfdeploy.transport.ssh.target import Target, resolve

AS_YAML = {value: quoted(value) for value in VALUES}
SHELLS = [
    shell
    for shell in ("sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish")
    if shutil.which(shell)
]
# Fields whose values are paths on this machine, in which any printable character is allowed.
LOCAL_PATH_FIELDS = ("identity_file", "known_hosts")
STRUCTURED = {"data", "keep", "command", "env", "secrets", "metrics", "roles"}
INVENTORY = [
    *(f"hosts: {{n1: {{{key}: @@}}}}" for key, _ in reference.leaf_keys(reference.HOST)),
    *(
        "defaults: {user: @@}\nhosts: {n1: }",
        "defaults: {@@: x}\nhosts: {n1: }",
        "defaults: @@\nhosts: {n1: }",
    ),
    "hosts: {@@: {address: 192.0.2.1}}",
    "hosts: {n1: @@}",
    "hosts: {n1: {@@: x}}",
    "hosts: {n1: }\nroles: {@@: [n1]}",
    "hosts: {n1: }\nroles: {ps: [@@]}",
    "@@: x",
]
ONE_KEY = [key for key, _ in reference.leaf_keys(reference.JOB) if key not in STRUCTURED]
JOB = [
    *(key.replace(".", ": {") + ": @@" + "}" * key.count(".") for key in ONE_KEY),
    *(
        "data: {@@: ./x}",
        "data: {x: @@}",
        "keep: [@@]",
        "command: [@@, x]",
        "env: {@@: x}",
        "secrets: [@@]",
    ),
    *(
        "roles: {@@: {count: 1}}",
        "metrics: {@@: '(x)'}",
        "metrics: {x: @@}",
        "restart: {backoff: [@@, 1s]}",
    ),
    *(
        "gpus: @@",
        "@@: x",
        "command: @@",
        "env: @@",
        "secrets: {@@: env}",
        "secrets: {X: @@}",
        "secrets: {X: {file: @@}}",
    ),
    *(
        "secrets: {X: {command: [@@]}}",
        "secrets: {X: {command: [pass, @@]}}",
        "secrets: {X: {environment: @@}}",
    ),
    *(
        "data: {x: {path: @@}}",
        "data: {x: {path: ./x, split: @@}}",
        "data: {x: {from: @@}}",
        "protect: @@",
    ),
]


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make an empty folder the current folder, and check afterwards that it is still empty."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    # The shell fish writes files when it starts, and tfdeploy stores names for completion. These
    # files go elsewhere.
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.delenv("TFDEPLOY_INVENTORY", raising=False)
    yield folder
    assert list(folder.iterdir()) == []
    assert not list(tmp_path.rglob(f"*{CANARY}*"))


@pytest.fixture
def memory() -> Iterator[Path]:
    with reading.quick_folder() as folder:
        yield folder


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in (
        (*value, *value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, tuple | list)
        else ()
    ):
        yield from texts(part)


def tame(text: str) -> bool:
    return text.isprintable() and not text.startswith("-")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            "inventory",
            marks=pytest.mark.fault(
                "4 271 texts made to break out, in every field of an inventory"
            ),
        ),
        pytest.param(
            "job",
            marks=pytest.mark.fault("4 271 texts made to break out, in every field of a job file"),
        ),
    ],
)
def test_every_value_in_every_field_is_refused_or_unchanged(kind: Kind, memory: Path) -> None:
    path, accepted = memory / f"{kind}.yaml", 0
    for field in INVENTORY if kind == "inventory" else JOB:
        name = "" if field.startswith("name") else "name: j\n"
        for value in VALUES:
            path.write_text(
                (name if kind == "job" else "") + field.replace("@@", AS_YAML[value]) + "\n"
            )
            reading_result = reading.read_or_refuse(kind, path)
            accepted += reading_result is not None
            if isinstance(reading_result, InventoryFile):
                _check_host(reading_result.inventory.hosts[0], field, value)
                assert all(map(tame, texts(reading_result.inventory.roles)))
            elif reading_result is not None:
                _check_job(reading_result, field, value)
    assert accepted > 300


def _check_host(host: Host, field: str, value: str) -> None:
    for key, text in asdict(host).items():
        assert all(map(tame, texts(text))), (field, value)
        if isinstance(text, str) and key not in (*LOCAL_PATH_FIELDS, "source"):
            assert not set(text.removeprefix("~/")) & set("$`'\";|&<>(){}*?!#~\\"), (field, value)
            assert " " not in text or key in ("workdir", "python")


def _check_job(job: Job, field: str, value: str) -> None:
    fields = asdict(job)
    free = [fields.pop(key, None) for key in ("command", "metrics", "secret_sources")]
    env = fields.pop("env")
    assert all(map(tame, texts(fields))) and all(map(tame, env)), (field, value)
    assert tame(job.name) and "/" not in job.name
    if field.startswith("metrics: {x"):
        assert value in texts(free)
    if field.startswith("data: {x"):
        path = job.data["x"].path
        assert path == value or value in path or os.path.isabs(path)


def test_command_words_and_variables_arrive_unchanged(tmp_path: Path) -> None:
    words = ", ".join(quoted(braced(value)) for value in WORDS)
    env = ", ".join(f"V{number}: {quoted(braced(value))}" for number, value in enumerate(WORDS))
    path = tmp_path / "job.yaml"
    path.write_text(f"name: j\nmode: local\ncommand: [python, {words}]\nenv: {{{env}}}\n")
    job = load_job(path, environ={})
    assert job.command == ("python", *map(braced, WORDS))
    assert tuple(job.env.values()) == tuple(map(braced, WORDS))


@pytest.mark.parametrize("shell", SHELLS)
def test_words_arrive_unchanged_through_login_shell(shell: str) -> None:
    done = subprocess.run(
        [shell, "-c", command_line(("printf", "%s\\0", *WORDS))], capture_output=True, check=True
    )
    assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in WORDS]
    for word in WORDS:
        assert (
            len(command_line(("printf", word)).splitlines()) == 1
            or "\u2028" in word
            or "\u2029" in word
            or "\x85" in word
        )


def test_interpreter_with_unusual_name_runs_nothing_else() -> None:
    allowed = 0
    for value in (*WORDS, *(f"~/{word}" for word in WORDS)):
        try:
            line = bootstrap.command(value)
        except Refused:
            continue
        allowed += 1
        # Each command starts a process, which is slow, so only every fourth command is run.
        if allowed % 4 == 0:
            subprocess.run(
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env={"PATH": "/nowhere"},
            )
    assert allowed > 20


RECORDER = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done > "$RECORD"
exit 1
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a program `ssh` that records its arguments and fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(RECORDER)
    (folder / "ssh").chmod(0o700)
    yield folder


def _recorded(recorder: Path, words: list[str], tmp_path: Path) -> list[str]:
    record = tmp_path / "record"
    record.unlink(missing_ok=True)
    env = {"PATH": f"{recorder}:{os.environ['PATH']}", "RECORD": str(record), "HOME": str(tmp_path)}
    subprocess.run(words, env=env, capture_output=True, check=False)
    return record.read_bytes().decode().split("\0")[:-1]


def _targets(tmp_path: Path) -> Iterator[tuple[str, Target]]:
    """Yield pairs (text, target): one for each text that is accepted as a path on this machine. The
    target has this path and a jump host.
    """
    path = tmp_path / "inventory.yaml"
    for value in VALUES:
        paths = (
            f"identity_file: {quoted(braced(value))}, known_hosts: {quoted('/k/' + braced(value))}"
        )
        path.write_text(
            f"hosts: {{n1: {{address: 192.0.2.1, user: ml, jump: ops@bastion, {paths}}}}}\n"
        )
        try:
            yield value, resolve(load_inventory(path).hosts[0])
        except UsageError:
            continue


def test_ssh_and_rsync_read_key_paths_unchanged(tmp_path: Path, recorder: Path) -> None:
    tried = 0
    for number, (value, target) in enumerate(_targets(tmp_path)):
        words = ssh_argv(target)
        if number % 6 == 0:
            rsync = ["rsync", "-e", quote_for_rsync(words), "--", "target:/x/", f"{tmp_path}/"]
            assert tuple(_recorded(recorder, rsync, tmp_path)[: len(words) - 1]) == words[1:], value
            proxy = (
                next(word for word in words if word.startswith("ProxyCommand="))
                .partition("=")[2]
                .replace("%%", "%")
            )
            assert target.jump is not None
            inner = ssh_argv(target.jump, forwarding=True)
            assert (
                tuple(_recorded(recorder, ["sh", "-c", proxy], tmp_path)[: len(inner) - 1])
                == inner[1:]
            ), value
        ssh_output = subprocess.run(
            [*words, "-G", "--", "n1"], capture_output=True, text=True, check=False
        )
        assert ssh_output.returncode == 0, (value, ssh_output.stderr)
        # ssh -G replaces %-tokens in some of these values only.
        by_name = {
            *ssh_output.stdout.splitlines(),
            *ssh_output.stdout.replace("%%", "%").splitlines(),
        }
        assert f"identityfile {target.identity_files[0]}" in by_name, (value, ssh_output.stdout)
        assert f"userknownhostsfile {' '.join(target.user_known_hosts)}" in by_name, value
        tried += 1
    assert tried > 100


def test_hostile_words_on_command_line_are_refused_or_match_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "i.yaml"
    inventory.write_text(
        "hosts: {n1: {address: 192.0.2.1}, n2: {address: 192.0.2.2}}\nroles: {ps: [n1], worker: "
        "[n2]}\n"
    )
    for number, value in enumerate(word for word in WORDS if word != "--help"):
        words = (
            ["--limit", value],
            ["--exclude", value],
            [f"--limit={value}"],
            [f"-j{value}"],
            ["-i", value],
            [value],
        )[number % 6]
        reading.check_command_line(
            ["inventory", *(["-i", str(inventory)] if "-i" not in words else []), *words]
        )


def test_job_and_inventory_paths_are_found_or_refused(tmp_path: Path) -> None:
    for value in VALUES:
        for find in (
            partial(find_job, value, tmp_path),
            partial(find_inventory, value, {}, None, tmp_path),
        ):
            try:
                assert find().path.exists() or is_host_list(value)
            except UsageError as error:
                assert error.next


def test_hostile_names_of_runs_and_labs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = RunStore(tmp_path / "state")
    for value in VALUES:
        assert store.plan(value) is None
        for check in (check_run_name, lambda name: lab_folder(name).name):
            try:
                assert is_run_id(check(value)) and check(value) == value, value
            except UsageError as error:
                assert error.next
