"""Finds the code that every run of a program certainly executes.

The search begins at the module level, which includes `if __name__ == "__main__":`, and follows
imports and calls. A call is followed if the program defines the called name only once.

In case of doubt, code counts as not executed: the body of a loop that may have no iterations, a
branch that depends on a flag, a callback. A branch that depends on the job name counts as executed
if some task of the run takes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tfdeploy.planning.source import guards
from tfdeploy.planning.source.expressions import argument, dotted_name, elements, last_name
from tfdeploy.planning.source.parsed_file import child_nodes, subtree
from tfdeploy.planning.source.scopes import Function, Scope, scopes_of
from tfdeploy.planning.source.source import Program, imported_files

_RUNNERS = ("app.run", "absl.app.run")
_EXITS = ("sys.exit", "exit", "quit", "os._exit", "os.abort")
# Functions that only print, log or exit. If a branch ends the program and calls no other functions,
# it does no real work.
_REPORTS = "print info warning warn error debug fatal write format print_help exit _exit join"
_INDEX_NAMES = ("task_index", "task_id", "task", "worker_index", "rank")


@dataclass(frozen=True)
class Reached:
    """The code that every run certainly executes.

    `nodes`: the ids of the syntax nodes of this code. `files`: the paths of the modules of this
    code.
    """

    nodes: frozenset[int]
    files: frozenset[str]


@lru_cache(maxsize=4)
def certainly_reached(program: Program, *, has_workers: bool) -> Reached:
    """Return the code that every run of the program certainly executes.

    `has_workers`: whether some tasks of the run have the role worker.
    """
    walk = _ReachedCollector(program, has_workers)
    return Reached(frozenset(walk.nodes), frozenset(walk.files))


class _ReachedCollector:
    """Collects the nodes and files that the program certainly executes."""

    def __init__(self, program: Program, workers: bool) -> None:
        self.nodes: set[int] = set()
        self.files: dict[str, None] = dict.fromkeys(program.entry_files)
        self._program, self._workers, self._scopes = program, workers, scopes_of(program)
        self._guarded = guards.guarded_nodes(program)
        self._waiting = [
            (program.by_path[path].tree.body, self._scopes.module_scope(path))
            for path in program.entry_files
        ]
        while self._waiting:
            self._walk_block(*self._waiting.pop())

    def _walk_block(self, body: list[ast.stmt], scope: Scope) -> bool:
        """Record the code in this block that is certainly executed.

        Return True if a run may skip the code after the block.
        """
        return any(self._walk_statement(node, scope) for node in body)

    def _walk_statement(self, node: ast.stmt, scope: Scope) -> bool:
        self.nodes.add(id(node))
        if isinstance(node, ast.If):
            return self._walk_if(node, scope)
        if isinstance(node, ast.Try):
            return self._walk_try(node, scope)
        for value in _evaluated_expressions(node):
            self._walk_expression(value, scope)
        match node:
            case ast.Import() | ast.ImportFrom():
                self._walk_import(node, scope)
            case ast.With() | ast.AsyncWith() if not guards.is_suppress(node):
                return self._walk_block(node.body, scope)
            case ast.ClassDef():
                self._walk_block(node.body, scope)
            case ast.While() | ast.For() if _runs_at_least_once(node):
                self._walk_block(node.body, scope)
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.Expr(value):
                return _called_name_if_call(value) in _EXITS
        return False

    def _walk_if(self, node: ast.If, scope: Scope) -> bool:
        self._walk_expression(node.test, scope)
        holds = guards.fixed_value(node.test, is_main=scope.path in self._program.entry_files)
        if holds is not None:
            return self._walk_block(node.body if holds else node.orelse, scope)
        taken = () if id(node.body[0]) in self._guarded else self._certain_outcomes(node.test)
        ends = [self._walk_block(node.body if result else node.orelse, scope) for result in taken]
        # The condition tests the job name or index, and some task certainly takes each branch in
        # `taken`. Another branch may end the program, but only for other tasks: the tasks that take
        # a branch in `taken` continue after the `if`, unless this branch itself ends the program.
        if taken:
            return any(ends)
        return any(map(_may_do_work_before_end, (node.body, node.orelse)))

    def _walk_try(self, node: ast.Try, scope: Scope) -> bool:
        """Record the code in this `try` that is certainly executed.

        Return True if a run may skip the code after the `try`. If a handler catches a missing
        module or name, neither the body nor the `else` block counts as executed.
        """
        caught = guards.catches_absence(node)
        ends = not caught and (
            self._walk_block(node.body, scope) or self._walk_block(node.orelse, scope)
        )
        return self._walk_block(node.finalbody, scope) or ends

    def _certain_outcomes(self, test: ast.expr) -> tuple[bool, ...]:
        """Return the values that the condition certainly has in at least one task of the run.

        For `job_name == "worker"`, the result is (True,). It is () if no value is certain.
        """
        if not self._workers:
            return ()
        match test:
            case ast.UnaryOp(ast.Not(), operand):
                return tuple(not result for result in self._certain_outcomes(operand))
            case ast.Name("is_chief") | ast.Attribute(attr="is_chief"):
                return (True,)
            case ast.Compare(
                left, [ast.Eq() | ast.NotEq() as comparison], [ast.Constant(value)]
            ) | ast.Compare(ast.Constant(value), [ast.Eq() | ast.NotEq() as comparison], [left]):
                same = isinstance(comparison, ast.Eq)
                if value == "ps":
                    return (not same,)
                is_first = type(value) is int and not value and last_name(left) in _INDEX_NAMES
                return (same,) if value == "worker" or is_first else ()
        return ()

    def _walk_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for file in imported_files(self._program, scope.path, node):
            if file not in self.files:
                self.files[file] = None
                module = self._program.by_path.get(file)
                self._waiting += (
                    [(module.tree.body, self._scopes.module_scope(file))] if module else []
                )

    def _walk_expression(self, node: ast.expr, scope: Scope) -> None:
        waiting: list[ast.AST] = [node]
        while waiting:
            inner = waiting.pop()
            self.nodes.add(id(inner))
            waiting += _always_evaluated_parts(inner)
            if isinstance(inner, ast.Call):
                self._walk_call(inner, scope)

    def _walk_call(self, node: ast.Call, scope: Scope) -> None:
        name = _called_name_if_call(node)
        function = node.func
        if name.endswith(_RUNNERS):
            function = argument(node, "main", 0) or ast.Name("main")
        elif name.endswith(("Thread", "Process")):
            function = argument(node, "target") or function
        self._enter_called_function(function, scope)

    def _enter_called_function(self, function: ast.expr, scope: Scope) -> None:
        called = self._scopes.meaning(function, scope)
        if called and (instance := called.instance_if_class):
            called = self._scopes.member(instance, "__init__")
        node = called.node if called else None
        if not called or not isinstance(node, Function) or id(node.body) in self.nodes:
            return
        if not _is_deferred(node):
            self.nodes.add(id(node.body))
            self._waiting.append((node.body, self._scopes.function_scope(called)))


def _evaluated_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that a statement evaluates, except those inside its body."""
    if isinstance(node, Function):
        yield from (*node.decorator_list, *_default_expressions(node.args))
        return
    for child in child_nodes(node):
        match child:
            case ast.expr():
                yield child
            case ast.withitem(inner) | ast.keyword(value=inner):
                yield inner


