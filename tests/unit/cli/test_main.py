"""Test what all verbs (subcommands) have in common: exit codes, errors without a traceback, and
that no verb imports a large library too early.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdeploy.cli.flags import move_verb_first
from tfdeploy.cli.main import main


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use an empty state folder, so that no lab and no run is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tfdeploy ")
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    assert "launch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["lanch"], "did you mean `tfdeploy launch`"),
        (["launch", "--mod", "async"], "did you mean --mode"),
        (["launch", "--mdoe", "async"], "did you mean --mode"),
        (["launch", "--dry"], "did you mean --dry-run"),
        (["check", "--mode", "async"], "next: `tfdeploy check --help`"),
        (["launch", "--set", "steps=50"], "`tfdeploy launch -- python train.py --steps=50`"),
        (["stop", "--noww"], "next: `tfdeploy stop --help`"),
        (["foo"], "next: `tfdeploy --help`"),
        (["logs", "-n", "many"], "not a number"),
        (["stop", "--grace", "soon"], "not a duration"),
        (["launch", "--mode", "parallel"], "one of: async, sync, mirrored"),
        (["launch", "--mode", "syn"], "did you mean sync?"),
        (["exec", "uptime", "-s"], "next: `tfdeploy exec -- uptime -s`"),
        (["lab", "upp"], "did you mean up?"),
        *[
            ([verb], f"next: did you mean `tfdeploy {meant}`?")
            for meant, verbs in {
                "launch": "run up start deploy train submit",
                "status": "ps top",
                "runs": "list ls",
                "stop": "kill down cancel",
                "status --watch": "attach watch dashboard",
                "clean --everything": "uninstall purge",
                "check": "doctor ping",
                "inventory": "hosts",
                "sync": "push rsync cp",
                "--help": "help",
                "logs": "tail",
                "ssh": "shell",
                "setup": "install",
                "fetch": "dl pull download",
            }.items()
            for verb in verbs.split()
        ],
        # The suggestion keeps the arguments that the suggested verb takes.
        (["kill", "digits-1", "--now"], "`tfdeploy stop digits-1 --now`?"),
        (["tail", "-f", "--task", "worker:0"], "`tfdeploy logs -f --task worker:0`?"),
        (["run", "--mode", "async", "--", "python", "a b.py"], "--mode async -- python 'a b.py'`?"),
        (["run", "python", "a.py", "--lr=1"], "`tfdeploy launch -- python a.py --lr=1`?"),
        (["lanch", "--dry-run"], "`tfdeploy launch --dry-run`?"),
        (["cp", "a", "b"], "`tfdeploy sync`?"),
        (["ps", "aux"], "`tfdeploy status aux`?"),
        (["run", "--nonsense"], "`tfdeploy launch`?"),
        (["attach", "--help"], "`tfdeploy status --watch --help`?"),
        (["help", "launch"], "`tfdeploy launch --help`?"),
        (["help", "ps"], "`tfdeploy status --help`?"),
        (["help", "nonsense"], "`tfdeploy --help`?"),
        (
            ["launch", "--steps", "9"],
            "`command:` of the job file, or into the command after --: `tfdeploy launch -- python "
            "train.py --steps 9`",
        ),
        (
            ["launch", "--steps", "9", "--", "python", "a b.py"],
            "`tfdeploy launch -- python 'a b.py' --steps 9`",
        ),
        (["lab", "up", "0"], "next: `tfdeploy lab up 3`"),
    ],
)
def test_invalid_command_line_exits_with_2_and_suggests_command(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["--version"], ["docs"]])
def test_full_disk_gives_one_line_and_exit_code_1(args: list[str], unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "tfdeploy", *args]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "this machine: the output: No space left on device; free some space"
    ]


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "2>&-"])
def test_closed_standard_streams_are_no_error(closed: str) -> None:
    code = "from tfdeploy.cli.main import program; program()"
    script = f'"$0" -c "{code}" docs {closed}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("args", [["launch"], ["status"], ["init", "--yes"], ["lab", "status"]])
def test_removed_current_folder_is_named(args: list[str], tmp_path: Path) -> None:
    """The folder is removed while a shell is in it, for example because git replaces it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); "
        "from tfdeploy.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    if args[0] != "lab":
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            "error: the current folder no longer exists",
            "  next: cd to a folder that exists",
        ]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tfdeploy.cli.main import main\ntry: main(['launch', '--help'])\nexcept "
        "SystemExit: pass\n"
    )
    code += (
        "print(sorted({'paramiko', 'fabric', 'rich', 'yaml', 'msgspec', 'tensorflow', "
        "'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "same_as"),
    [
        ("-i X launch --mode async", "launch -i X --mode async"),
        ("--json --inventory=X -v status run-1", "status --json --inventory=X -v run-1"),
        ("-iX --parallel 4 exec -- ls -i", "exec -iX --parallel 4 -- ls -i"),
        ("launch -i X", "launch -i X"),
        ("--mode async launch", "--mode async launch"),
        ("--help", "--help"),
        ("-i", "-i"),
        ("-v", "-v"),
    ],
)
def test_common_flags_may_precede_verb(args: str, same_as: str) -> None:
    assert move_verb_first(args.split()) == same_as.split()


@pytest.mark.parametrize(
    "args", [["-i", "none.yaml", "inventory"], ["inventory", "-i", "none.yaml"]]
)
def test_flag_before_verb_has_effect(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["-i", "none.yaml"], ["--mode", "async", "launch"]])
def test_flags_without_verb_are_refused(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    assert f"there is no verb before {args[0]}" in capsys.readouterr().err


CONSENTS = (
    "force",
    "fresh",
    "overwrite",
    "yes",
    "ignore-keep",
    "now",
    "everything",
    "renew",
    "allow-public",
    "allow-open",
)


@pytest.mark.parametrize("consent", CONSENTS)
def test_no_suggestion_is_flag_that_overrides_refusal(
    consent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slips = {consent[:index] + consent[index + 1 :] for index in range(len(consent))} | {
        consent + "s",
        consent[:-1] + "x",
    }
    for verb in ("launch", "sync", "stop", "clean", "fetch", "report", "compare", "trust", "check"):
        for slip in slips - {consent, "", "deep", "wait", "no"}:
            assert main([verb, f"--{slip}"]) == 2
            assert f"did you mean --{consent}?" not in capsys.readouterr().err, (verb, slip)
