"""Test the scripts that `tfdeploy completion` prints, by completing commands in real shells."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from support.needs import require
from support.pseudo_terminal import Terminal
from support.waiting import wait_for
from tfdeploy.cli.command import make_parser
from tfdeploy.cli.completion.script import make_script
from tfdeploy.cli.main import main
from tfdeploy.store.names import store_completion_names

MANY = 2_000
TIMEOUT_S = 60
# No two names begin with the same two characters, so two characters and Tab complete a name.
HARD_RUNS = (
    "a1$(touch executed)",
    "b1;touch executed",
    "c1 with spaces",
    "d1'single",
    'e1"double',
    "f1`touch executed`",
    "g1\\n",
    "h1é漢",
    "i1*?[a-z]{x,y}",
    "j1#~&|<>()",
    "k1!!",
    "l1$HOME",
)
NOT_OFFERED = ("m1\x1b]0;title\x07", "m2\x9b31m", "--yes")
INTERACTIVE = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ". {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -D -u && . {script}"),
}
RECORDER = """#!/bin/sh
for each; do printf '%s\\0' "$each"; done > "$HOME/argv.new"
mv "$HOME/argv.new" "$HOME/argv"
"""
# (what is typed, where \t is Tab; the arguments that tfdeploy then gets)
TYPED = (
    ("inv\t", ["inventory"]),
    ("launch --mod\tas\t", ["launch", "--mode", "async"]),
    ("launch --mode=as\t", ["launch", "--mode=async"]),
    (
        "-i some.yaml lab up 3 --ki\tiso\t",
        ["-i", "some.yaml", "lab", "up", "3", "--kind", "isolated"],
    ),
    ("ssh gpu-1\t", ["ssh", "gpu-17"]),
    ("logs --host n\t", ["logs", "--host", "n2"]),
    ("logs --task ch\t", ["logs", "--task", "chief:0"]),
    ("logs --task=chief:\t", ["logs", "--task=chief:0"]),
    ("exec --limit n2,gpu-1\t", ["exec", "--limit", "n2,gpu-17"]),
    ("exec --exclude=p\t", ["exec", "--exclude=ps"]),
    ("runs --state failed,lo\t", ["runs", "--state", "failed,lost"]),
    ("launch --events fil\t", ["launch", "--events", "file.txt"]),
    ("exec -- cat fil\t", ["exec", "--", "cat", "file.txt"]),
    # zsh removes a slash at the end of a completed word.
    ("fetch --to fol\tnew", ["fetch", "--to", "folder/new"]),
    *((f"status {name[:2]}\t", ["status", name]) for name in HARD_RUNS),
    *((f"status '{name[:2]}\t", ["status", name]) for name in HARD_RUNS if "'" not in name),
    *(
        (f'status "{name[:2]}\t', ["status", name])
        for name in HARD_RUNS
        if not set('"$`\\!') & set(name)
    ),
    ("status m\t", ["status", "m"]),
)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which commands of tfdeploy have run, so that names are remembered for
    completion. The home folder and the state folder are elsewhere.
    """
    home, folder = tmp_path / "home", tmp_path / "work place"
    (folder / "folder").mkdir(parents=True)
    (folder / "file.txt").touch()
    home.mkdir()
    for name, value in {"HOME": home, "XDG_STATE_HOME": tmp_path / "state"}.items():
        monkeypatch.setenv(name, str(value))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.chdir(folder)
    root = tmp_path / "state" / "tfdeploy"
    store_completion_names(root, folder, "hosts", ["gpu-17", "n2"])
    store_completion_names(root, folder, "roles", ["ps", "worker"])
    store_completion_names(root, folder, "tasks", ["worker:0", "worker:1", "chief:0"])
    store_completion_names(root, folder, "runs", HARD_RUNS)
    with names_file(tmp_path, "runs").open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in NOT_OFFERED)
    return folder


def names_file(tmp_path: Path, kind: str) -> Path:
    return next((tmp_path / "state" / "tfdeploy" / "completion").glob(f"{kind}%*"))


def write_script(shell: str, tmp_path: Path) -> Path:
    path = tmp_path / f"script.{shell}"
    path.write_text(make_script(shell), encoding="utf-8")
    return path


