"""Collect the error codes that hosts may send, from the code of the agent."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import tfdeploy
from tfdeploy.agent.serve.error_codes import failure_answer


def codes_of_verbs() -> list[str]:
    """Return the codes that verbs name themselves: the first argument of each VerbError in the
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
    """Return the codes that stand for other exceptions of verbs: errors of the system, and bugs."""
    exceptions = [ValueError(), *(OSError(number, "") for number in errno.errorcode)]
    return sorted({str(failure_answer(each)["code"]) for each in exceptions})
