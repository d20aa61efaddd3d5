"""Read OpenSSH's configuration of a host with `ssh -G`.

This module does not interpret the configuration files. It only searches them for relevant keywords.
If it finds one, it runs `ssh -G`, one process for each host.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tfdeploy.errors import ConfigError
from tfdeploy.machine.ownership import find_tamper_risk

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
# These keywords change no value that tfdeploy uses.
_HARMLESS_WORDS = """
    host sendenv setenv hashknownhosts gssapiauthentication gssapidelegatecredentials visualhostkey
    loglevel addkeystoagent serveraliveinterval serveralivecountmax tcpkeepalive compression
    forwardx11 forwardx11trusted forwardagent controlmaster controlpath controlpersist
    updatehostkeys escapechar requesttty stricthostkeychecking connecttimeout batchmode
    passwordauthentication checkhostip ciphers macs kexalgorithms
"""
# tfdeploy uses the values of these keywords.
_USED_WORDS = """
    hostname port user identityfile identitiesonly userknownhostsfile globalknownhostsfile proxyjump
    proxycommand hostkeyalias hashknownhosts identityagent certificatefile pkcs11provider
    revokedhostkeys
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
_USED = frozenset(_USED_WORDS.split())

SshSettings = dict[str, tuple[str, ...]]


def user_config() -> str:
    """Return the path of the user's ssh configuration."""
    return os.path.expanduser("~/.ssh/config")


@lru_cache(maxsize=4096)
def read_settings(address: str, port: int | None, user: str | None) -> SshSettings:
    """Return {keyword in lower case: its values}. Each value is one line in the output of `ssh -G`.

    The result is empty if no configuration file has a relevant keyword. Raises ConfigError with
    ssh's message if the configuration is invalid.
    """
    return (
        parse_ssh_settings(_run_ssh(address, port, user))
        if _has_relevant_keyword(user_config(), SYSTEM_CONFIG)
        else {}
    )


@lru_cache(maxsize=4096)
def hashes_names(address: str) -> bool:
    """True if ssh would hash the name of this host in known_hosts. Raises ConfigError."""
    if shutil.which("ssh") is None:
        return False
    return "hashknownhosts yes" in _run_ssh(address, None, None).splitlines()


def _run_ssh(address: str, port: int | None, user: str | None) -> str:
    """Run `ssh -G` and return its output.

    Raises ConfigError if ssh fails, or does not answer within 20 s.
    """
    command = ["ssh", "-G", *_config_option()]
    command += ["-p", str(port)] if port is not None else []
    command += ["-l", user] if user is not None else []
    try:
        completed = subprocess.run(
            [*command, "--", address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"`ssh -G {address}` did not answer: {error}", where=user_config()
        ) from error
    if completed.returncode != 0:
        complaint = completed.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(
            complaint[0] if complaint else f"`ssh -G` ended with {completed.returncode}",
            where=user_config(),
            next="correct that line of ssh's configuration",
        )
    return completed.stdout.decode(errors="surrogateescape")


def parse_ssh_settings(text: str) -> SshSettings:
    """Parse the output of `ssh -G`, and return only the keywords that tfdeploy uses."""
    answers: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key.lower() in _USED and value:
            answers.setdefault(key.lower(), []).append(value)
    return {key: tuple(values) for key, values in answers.items()}


def config_file_with(keyword: str) -> str:
    """Return the configuration file that has `keyword`, itself or in a file that it includes."""
    for path in (user_config(), SYSTEM_CONFIG):
        if any(words and words[0].lower() == keyword for words in _read_lines(path)):
            return path
    return user_config()


def list_files_in_config(keyword: str) -> list[str]:
    """Return the existing files that the ssh configuration names with `keyword`, for any host.

    `keyword` is in lower case. A token such as `%h` matches any text. ssh is not started for this.
    """
    paths: list[str] = []
    for path in (user_config(), SYSTEM_CONFIG):
        for words in _read_lines(path):
            if words is not None and words[0].lower() == keyword:
                paths += _expand_globs(" ".join(words[1:]))
    return paths


def _expand_globs(text: str) -> list[str]:
    """Return the existing files that match the paths in `text`. The paths may be quoted.

    The whole text is also tried as one path, because a path may contain blanks.
    """
    try:
        paths = shlex.split(text)
    except ValueError:
        paths = text.split()
    matching = []
    for path in dict.fromkeys([*paths, text.strip('"')]):
        path = os.path.expandvars(path).replace("%d", "~")
        pattern = glob.escape(os.path.abspath(os.path.expanduser(path)))
        matching += glob.glob(
            re.sub("%(.)", lambda token: "%" if token[1] == "%" else "*", pattern)
        )
    return matching


def expand_home_like_ssh(paths: Iterable[str]) -> str:
    """Return the paths, joined by blanks, with `~` replaced by the home folder in the passwd entry.

    ssh replaces `~` in this way. tfdeploy itself uses $HOME, which may be another folder.
    """
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = ""
    return " ".join(path.replace("~", home, 1) for path in paths)


def _config_option() -> list[str]:
    """Return ["-F", FILE] if ssh would not find the user's configuration by itself, else [].

    Raises ConfigError if another user can change the file.
    """
    config = user_config()
    if config == expand_home_like_ssh(["~/.ssh/config"]) or not os.path.exists(config):
        return []
    # ssh checks who may write its default configuration file, but does not check a file that -F
    # names.
    exposure = find_tamper_risk(Path(config))
    if exposure is not None:
        raise ConfigError(
            f"{exposure.what}, and {config} decides what runs under your account",
            where=config,
            next=f"`{exposure.fix}`",
        )
    return ["-F", config]


@lru_cache(maxsize=8)
def _has_relevant_keyword(*paths: str) -> bool:
    """True if ssh is installed and a configuration file has a relevant keyword."""
    return shutil.which("ssh") is not None and any(
        words is None or words[0].lower() not in _HARMLESS
        for path in paths
        for words in _read_lines(path)
    )


def _read_lines(path: str, depth: int = 0) -> Iterator[list[str] | None]:
    """Yield the words of each line of the file, and of the files that it includes.

    Yields None for an `Include` that is nested more than 16 levels deep.
    """
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.strip().replace("=", " ", 1).split()
        if not words or words[0].startswith("#"):
            continue
        if words[0].lower() != "include":
            yield words
        elif depth >= 16:
            yield None
        else:
            for included_pattern in words[1:]:
                pattern = os.path.expanduser(included_pattern.strip('"'))
                for included in glob.glob(os.path.join(os.path.dirname(path), pattern)):
                    yield from _read_lines(included, depth + 1)
