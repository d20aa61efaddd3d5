"""Test that the help of each verb (subcommand) ends with examples, exit codes and environment
variables, and that all of these are correct.
"""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tfdeploy import errors
from tfdeploy.cli.flags import add_verb
from tfdeploy.cli.main import main
from tfdeploy.cli.options import Parser
from tfdeploy.cli.verb_help import EXAMPLES, examples_of, exit_codes_of
from tfdeploy.cli.verb_table import VERBS
from tfdeploy.errors import EXIT_CODES, TfdeployError

COMMANDS = Path(__file__).parents[3] / "docs/commands.md"
PROGRAMS = [f"tfdeploy {verb}" for verb in VERBS]
PROGRAMS += [
    f"tfdeploy lab {verb}" for verb in import_module("tfdeploy.cli.arguments.lab").Flags.verbs
]


@pytest.mark.parametrize("prog", PROGRAMS)
def test_help_has_two_examples_and_exit_codes_and_variables(
    prog: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        main([*prog.split()[1:], "--help"])
    text = capsys.readouterr().out
    end = text[text.index("\nexamples:") :]
    assert len(examples_of(prog)) >= 2
    assert end.count("\n  tfdeploy ") in (2, 4)
    assert {int(code) for code in re.findall(r"(?:codes:|;)\s+(\d+)\s", end)} == set(
        exit_codes_of(prog.split()[1])
    )
    assert "TFDEPLOY_" in end and max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("line", [line for line in EXAMPLES.splitlines() if line])
def test_example_is_valid_command_line(line: str) -> None:
    command, text = line.split("  ", 1)
    words = shlex.split(command)
    dashes = words.index("--") if "--" in words else len(words)
    assert text.strip() and words[0] == "tfdeploy"
    parser = Parser(prog="tfdeploy")
    flags = import_module(f"tfdeploy.cli.arguments.{words[1]}").Flags
    add_verb(parser.add_subparsers(parser_class=Parser), words[1], flags)
    parsed = parser.parse_args(words[1:dashes])
    assert parsed.read(parsed, words[dashes + 1 :] or None)


@pytest.mark.parametrize("prog", PROGRAMS)
def test_help_imports_few_modules(prog: str) -> None:
    """Test that the help does not import certain slow modules. The help should take at most 60 ms
    of CPU time more than an empty interpreter, and these modules would take much of that.
    """
    code = f"""
import sys
from tfdeploy.cli.main import main
try:
    main({[*prog.split()[1:], "--help"]!r})
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    slow = {"shutil", "subprocess", "yaml", "msgspec", "rich", "paramiko", "tfdeploy.model.job"}
    assert slow & set(process.stderr.split()) == set()


def test_every_exit_code_has_meaning() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, TfdeployError)}
    assert codes | {0, 70} == set(EXIT_CODES)


def test_commands_page_has_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", COMMANDS.read_text("utf-8"), re.M)
    assert {int(code): text for code, text in rows} == EXIT_CODES