def run_shell(shell: str, text: str, *args: str, path: str = "/nowhere") -> list[str]:
    """Run `text` in the shell, and return the lines that it prints. By default PATH has no
    programs, because completion must start none.
    """
    program = next(
        str(file) for folder in os.get_exec_path() if (file := Path(folder) / shell).exists()
    )
    flags = ["--norc"] if shell == "bash" else ["--no-config"]
    done = subprocess.run(
        [program, *flags, "-c", text, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=TIMEOUT_S,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()


def offers_of_bash(lines: Sequence[str], tmp_path: Path) -> list[list[str]]:
    # The test calls the completion function outside of a completion. bash's `compopt` would fail
    # there, so an empty function replaces it.
    text = """. "$0"; compopt() { :; }; COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
    for COMP_LINE; do
        COMP_POINT=${#COMP_LINE}; _tfdeploy
        for each in "${COMPREPLY[@]}"; do printf '%s\\t' "$each"; done; echo
    done"""
    shown = run_shell("bash", text, str(write_script("bash", tmp_path)), *lines)
    return [line.split("\t")[:-1] for line in shown]


def offers_of_fish(lines: Sequence[str], tmp_path: Path, path: str = "/nowhere") -> list[list[str]]:
    text = """source $argv[1]; set -e argv[1]
    for line in $argv; complete -C $line | string replace -r '\\t.*' ''; echo end of line; end"""
    script = str(write_script("fish", tmp_path))
    shown = "\n".join(run_shell("fish", text, script, *lines, path=path))
    return [offer.strip("\n").splitlines() for offer in shown.split("end of line")][:-1]


OFFERS = {"bash": offers_of_bash, "fish": offers_of_fish}
each_shell = pytest.mark.parametrize(
    "shell", ["bash", pytest.param("fish", marks=pytest.mark.needs("fish"))]
)


@pytest.fixture
def typist(tmp_path: Path, work: Path) -> Iterator[Callable[[str], Terminal]]:
    """Return a function that starts an interactive shell with the completion script. In this shell,
    `tfdeploy` is a program that only records its arguments.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tfdeploy").write_text(RECORDER)
    (programs / "tfdeploy").chmod(0o755)
    opened: list[Terminal] = []

    def open_shell(shell: str) -> Terminal:
        require(*({shell} - {"bash"}))
        command, loading = INTERACTIVE[shell]
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PS1": "ready> "}
        terminal = Terminal(command, {**env, "INPUTRC": "/dev/null"}, cwd=work, columns=200)
        opened.append(terminal)
        terminal.until("ready> ")
        script = write_script(shell, tmp_path)
        terminal.type(f"{loading.format(script=script)} && PS1=$'\\x3e\\x3e'\n".encode())
        terminal.until(">>")
        return terminal

    yield open_shell
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize("shell", INTERACTIVE)
def test_program_gets_what_tab_inserts(
    shell: str, typist: Callable[[str], Terminal], tmp_path: Path, work: Path
) -> None:
    terminal = typist(shell)
    argv = tmp_path / "home" / "argv"
    for keys, args in TYPED:
        terminal.type(f"tfdeploy {keys}\n".encode())
        wait_for(argv.exists, TIMEOUT_S, f"{keys!r} was run: {terminal.output[-500:]!r}")
        assert argv.read_text().split("\0")[:-1] == args, keys
        argv.unlink()
        terminal.until(">>")
    assert not list(work.rglob("executed"))


@pytest.mark.needs("fish")
def test_fish_offers_same_words_as_other_shells(tmp_path: Path) -> None:
    wanted = {keys: args[-1:] for keys, args in TYPED if keys.index("\t") == len(keys) - 1}
    wanted["status m\t"] = []
    lines = [f"tfdeploy {keys[:-1]}" for keys in wanted]
    # fish itself runs `ls` to complete names of files, so `ls` must be in PATH.
    offers = offers_of_fish(lines, tmp_path, os.environ["PATH"])
    assert offers == list(wanted.values())


@pytest.mark.needs("fish")
def test_fish_escapes_inserted_words(tmp_path: Path, work: Path) -> None:
    text = """source $argv[1]
    for each in (complete --escape -C 'tfdeploy status '); eval printf '%s\\\\\\\\n' $each; end"""
    assert set(run_shell("fish", text, str(write_script("fish", tmp_path)))) == set(HARD_RUNS)
    assert not list(work.rglob("executed"))


def parsers(
    parser: argparse.ArgumentParser, command: str
) -> Iterator[tuple[str, list[argparse.Action]]]:
    yield command, parser._actions
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, verb_parser in action.choices.items():
                yield from parsers(verb_parser, f"{command} {verb}")


@each_shell
def test_every_verb_flag_and_choice_is_offered(shell: str, tmp_path: Path) -> None:
    expected: dict[str, set[str]] = {}
    for command, actions in parsers(make_parser(), "tfdeploy"):
        shown = [action for action in actions if action.help != argparse.SUPPRESS]
        flags = [flag for action in shown for flag in action.option_strings]
        expected[f"{command} -"] = set(flags)
        for action in shown:
            if action.choices and action.option_strings:
                for flag in action.option_strings:
                    expected[f"{command} {flag} "] = set(map(str, action.choices))
            elif action.choices:
                expected[f"{command} "] = set(map(str, action.choices))
    offered = dict(zip(expected, map(set, OFFERS[shell](list(expected), tmp_path)), strict=True))
    # Flags that all verbs have may also stand before the verb.
    assert expected["tfdeploy -"] < offered.pop("tfdeploy -")
    del expected["tfdeploy -"]
    assert len(expected) > 60 and offered == expected


@each_shell
def test_hosts_are_offered_by_prefix(shell: str, tmp_path: Path, work: Path) -> None:
    names = [f"node{number:04}" for number in range(MANY)]
    store_completion_names(tmp_path / "state" / "tfdeploy", work, "hosts", names)
    all_hosts, some = OFFERS[shell](["tfdeploy ssh ", "tfdeploy ssh node19"], tmp_path)
    assert sorted(all_hosts) == names
    assert sorted(some) == names[1900:]


@each_shell
@pytest.mark.parametrize("content", [b"", b"\0\xff\xfe\n\x1b[2J\n", b"n" * 100_000 + b"\r\n", None])
def test_damaged_file_of_names_is_ignored(
    shell: str, content: bytes | None, tmp_path: Path
) -> None:
    path = names_file(tmp_path, "hosts")
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert OFFERS[shell](["tfdeploy ssh "], tmp_path) == [[]]


@each_shell
def test_names_of_parent_folder_are_offered(
    shell: str, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work / "folder")
    assert sorted(OFFERS[shell](["tfdeploy ssh "], tmp_path)[0]) == ["gpu-17", "n2"]
    monkeypatch.chdir(tmp_path)
    assert OFFERS[shell](["tfdeploy ssh "], tmp_path) == [[]]


def test_shell_is_guessed_and_unknown_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completion"]) == 0
    assert capsys.readouterr().out == make_script("fish")
    assert main(["completion", "ksh"]) == 2
    monkeypatch.setenv("SHELL", "/bin/ksh")
    assert main(["completion"]) == 2
    assert capsys.readouterr().err.count("bash, zsh, fish") == 2
