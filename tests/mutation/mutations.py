"""Makes the mutants of a module: small changes of a statement or an expression within functions.

Not mutated: annotations, docstrings, texts, log messages, and what a module runs at its import. A
mutant's id has no line number, so it survives changes elsewhere in its file.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS: Final = ("log", "logger", "logging", "_log")


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Args:
        id: file, function, and the change; the same for as long as the changed code is the same.
        line: of the change in the file.
        function: the outermost function that is changed, as its qualified name.
        code: returns the changed module.
    """

    id: str
    line: int
    function: str
    code: Callable[[], ast.Module]


@dataclass(frozen=True)
class _Change:
    node: ast.AST
    replacement: ast.AST
    text: str


def mutants_of(path: Path, name: str) -> Iterator[Mutant]:
    """Yield the mutants of a file, in the order of its lines."""
    tree = ast.parse(path.read_text())
    seen: Counter[str] = Counter()
    for function, qualified in _functions(tree):
        for change in _changes(function):
            text = f"{name}:{qualified}: {change.text}"
            seen[text] += 1
            number = f" #{seen[text]}" if seen[text] > 1 else ""
            yield Mutant(
                text + number, _line(change.node), qualified, partial(_replaced, tree, change)
            )


def _line(node: ast.AST) -> int:
    """Return the first line of a node that runs code.

    The `for` of a comprehension has none of its own, and a line with nothing but `if (` runs none.
    """
    node = node.test if isinstance(node, ast.If | ast.While) else node
    line: int = min(part.lineno for part in ast.walk(node) if hasattr(part, "lineno"))
    return line


def _functions(tree: ast.Module) -> Iterator[tuple[Function, str]]:
    """Yield each function that is in no other one."""
    scopes: list[tuple[ast.AST, str]] = [(tree, "")]
    while scopes:
        scope, prefix = scopes.pop(0)
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, Function):
                yield node, prefix + node.name
            elif isinstance(node, ast.ClassDef):
                scopes.append((node, f"{prefix}{node.name}."))


def _replaced(tree: ast.Module, change: _Change) -> ast.Module:
    memo = {id(change.node): change.replacement}  # deepcopy takes the replacement for the node
    return ast.fix_missing_locations(copy.deepcopy(tree, memo))


def _changes(function: Function) -> Iterator[_Change]:
    for statement in function.body:
        for node in _walk(statement):
            for replacement, text in _mutations(node):
                yield _Change(node, ast.copy_location(replacement, node), text)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below that are worth a mutation."""
    if _is_log(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.Raise) and name == "cause":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _is_log(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and isinstance(node.value.func.value, ast.Name)
        and node.value.func.value.id in _LOGGERS
    )


_Mutations = Iterator[tuple[ast.AST, str]]


def _mutations(node: ast.AST) -> _Mutations:
    for kind, mutate in _BY_KIND:
        if isinstance(node, kind):
            yield from mutate(node)


def _changed(node: ast.AST, **fields: object) -> tuple[ast.AST, str]:
    """Return a copy with other fields, and the words of the change."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other, f"{_text(node)} -> {_text(other)}"


def _text(node: ast.AST) -> str:
    """Return the first line of a node's source, shortened in the middle."""
    line = ast.unparse(node).split("\n")[0]
    return line if len(line) <= 160 else f"{line[:100]} ... {line[-55:]}"


def _condition(node: ast.If | ast.IfExp | ast.While) -> _Mutations:
    word = "while" if isinstance(node, ast.While) else "if"
    for value in (True, False):
        if isinstance(node, ast.While) and (value or isinstance(node.test, ast.Constant)):
            continue
        other = copy.copy(node)
        other.test = ast.Constant(value)
        yield other, f"{word} {_text(node.test)} -> {word} {value}"


def _comprehension(node: ast.comprehension) -> _Mutations:
    for at, test in enumerate(node.ifs):
        other = copy.copy(node)
        other.ifs = [*node.ifs[:at], *node.ifs[at + 1 :]]
        yield other, f"for {_text(node.target)}: without if {_text(test)}"


