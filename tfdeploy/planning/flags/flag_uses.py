"""Finds out which flags describe the cluster, from what the program does with their values.

A flag whose value reaches `Server(job_name=...)` is the job name, whatever the flag is called. A
flag whose value is split into the "worker" list of a cluster holds the workers' addresses. The
module `flags` handles flags that can be recognised by their names alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tfdeploy.planning.source.expressions import argument, elements, last_name, literal_text
from tfdeploy.planning.source.origins import Function, Origin, Origins
from tfdeploy.planning.source.parsed_file import enclosing_nodes, place_of
from tfdeploy.planning.source.source import Program

# {function: the arguments of this function that tell which task this is or how large the cluster
# is}. An argument is described as (keyword, position, name of what it tells).
_CALLS = {
    "Server": (("job_name", 1, "job_name"), ("task_index", 2, "task_index")),
    "SimpleClusterResolver": (("task_type", 2, "job_name"), ("task_id", 3, "task_index")),
    "SyncReplicasOptimizer": (("total_num_replicas", 2, "num_workers"),),
    "replica_device_setter": (("ps_tasks", 0, "num_ps"),),
    "TFConfigClusterResolver": (("task_type", 0, "job_name"), ("task_id", 1, "task_index")),
}
_LISTS = {
    "ps": "ps_hosts",
    "worker": "worker_hosts",
    "chief": "chief_hosts",
    "master": "chief_hosts",
}
_ROLES = frozenset({"ps", "worker"})
_CLUSTERS = ("Server", "ClusterSpec", "SimpleClusterResolver")
_SYNCHRONOUS = ("SyncReplicasOptimizer", "SyncReplicasOptimizerV2")
_PAIRS = (
    ("true", "false"),
    ("1", "0"),
    ("yes", "no"),
    ("sync", "async"),
    ("synchronous", "asynchronous"),
    ("y", "n"),
)
_OPPOSITES = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}


class FlagUse(NamedTuple):
    """A place where a flag, or a word of sys.argv, tells the program something about its cluster.

    `name`: what it tells, such as "job_name" or "ps_hosts". `sync_values`: if `name` is "issync",
    the flag's values for asynchronous and synchronous training.
    """

    name: str
    origin: Origin
    where: str
    sync_values: tuple[str, str] | None = None


_Switch = tuple[Origin, tuple[str, str] | None]


def makes_cluster(program: Program) -> bool:
    """Return whether the program starts a server or describes a cluster by itself."""
    return program.has_string_constant("TF_CONFIG") or any(
        last_name(node.func) in _CLUSTERS for node in program.find(ast.Call)
    )


def trains_synchronously(program: Program) -> bool:
    """Return whether the program uses the synchronous training of TensorFlow 1."""
    return program.uses_any_name(*_SYNCHRONOUS)


def find_flag_uses(program: Program, origins: Origins) -> list[FlagUse]:
    """Return the places where the program uses flags as values of the cluster, such as addresses.

    Uses in calls, dictionaries and assignments come first. Comparisons of a flag with "ps" or
    "worker" follow. Flags that switch synchronous training on come last.
    """
    nodes = program.find(ast.Call, ast.Dict, ast.Assign)
    certain = [use for node in nodes for use in _uses_in_node(node, origins)]
    tests = program.find(ast.Compare)
    certain += [use for node in tests for use in _role_comparisons(node, origins)]
    identity = {use.origin.dest for use in certain}
    names = program.find(ast.Name, ast.Attribute)
    synchronous = [use for node in names for use in _sync_switches(node, origins)]
    return [*certain, *(use for use in synchronous if use.origin.dest not in identity)]


def _uses_in_node(node: ast.AST, origins: Origins) -> Iterator[FlagUse]:
    for name, value in _cluster_values(node):
        for origin in sorted(origins.origins_of(value)):
            if _can_become_value(name, origin):
                # The steps are a JSON parser and one subscript. So the flag's value is the whole
                # cluster as JSON, and this expression is one entry of it.
                whole = len(origin.steps) == 2 and origin.steps[0] == ("json", "")
                yield FlagUse("cluster" if whole else name, origin, place_of(value))


def _cluster_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, expression) for each fact about the cluster that this syntax node uses.

    The name says which fact, such as "ps_hosts". The value of the expression is the fact itself.
    """
    lists: dict[str | None, ast.expr] = {}
    match node:
        case ast.Call(function, arguments, keywords):
            called = last_name(function)
            for keyword, at, name in _CALLS.get(called, ()):
                if value := argument(node, keyword, at):
                    yield name, value
            if called in ("ClusterSpec", "Server") and arguments:
                yield "cluster", arguments[0]
            if called == "dict":
                lists = {each.arg: each.value for each in keywords}
        case ast.Dict(keys, values):
            lists = dict(zip(map(literal_text, keys), values, strict=True))
            # A dictionary with the keys "type" and "index" is the entry "task" of a TF_CONFIG.
            if {"type", "index"} <= lists.keys():
                yield from (("job_name", lists["type"]), ("task_index", lists["index"]))
        case ast.Assign([ast.Subscript(slice=key), *_], value):
            lists = {literal_text(key): value}
    yield from ((name, lists[key]) for key, name in _LISTS.items() if key in lists)


