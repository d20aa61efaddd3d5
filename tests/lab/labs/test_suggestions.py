"""Test on a lab that the commands which tfdeploy suggests in its messages can be run.

The test runs only commands that change nothing: one for each combination of a verb and its flags.
"""

from __future__ import annotations

import shlex

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.suggestions import RUN, commands, messages
from tfdeploy.lab import Lab

# The test may run every suggested command of these verbs, whatever its flags are. Of other verbs,
# it runs only the combinations of a verb and its flags that HARMLESS contains.
READING = ("check", "docs", "inventory", "logs", "runs", "status", "sync")
# These files have help texts that name verbs and flags in prose. The commands in these texts are
# not run.
HELP_FILES = ("cli/topics.py", "cli/verb_help.py")
HARMLESS = (("exec", "--limit"), ("exec", "--json"), ("launch", "--dry-run"), ("trust", "--limit"))


def flags_of(words: list[str]) -> tuple[str, ...]:
    own = words[: words.index("--")] if "--" in words else words
    return (words[0], *sorted(word for word in own if word.startswith("-")))


def suggested() -> dict[tuple[str, ...], list[str]]:
    """Return {(verb, its flags): one harmless command that a message suggests}."""
    table: dict[tuple[str, ...], list[str]] = {}
    for message in (each for each in messages() if each.file not in HELP_FILES):
        for command in commands(message):
            words = shlex.split(command.replace("%s", "n3").replace("CMD", "true"))
            is_harmless = words[0] in READING or flags_of(words) in HARMLESS
            if is_harmless and "{file}" not in words:
                table.setdefault(flags_of(words), words)
    return table


SUGGESTED = suggested()


@pytest.fixture(scope="module")
def ended(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Tfdeploy:
    """Return an operator whose run has ended."""
    operator = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("ended"))
    write_job(operator, "digits", "talk.py", "--lines=1")
    operator.run("launch", "--wait", "--name", RUN, exit_code=0)
    return operator


def test_the_table_has_the_verbs_that_only_read() -> None:
    assert {verb for verb, *_ in SUGGESTED} == {*READING, *(verb for verb, *_ in HARMLESS)}


@pytest.mark.parametrize("words", SUGGESTED.values(), ids=" ".join)
def test_a_suggested_command_runs(ended: Tfdeploy, words: list[str]) -> None:
    words = [word.replace("n[1-4]", "n[1-3]") for word in words]
    if words[0] in ("logs", "status"):
        words = [RUN if word == "n3" else word for word in words]
    if words[0] == "exec":
        words = [*words[: words.index("--")], "--", "true"]
    done = ended.run(*words)
    assert done.returncode in ((0, 1) if words[0] == "check" else (0,)), done.stderr
