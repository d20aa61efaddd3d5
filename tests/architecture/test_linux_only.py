"""Check that only the code for hosts and for labs uses features that only Linux has.

If it passes, the code for the control machine should also run on macOS, but nobody has ever tried
this. The check only reads syntax trees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.floors import ROOT, sources

LINUX_ONLY = ("tfdeploy/agent/", "tfdeploy/lab/", "tfdeploy/runtime/")
# Names of attributes, such as os.sched_getaffinity, that macOS lacks.
NAMES = re.compile(
    r"sched_\w+|pidfd_\w+|prctl|F_SETPIPE_SZ|F_GETPIPE_SZ|O_TMPFILE|O_PATH|syncfs|epoll|EPOLL\w+"
    r"|inotify\w*|memfd_create|eventfd|splice|copy_file_range|posix_fallocate|posix_fadvise"
    r"|sendfile|preadv|pwritev|unshare|setns|AF_NETLINK|AF_VSOCK|SO_PEERCRED|SO_BINDTODEVICE"
    r"|SO_ATTACH_FILTER|TCP_USER_TIMEOUT|TCP_QUICKACK|TCP_KEEPIDLE|PR_SET_\w+|SOCK_CLOEXEC"
    r"|SOCK_NONBLOCK|accept4|getresuid|setresuid|getrandom|dup3|pipe2|RLIMIT_\w*RT\w*"
)
# Paths that only Linux has. They are searched for in all strings except docstrings.
PATHS = re.compile(r"(?:^|[\s'\"=])/(?:proc|sys)/|^/dev/shm\b")
# {(module, name or path): why the module may use it}
_CONFINED = "tfdeploy/transport/rsync/confined.py"
_TCP = "tfdeploy/transport/ssh/tcp.py"
_SHARED = "tfdeploy/planning/preflight/machine.py"
ALLOWED = {
    (_CONFINED, "prctl"): "started only if `version` has found Landlock",
    (_CONFINED, "O_PATH"): "started only if `version` has found Landlock",
    (_TCP, "TCP_KEEPIDLE"): "set where the system has it",
    (_TCP, "TCP_QUICKACK"): "set where the system has it",
    (_TCP, "TCP_USER_TIMEOUT"): "set where the system has it",
    (_SHARED, "/dev/shm"): "it is about a folder of a host",
    (_SHARED, "/dev/shm has "): "it is about a folder of a host",
}


def find_uses(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name or path) of each feature that only Linux has."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and NAMES.fullmatch(node.attr):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.lineno, alias.name) for alias in node.names if NAMES.fullmatch(alias.name)
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and (NAMES.fullmatch(node.value) or PATHS.search(node.value))
        ):
            yield node.lineno, node.value


def test_control_side_uses_no_linux_only_feature() -> None:
    uses = {
        (path, feature): line
        for path in sources()
        if path.startswith("tfdeploy/") and not path.startswith(LINUX_ONLY)
        for line, feature in find_uses((ROOT / path).read_text(encoding="utf-8"))
    }
    faults = [f"{path}:{line}: {feature}" for (path, feature), line in uses.items()]
    unknown = [f for f, use in zip(faults, uses, strict=True) if use not in ALLOWED]
    assert not unknown, "\n".join(unknown)
    assert ALLOWED.keys() <= uses.keys(), "ALLOWED has features that no module uses any longer"


@pytest.mark.parametrize(
    ("source", "features"),
    [
        ("import os\nos.sched_getaffinity(0)\n", ["sched_getaffinity"]),
        ("from select import epoll\n", ["epoll"]),
        ("open('/proc/self/stat')\n", ["/proc/self/stat"]),
        ("getattr(os, 'O_TMPFILE', 0)\n", ["O_TMPFILE"]),
        ('"""Read /proc/self."""\n', []),
        ("os.path.join('a', 'process')\n", []),
    ],
)
def test_linux_only_uses_are_found(source: str, features: list[str]) -> None:
    assert [feature for _, feature in find_uses(source)] == features
