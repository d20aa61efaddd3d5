"""Finds the command by which a shell script starts the program.

Many programs are started by a script that sets variables first. Such a script is read only if it
starts Python once, from a folder that is known, and does not choose another Python.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tfdeploy.planning.source.entry_point import PYTHON, SHELLS, Command

# Signs that a script chooses another Python, such as `conda activate`. `source conf/env.sh` is no
# such sign: a sourced script that belongs to the code is assumed to set only variables.
_CHOOSES_PYTHON = re.compile(
    r"\b(activate|conda|mamba|micromamba|module|pyenv|PATH=)|"
    r"^\s*(source|\.)\s(?! *[\w.][\w./-]*\.sh\b)",
    re.MULTILINE,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PREFIXES = ("exec", "time", "nohup")
_ALL_ARGUMENTS = ("$@", "$*", "${@}", "${*}")
_OWN_FOLDER = re.compile(
    r"\$\(dirname (-- )?(\$0|\$\{BASH_SOURCE(\[0\])?\}|\$BASH_SOURCE)\)|\$\{0%/\*\}"
)


class ScriptLine(NamedTuple):
    """The command in a shell script that starts the program.

    `words`: the words of the command. `cwd`: the folder in which the command starts.
    """

    script: str
    number: int
    words: Command
    cwd: str

    @property
    def where(self) -> str:
        return f"{self.script}:{self.number}"

    @property
    def passes_arguments(self) -> bool:
        """Return whether the program gets all arguments of the script."""
        return any(word in _ALL_ARGUMENTS for word in self.words)

    @property
    def uses_variables(self) -> bool:
        return any("$" in word for word in self.words)

    def with_arguments(self, starting: Command) -> Command:
        """Return `words` with the script's arguments in place of "$@".

        `starting`: the command that starts the script, such as `bash train.sh --steps=5`.
        """
        given = starting[(_script_index(starting) or 0) + 1 :]
        return tuple(
            each for word in self.words for each in (given if word in _ALL_ARGUMENTS else (word,))
        )


def shell_script(command: Command, cwd: str) -> str | None:
    """Return the script's path in a command such as `bash train.sh` or `./train.sh`.

    Returns None for other commands.
    """
    at = _script_index(command)
    return None if at is None else posixpath.normpath(posixpath.join(cwd, command[at]))


def find_script_line(script: str, text: str, cwd: str) -> ScriptLine | None:
    """Return the script's command that starts Python, or None if it is not known for certain.

    `text`: the script's content. `cwd`: the folder in which the script starts.
    """
    if _CHOOSES_PYTHON.search(text):
        return None
    starting = []
    for number, words in _commands(text):
        if words[0] == "cd":
            if words[1:] and not _OWN_FOLDER.match(" ".join(words[1:])):
                return None
            cwd = posixpath.dirname(script)
        elif words[0] in PYTHON:
            starting.append(ScriptLine(script, number, words, cwd))
        elif any("python" in word for word in words):
            return None
    return starting[0] if len(starting) == 1 else None


def _commands(text: str) -> Iterator[tuple[int, Command]]:
    """Yield the commands of a script as (line number, words).

    Words before the command itself, such as `exec` or `VAR=1`, are left out.
    """
    waiting = ""
    for number, line in enumerate(text.splitlines(), 1):
        waiting += line
        if waiting.endswith("\\"):
            waiting = waiting[:-1]
            continue
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quoted text that ends on a later line
            words = ["?", *waiting.split()]
        waiting = ""
        while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0])):
            del words[0]
        if words:
            yield number, tuple(words)


def _script_index(command: Command) -> int | None:
    if command and posixpath.basename(command[0]) in SHELLS:
        return 1 if len(command) > 1 and not command[1].startswith("-") else None
    in_code = bool(command) and "/" in command[0] and not command[0].startswith(("/", "~"))
    return 0 if in_code and command[0].endswith(".sh") else None