def _comparison(node: ast.Compare) -> _Mutations:
    for at, operator in enumerate(node.ops):
        ops = list(node.ops)
        if type(operator) in _COMPARISONS:
            ops[at] = _COMPARISONS[type(operator)]()
            yield _changed(node, ops=ops)


def _boolean(node: ast.BoolOp) -> _Mutations:
    for at, _ in enumerate(node.values):
        values = [*node.values[:at], *node.values[at + 1 :]]
        other = ast.BoolOp(node.op, values) if len(values) > 1 else values[0]
        yield other, f"{_text(node)} -> {_text(other)}"


def _negation(node: ast.UnaryOp) -> _Mutations:
    if isinstance(node.op, ast.Not):
        yield node.operand, f"{_text(node)} -> {_text(node.operand)}"


def _arithmetic(node: ast.BinOp) -> _Mutations:
    texts = (ast.JoinedStr, ast.Constant)
    is_text = any(
        isinstance(side, texts) and not isinstance(getattr(side, "value", ""), int | float)
        for side in (node.left, node.right)
    )
    if type(node.op) in _ARITHMETIC and not is_text:
        yield _changed(node, op=_ARITHMETIC[type(node.op)]())


def _number(node: ast.Constant) -> _Mutations:
    if isinstance(node.value, bool):
        yield _changed(node, value=not node.value)
    elif isinstance(node.value, int | float):
        yield _changed(node, value=node.value + 1)


def _call(node: ast.Call) -> _Mutations:
    for at, keyword in enumerate(node.keywords):
        if keyword.arg not in ("data", "do", None):  # the words of an error
            other = copy.copy(node)
            other.keywords = [*node.keywords[:at], *node.keywords[at + 1 :]]
            yield other, f"{_text(node.func)}(...) without {keyword.arg}={_text(keyword.value)}"
    if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
        name = _OPPOSITES[node.func.id]
        yield _changed(node, func=ast.copy_location(ast.Name(name, ast.Load()), node.func))


def _display(node: ast.Tuple | ast.List | ast.Set) -> _Mutations:
    """Drop what is unpacked into a display."""
    for at, element in enumerate(node.elts):
        if isinstance(element, ast.Starred) and isinstance(element.ctx, ast.Load):
            yield _changed(node, elts=[*node.elts[:at], *node.elts[at + 1 :]])


def _handler(node: ast.ExceptHandler) -> _Mutations:
    if isinstance(node.type, ast.Tuple):
        for at, error in enumerate(node.type.elts):
            other = copy.copy(node)
            elements = [*node.type.elts[:at], *node.type.elts[at + 1 :]]
            other.type = ast.copy_location(ast.Tuple(elements, ast.Load()), node.type)
            yield other, f"except without {_text(error)}"
    elif node.type is not None:
        other = copy.copy(node)
        other.type = ast.copy_location(ast.Tuple([], ast.Load()), node.type)
        yield other, f"except {_text(node.type)} -> except ()"


def _statement(node: ast.stmt) -> _Mutations:
    yield ast.Pass(), f"without {_text(node)}"


def _assignment(node: ast.Assign | ast.AugAssign) -> _Mutations:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if isinstance(node, ast.AugAssign) or any(
        isinstance(target, ast.Attribute | ast.Subscript) for target in targets
    ):
        yield ast.Pass(), f"without {_text(node)}"


def _result(node: ast.Return) -> _Mutations:
    if isinstance(node.value, ast.Constant | None):
        return
    yield _changed(node, value=ast.Constant(value=None))


_BY_KIND: Final[
    tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., _Mutations]], ...]
] = (
    ((ast.If, ast.IfExp, ast.While), _condition),
    (ast.comprehension, _comprehension),
    (ast.Compare, _comparison),
    (ast.BoolOp, _boolean),
    (ast.UnaryOp, _negation),
    (ast.BinOp, _arithmetic),
    (ast.Constant, _number),
    (ast.Call, _call),
    ((ast.Tuple, ast.List, ast.Set), _display),
    (ast.ExceptHandler, _handler),
    ((ast.Expr, ast.Raise, ast.Delete, ast.Break, ast.Continue), _statement),
    ((ast.Assign, ast.AugAssign), _assignment),
    (ast.Return, _result),
)