def _can_become_value(name: str, origin: Origin) -> bool:
    """Return whether the flag's value, after the program's operations, can be what `name` says.

    `name` is, for example, "task_index". `origin`: the flag, with the operations that the program
    applies to its value. Addresses must result in a list: the flag's value is a list, or the
    program splits it or parses it as JSON.
    """
    operations = [operation for operation, _ in origin.steps]
    if name in ("num_workers", "num_ps"):
        return not operations
    if name == "cluster":
        return operations[:1] == ["json"]
    if name in ("job_name", "task_index"):
        return operations in ([], ["split", "item"])
    return len(operations) <= 1 or operations[:2] == ["json", "key"]


def _role_comparisons(node: ast.Compare, origins: Origins) -> Iterator[FlagUse]:
    """Yield a FlagUse "job_name" for each flag that this node compares with "ps" or "worker"."""
    if not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return
    sides = (node.left, node.comparators[0])
    if any(literal_text(each) in _ROLES for side in sides for each in elements(side) or [side]):
        for origin in sorted(origin for side in sides for origin in origins.origins_of(side)):
            if _can_become_value("job_name", origin):
                yield FlagUse("job_name", origin, place_of(node))


def _sync_switches(node: ast.expr, origins: Origins) -> Iterator[FlagUse]:
    """If `node` is the name SyncReplicasOptimizer, yield the flags that switch its use on.

    They are the flags that an `if` around this node tests.
    """
    if last_name(node) not in _SYNCHRONOUS:
        return
    for test, holds in _conditions_around(node):
        for origin, compared_values in _flags_in_condition(test, origins, is_true_for_sync=holds):
            yield FlagUse("issync", origin, place_of(test), compared_values)


def _conditions_around(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield (condition, whether it is true at the node) for each `if` around the node.

    The innermost `if` comes first. Every `if` outside the function that contains the node is left
    out.
    """
    inner = node
    for each in enclosing_nodes(node):
        if isinstance(each, Function):
            return
        if isinstance(each, ast.If | ast.IfExp) and inner is not each.test:
            yield each.test, inner is each.body or (isinstance(each, ast.If) and inner in each.body)
        inner = each


def _flags_in_condition(
    test: ast.expr, origins: Origins, *, is_true_for_sync: bool
) -> Iterator[_Switch]:
    """Yield (flag, its values for async and sync training) for each flag in this condition.

    The values are None if the program only tests whether the flag is true. `is_true_for_sync`: True
    if the condition must be true for synchronous training, False if it must be false.
    """
    for each in origins.assigned_values(test):
        compared: object = True
        match each:
            case ast.BoolOp(_, values):
                for value in values:
                    yield from _flags_in_condition(
                        value, origins, is_true_for_sync=is_true_for_sync
                    )
                continue
            case ast.UnaryOp(ast.Not(), operand):
                yield from _flags_in_condition(
                    operand, origins, is_true_for_sync=not is_true_for_sync
                )
                continue
            case ast.Compare(tested, [ast.Eq() | ast.Is()], [ast.Constant(compared)]):
                equal = is_true_for_sync
            case ast.Compare(tested, [ast.NotEq() | ast.IsNot()], [ast.Constant(compared)]):
                equal = not is_true_for_sync
            case ast.Compare(_, [_], [ast.Constant()]):
                continue
            case tested:
                equal = is_true_for_sync
        for origin in origins.origins_of(tested):
            if origin.steps:
                continue
            if isinstance(compared, str) and ("sync" in compared.lower() or "sync" in origin.dest):
                yield origin, _async_and_sync_values(compared, equal=equal)
            elif isinstance(compared, int) and "sync" in origin.dest:
                yield origin, None if bool(compared) == equal else ("1", "0")


def _async_and_sync_values(value: str, *, equal: bool) -> tuple[str, str]:
    """Return (the flag's value for async training, the flag's value for sync training).

    `value`: the text with which the program compares the flag. `equal`: True if a flag that equals
    this text means synchronous training; False if it means asynchronous training. In the result, ""
    stands for a value that is not known.
    """
    other = _OPPOSITES.get(value.lower(), "")
    other = (
        other.upper() if value.isupper() else other.capitalize() if value[:1].isupper() else other
    )
    return (other, value) if equal else (value, other)
