"""Test how the nodes of a parsed Python file are found: in order, by class, inside a node, or
around a node.
"""

from __future__ import annotations

import ast

from tfdeploy.planning.source.parsed_file import parse

TEXT = """
import os
def main(flag):
    if flag and os:
        import json
    return [flag]
from a import b
"""


def test_nodes_of_several_classes_come_in_the_order_of_the_text() -> None:
    file = parse("train.py", TEXT)
    assert [node.lineno for node in file.imports] == [2, 5, 7]
    assert [type(node) for node in file.find(ast.Return, ast.If, ast.While)] == [ast.If, ast.Return]


def test_within_a_node_are_the_nodes_that_ast_walk_finds_there_but_for_those_that_all_files_share() -> (
    None
):
    file = parse("train.py", TEXT)
    for node in file.nodes:
        walked = {
            id(each)
            for each in ast.walk(node)
            if not isinstance(each, ast.expr_context | ast.boolop)
        }
        assert {id(each) for each in file.within(node)} == walked


def test_around_a_node_are_the_blocks_from_the_innermost_one() -> None:
    file = parse("train.py", TEXT)
    assert [type(node) for node in file.around(file.imports[1])] == [
        ast.If,
        ast.FunctionDef,
        ast.Module,
    ]


def test_equal_files_have_nodes_of_their_own_and_a_file_is_parsed_once() -> None:
    assert parse("one.py", TEXT) is parse("one.py", TEXT)
    assert {id(node) for node in parse("one.py", TEXT).nodes}.isdisjoint(
        map(id, parse("two.py", TEXT).nodes)
    )
