"""Print the number of tokens of the package, by folder.

    python scripts/weight.py

A token is a name, a number, a string or an operator outside comments, docstrings and imports. So
neither the width of a line nor the length of a name counts. An f-string is one token, including the
expressions in its braces, so every version of Python gives the same number.

`make check` fails if the package has more tokens than the section "Weight" of CHANGELOG.md allows
in its first line.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "tfdeploy"

_COUNTED = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)  # Python 3.12 and later
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)


def tokens_of(text: str) -> int:
    """Return the number of tokens of a module's source."""
    skipped = _lines_of_imports_and_docstrings(ast.parse(text))
    total = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts = token.type == _FSTRING_START
        if starts or token.type in _COUNTED:
            total += depth == 0 and token.start[0] not in skipped
        depth += starts - (token.type == _FSTRING_END)
    return total


def tokens_by_folder() -> Counter[str]:
    """Return {folder (at most two levels below the package): tokens of its modules}."""
    weights: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parent
        weights["/".join(folder.parts[:2]) or "."] += tokens_of(path.read_text(encoding="utf-8"))
    return weights


def _lines_of_imports_and_docstrings(tree: ast.Module) -> set[int]:
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            skipped.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return skipped


def main() -> None:
    weights = tokens_by_folder()
    for folder, tokens in weights.most_common():
        print(f"{tokens:8,} {folder}")
    print(f"{weights.total():8,} in all")


if __name__ == "__main__":
    main()
