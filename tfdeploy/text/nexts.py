"""Merge the hints of many hosts about what to type next into few lines.

Commands that differ only in the host's name become one command. All functions are pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from tfdeploy.text.names import fold_names, group_equal

_NAME = "\0"  # stands for the host's name while the hints of several hosts are compared
# Matches the part of an ssh command that names the host: "-p 2222 ml@192.0.2.11".
_PLACE = re.compile(r"(?:-p \d+ )?[^\s`]+@[^\s`;]+")
_BOUND = re.compile(
    r"(--(?:limit|exclude) |\bas root on )([A-Za-z0-9_][A-Za-z0-9_.-]*)(?![\w.,\[-])"
)
# {word that a user may type: tfdeploy's word with the same meaning}. The two words are spelled so
# differently that difflib would not suggest one for the other.
_MEANT = {
    **dict.fromkeys(("torch", "pytorch", "ddp", "torchrun", "horovod", "jax"), "plain"),
    **dict.fromkeys(("mwms", "multiworker", "allreduce"), "mirrored"),
    **dict.fromkeys(("ps", "parameter_server"), "async"),
    **dict.fromkeys(("pss", "parameterserverstrategy"), "coordinator"),
    **dict.fromkeys(("cmd", "entrypoint", "script"), "command"),
    **dict.fromkeys(("checkpoints", "outputs"), "keep"),
    **dict.fromkeys(("datasets", "volumes"), "data"),
    "environment": "env",
}
CONVERT_INVENTORY = (
    "`mkdir -p inventories && tfdeploy inventory --output yaml > inventories/converted.yaml`, "
    "write the setting in this new file, and use -i inventories/converted.yaml"
)
# The maximum number of lines that `merge_next_commands` returns. If it would need more, the last
# line only names the remaining hosts.
MOST = 5


def merge_next_commands(nexts: Mapping[str, str | None]) -> list[str]:
    """Return lines that say what to type next, at most MOST, in order of appearance. `nexts`:
    {host: what to type next for this host, or None}.

    Hosts with the same text share one line, which has all their names. If texts differ only in the
    host's address, the line has the first text, followed by "do the same for" the other hosts.
    """
    texts = {host: replace_host_name(text, host) for host, text in nexts.items() if text}
    groups = [
        (group_equal({name: texts[name] for name in alike}), alike)
        for alike, _ in group_equal({host: _PLACE.sub("", text) for host, text in texts.items()})
    ]
    shown = groups if len(groups) <= MOST else groups[: MOST - 1]
    lines = []
    for (names, text), *others in (each for each, _ in shown):
        similar_hosts = fold_names(name for more, _ in others for name in more)
        lines.append(
            insert_host_names(text, names)
            + (f"; do the same for {similar_hosts}" if similar_hosts else "")
        )
    unshown_hosts = [name for _, names in groups[len(shown) :] for name in names]
    return [*lines, f"do the same for {fold_names(unshown_hosts)}"] if unshown_hosts else lines


def replace_host_name(text: str, host: str, mark: str = _NAME) -> str:
    """Return the text with `mark` in place of the host's name, wherever the name follows `--limit`,
    `--exclude` or `as root on`."""
    return _BOUND.sub(
        lambda match: match[1] + mark if match[2] == host else match[0], text.replace(mark, "")
    )


def insert_host_names(text: str, hosts: Iterable[str], mark: str = _NAME) -> str:
    """Return `text`, a result of `replace_host_name`, with the names of `hosts` in place of `mark`.
    In commands, the names are quoted for a shell."""
    names = fold_names(hosts)
    return text.replace(f"root on {mark}", f"root on {names}").replace(mark, shlex.quote(names))


def did_you_mean(word: str, known_words: Iterable[str], otherwise: str) -> str:
    """Return a hint for the unknown `word`: the most similar known word, or `otherwise`."""
    near = most_similar(word, known_words)
    return f"did you mean {near}?" if near else otherwise


def most_similar(word: str, known_words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the most similar known word, or "" if none has a difflib ratio of `cutoff`. A term
    of another tool is translated first."""
    import difflib  # imported here, because few calls need a hint

    existing, meant = list(known_words), tfdeploy_term(word)
    near = difflib.get_close_matches(word, existing, 1, cutoff)
    return meant if meant in existing else "".join(near)


def tfdeploy_term(word: str) -> str:
    """Translate a term of another tool into tfdeploy's term: "ddp" into "plain". Return any other
    word unchanged."""
    return _MEANT.get(word.lower(), word)


def command_on_host(host: str, *words: str) -> str:
    """Return the command, in backquotes, that runs `words` on a host. A single word is run by a
    shell. Words that come from hosts are quoted, so they are safe."""
    return f"`{shlex.join(('tfdeploy', 'exec', '--limit', host, '--', *words))}`"


def root_command_on_host(host: str, user: str | None, *words: str) -> str:
    """Return what to type to run `words` on a host as root. `user`: the user with which tfdeploy
    logs in to the host."""
    if user == "root":
        return command_on_host(host, *words)
    return f"as root on {host}: {words[0] if len(words) == 1 else shlex.join(words)}"


def install_command(host: str, package: str, user: str) -> str:
    """Return what to type to install a system package on a host, with apt-get or dnf."""
    return root_command_on_host(
        host, user, f"apt-get install -y {package} || dnf install -y {package}"
    )
