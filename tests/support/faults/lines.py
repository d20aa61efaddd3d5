"""List, in 67 numbered lines, what can go wrong with a user's machines, files and input.

A test that is marked `fault("14 no python3")` checks one fault of line 14. `make faults` prints the
lines that no test checks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

GROUPS: dict[str, dict[int, str]] = {
    "Inventory and job files": {
        1: "missing, empty, broken, in odd encodings",
        2: "unknown keys, wrong types and ports; IPv6 works",
        3: "one host or address twice",
        4: "names and addresses that are commands",
        5: "roles, counts, GPUs or ports that make no cluster",
        6: "a million hosts; a thousand",
        7: "placeholders and braces",
        8: "the inventory changed after the launch",
    },
    "SSH": {
        9: "host keys unknown or changed",
        10: "hosts down, silent, or dropping packets",
        11: "users and keys that do not get in",
        12: "MaxStartups, MaxSessions",
        13: "login shells and banners",
        14: "no Python, an old one, one elsewhere",
        15: "home read-only, full, out of inodes, over quota",
        16: "the connection dies at any byte",
    },
    "Sync": {
        17: "source missing or empty, a folder that is not ours",
        18: "odd names",
        19: "cut at half",
        20: "disk full on one host",
        21: "files that change while they are sent",
        22: "links that lead out; checkpoints inside the code",
        23: "rsync missing on a host",
        24: "very many files, large ones, sparse ones",
        25: "two at once, a launch beside it, killed in the middle",
        26: "deleted here; what git ignores",
    },
    "Launch": {
        27: "ports that are taken",
        28: "twice, twenty at once, two operators, a lost reply",
        29: "a host dies between prepare and start",
        30: "programs that fail at once",
        31: "TensorFlow or tf_keras missing on one host",
        32: "hosts that do not reach each other; names that are loopback",
        33: "a proxy in the environment",
        34: "a run folder left by a power cut",
    },
    "Running": {
        35: "the control machine is cut off, killed, closed",
        36: "kill -9 of a task, in each mode",
        37: "crash loops, and good ends that are none",
        38: "out of memory",
        39: "frozen tasks, dead peers, a ps behind a cut",
        40: "a host reboots",
        41: "a PID that a stranger has now",
        42: "the supervisor itself is killed",
        43: "clocks that jump",
    },
    "Logs and view": {
        44: "disk full while training",
        45: "endless lines and hostile bytes",
        46: "a flood from every task",
        47: "readers that leave, stall or are narrow; very many tasks",
        48: "logs rotated or removed under a follower",
    },
    "Stop": {
        49: "programs that will not end",
        50: "a host is off",
        51: "Ctrl-C in every phase; stop twice, too late, of nothing",
        52: "neighbours and bystanders; a restart in flight",
        53: "what is left afterwards",
    },
    "Control machine and trust": {
        54: "local state lost, home full, few descriptors",
        55: "a secret",
        56: "a run folder that exists, is a link, is another's",
        57: "a host that lies",
        58: "ports and addresses open to the world",
    },
    "Hosts that lie, neighbours, halves": {
        59: "answers of the wrong shape, endless, with paths that lead out",
        60: "folders, bytecode and releases that another user made or may write to",
        61: "one host slower than the rest; a launch killed at any moment",
        62: "hosts with different plans of one run",
        63: "a stranger on any port of a run, at any moment",
        64: "a relay of a broadcast that dies, slows down, lies or is a stranger",
        65: "a source that changes while it is sent; a disk that fills on one host of a chain",
        66: "fewer files than workers; data that is to come from where it is not",
        67: "a clean while a run lives, or while another operator launches",
    },
}
LINES = {number: words for group in GROUPS.values() for number, words in group.items()}


def number_of(fault: str) -> int:
    """Return the number of the line to which a fault belongs: 14 for "14 no python3". Raises
    ValueError if `fault` does not begin with the number of a line.
    """
    number, _, words = fault.partition(" ")
    if not number.isdigit() or int(number) not in LINES or not words:
        raise ValueError(
            f"{fault!r}: a fault is the number of its line, 1 to {max(LINES)}, and a few words"
        )
    return int(number)


def params(table: Mapping[str, tuple[Any, ...]], core: Collection[str] | None = None) -> list[Any]:
    """Return one parameter set for each row of a table. The keys are faults or names of cases.

    `core`: the keys of the rows that run in every test session; the other rows run only in `make
    faults`. If `core` is None, all rows run in every session.
    """

    def marks(name: str) -> list[Any]:
        long = [] if core is None or name in core else [pytest.mark.long]
        return [pytest.mark.fault(name), *long] if name[:1].isdigit() else long

    return [pytest.param(*row, id=name, marks=marks(name)) for name, row in table.items()]


def variations(values: Sequence[Any], core: int = 1) -> list[Any]:
    """Return the parameters of a test that checks one fault in several variations.

    Every test session runs the first `core` variations. The other variations run only in `make
    soak`.
    """
    return [
        *values[:core],
        *(pytest.param(value, marks=pytest.mark.long) for value in values[core:]),
    ]
