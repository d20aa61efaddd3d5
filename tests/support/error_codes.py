"""Find in the agent's source code all error codes that a host may send."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import tfdeploy
from tfdeploy.agent.serve.server import failure_answer


def codes_of_verbs() -> list[str]:
    """Return the error codes that verbs set explicitly: the first argument of each VerbError in the
    agent.
    """
    codes: set[str] = set()
    for path in (Path(tfdeploy.__file__).parent / "agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("VerbError"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    codes.add(str(first.value))
    return sorted(codes)


def codes_of_exceptions() -> list[str]:
    """Return the error codes that the agent sends if a verb raises another exception than
    VerbError: an error of the operating system, or a bug.
    """
    exceptions = [ValueError(), *(OSError(number, "") for number in errno.errorcode)]
    return sorted({str(failure_answer(each)["code"]) for each in exceptions})