def _default_expressions(parameters: ast.arguments) -> Iterator[ast.expr]:
    yield from filter(None, (*parameters.defaults, *parameters.kw_defaults))


def _always_evaluated_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of the expression that Python always evaluates, such as `a` in `a or b`."""
    match node:
        case ast.Lambda(parameters):
            return [*_default_expressions(parameters)]
        case ast.IfExp(test, body, orelse):
            holds = guards.fixed_value(test)
            return [test, *([] if holds is None else [body if holds else orelse])]
        case ast.BoolOp(values=[first, *_]):
            return [first]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [node.generators[0].iter]
    return child_nodes(node)


def _runs_at_least_once(node: ast.While | ast.For) -> bool:
    """Return whether the loop's body certainly runs at least once.

    Examples: `while True`, `while not sv.should_stop()`, `for _ in range(3)`, `for x in ("a",)`.
    """
    match node:
        case ast.While(ast.UnaryOp(operand=call)) if _called_name_if_call(call).endswith(
            "should_stop"
        ):
            return True
        case ast.While(test):
            return guards.fixed_value(test) is True
        case ast.For(iter=ast.Call(ast.Name("range" | "xrange"), [ast.Constant(int(end))])):
            return end > 0
        case ast.For(iter=iterable):
            return bool(elements(iterable))


def _may_do_work_before_end(block: list[ast.stmt]) -> bool:
    """Return whether the program may work in this branch and then end.

    The result is False if the branch only reports an error and then ends the program.
    """
    inner = [node for statement in block for node in subtree(statement)]
    leaves = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in inner)
    calls = [_called_name_if_call(node) for node in inner if isinstance(node, ast.Call)]
    return (leaves or any(call in _EXITS for call in calls)) and any(
        call.rpartition(".")[2] not in _REPORTS.split() for call in calls
    )


def _is_deferred(node: Function) -> bool:
    """Return whether a call only creates a coroutine or generator, without running the body.

    The result is False for a generator function with a decorator, which may run the body.
    """
    yields = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in subtree(node))
    return isinstance(node, ast.AsyncFunctionDef) or (yields and not node.decorator_list)


def _called_name_if_call(node: ast.expr) -> str:
    """Return the name of a called function; "" if the expression is not a call.

    Examples: "tf.app.run" for `tf.app.run(main)`, "run" for `model().run()`.
    """
    return dotted_name(node.func) or last_name(node.func) if isinstance(node, ast.Call) else ""
