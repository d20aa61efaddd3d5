"""Test how syntax nodes of a parsed Python file are found: all in order, all of one class, those
inside a node, or those around a node.
"""

from __future__ import annotations

import ast

from tfdeploy.planning.source.parsed_file import enclosing_nodes, parse, subtree

TEXT = """
import os
def main(flag):
    if flag and os:
        import json
    return [flag]
from a import b
"""


def test_nodes_of_several_classes_are_in_order_of_text() -> None:
    file = parse("train.py", TEXT)
    assert [node.lineno for node in file.imports] == [2, 5, 7]
    assert [type(node) for node in file.find(ast.Return, ast.If, ast.While)] == [ast.If, ast.Return]


def test_nodes_within_node_match_ast_walk_without_shared_nodes() -> None:
    file = parse("train.py", TEXT)
    for node in file.nodes:
        walked = {
            id(inner)
            for inner in ast.walk(node)
            if not isinstance(inner, ast.expr_context | ast.boolop)
        }
        assert {id(inner) for inner in subtree(node)} == walked


def test_blocks_around_node_start_with_innermost() -> None:
    file = parse("train.py", TEXT)
    assert [type(node) for node in enclosing_nodes(file.imports[1])] == [
        ast.If,
        ast.FunctionDef,
        ast.Module,
    ]


def test_equal_files_have_separate_nodes_and_file_is_parsed_once() -> None:
    assert parse("one.py", TEXT) is parse("one.py", TEXT)
    assert {id(node) for node in parse("one.py", TEXT).nodes}.isdisjoint(
        map(id, parse("two.py", TEXT).nodes)
    )
