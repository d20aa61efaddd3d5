"""Check that tests and benchmarks name the fields of a record of more than four fields.

A record is an instance of a dataclass, of a NamedTuple or of a similar class. If it is built from
many values without names, a reader cannot tell what each value means.
"""

import ast
import re

import pytest

from support.floors import ROOT, sources

MOST_FIELDS = 4
HELD = ("tests/", "benchmarks/")
# test_record.py may pass the fields of a record by position, because it tests how records are
# built.
EXEMPT = ("tests/lab/programs/", "tests/agent/test_record.py")
RECORDS = ("dataclass", "record")  # the decorators that make a class a record
BASES = ("NamedTuple", "Struct")


def last_step(node):
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def find_records(source, module):
    """Yield (module, class) of every record with more than MOST_FIELDS fields."""
    if not any(word in source for word in (*RECORDS, *BASES)):
        return  # This saves the time to parse most files.
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        is_record = any(last_step(decorator) in RECORDS for decorator in node.decorator_list)
        if is_record or any(last_step(base) in BASES for base in node.bases):
            fields = [
                statement
                for statement in node.body
                if isinstance(statement, ast.AnnAssign)
                and "ClassVar" not in ast.unparse(statement.annotation)
            ]
            if len(fields) > MOST_FIELDS:
                yield module, node.name


def find_positional_calls(source, module, known):
    """Yield (line, class) of each call that builds a record with positional arguments.

    `known` has the records, as (module, class).
    """
    names = "|".join(sorted({name for _, name in known}))
    if not re.search(rf"\b(?:{names})(?:\(| as )", source):
        return
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        named = (module, ast.unparse(node.func))
        if isinstance(node.func, ast.Name):
            named = imported.get(node.func.id, named)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            within = imported.get(node.func.value.id, ("", ""))
            named = (".".join(within), node.func.attr)
        if named in known:
            yield node.lineno, named[1]


def module_of(path):
    return path.removesuffix(".py").removeprefix("tests/").replace("/", ".")


def test_tests_name_the_fields_of_large_records():
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in sources()}
    known = {
        record for path, text in texts.items() for record in find_records(text, module_of(path))
    }
    assert ("tfdeploy.model.plan", "Plan") in known and ("tfdeploy.agent.wire", "HostPart") in known
    faults = [
        f"{path}:{line}: {name} takes its fields by their names"
        for path, text in texts.items()
        if path.startswith(HELD) and not path.startswith(EXEMPT)
        for line, name in find_positional_calls(text, module_of(path), known)
    ]
    assert not faults, "\n".join(faults)


FIVE = (
    "@dataclass(frozen=True)\nclass Five:\n    a: int\n    b: int\n    c: int\n    d: int\n    "
    "e: int = 0\n"
)


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("from x.five import Five\nFive(1, 2, 3, 4)", True),
        ("from x.five import Five as Few\nFew(1, *rest)", True),
        ("from x import five\nfive.Five(1)", True),
        ("from x.five import Five\nFive(a=1, b=2, c=3, d=4)", False),
        ("from x.other import Five\nFive(1)", False),
    ],
)
def test_record_built_with_positional_arguments_is_found(source, is_found):
    known = set(find_records(FIVE, "x.five"))
    assert known == {("x.five", "Five")}
    assert bool(list(find_positional_calls(source, "y", known))) == is_found


def test_record_of_four_fields_may_have_positional_arguments():
    assert list(find_records(FIVE.replace("    d: int\n", ""), "x.five")) == []
