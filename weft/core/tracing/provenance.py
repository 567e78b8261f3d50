"""What a traced value depends on, told for error messages.

``Origin`` is computed only when an error is raised. It has the function being traced and its line, the paths of the
arguments that the value depends on (if there are none, the operations that made it), and the user's line at which the
value was needed.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Sequence
from typing import Any

from weft._base.record import Record
from weft.core.programs.jaxpr import Atom, DebugInfo, JaxprEqn, Literal, Var
from weft.core.tracing import source_info

_N_OPERATIONS_SHOWN = 5


class Origin(Record):
    """Where a traced value comes from, and where it was needed."""

    text: str  # the sentence of the message
    function: str | None
    traced_for: str
    arg_paths: tuple[str, ...]
    static_names: tuple[str, ...]  # parameters that could be marked static: those passed as scalars
    use: Use


class Use(Record):
    """The user's innermost frame: where a value was needed."""

    location: str = ""  # file:line (function)
    line: str = ""  # the source line
    expression: str = ""  # the part of it that was being evaluated

    def __str__(self) -> str:
        return f"{self.location}:\n    {self.line}" if self.line else self.location


def _condition(line: str) -> str:
    """The condition of a line that holds an ``if``, ``while`` or ``assert``; empty for other lines."""
    text = line.strip().removeprefix("el")
    if not text.startswith(("if ", "if(", "while ", "while(", "assert ", "assert(")):
        return ""
    for candidate in (text, f"{text} pass"):
        try:
            statement = ast.parse(candidate).body[0]
        except SyntaxError:
            continue
        if isinstance(statement, (ast.If, ast.While, ast.Assert)):
            return _for_arrays(statement.test, ast.get_source_segment(candidate, statement.test) or "")
    return ""


class _BitOperators(ast.NodeTransformer):
    """``and``, ``or``, ``not`` and chained comparisons, which ask for truth values, as ``&``, ``|`` and ``~``."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return functools.reduce(lambda left, right: ast.BinOp(left, operator, right), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        pairs = [ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:])]
        return self.visit_BoolOp(ast.BoolOp(ast.And(), list[ast.expr](pairs)))


def _for_arrays(condition: ast.expr, text: str) -> str:
    """A condition rewritten so that it works on arrays; unchanged where it already does."""
    scalar = any(
        isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
        or (isinstance(node, ast.Compare) and len(node.ops) > 1)
        for node in ast.walk(condition)
    )
    return ast.unparse(ast.fix_missing_locations(_BitOperators().visit(condition))) if scalar else text


def use_of_value() -> Use:
    """The user's innermost frame."""
    frame = source_info.user_frame(sys._getframe(1))
    if frame is None:
        return Use()
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno)
    expression = _condition(text)
    first, last, start, stop = source_info.position(code, frame.f_lasti)
    if not expression and first == last == frame.f_lineno and start is not None and stop is not None:
        expression = text.encode()[start:stop].decode(errors="replace")
    return Use(f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})", text.strip(), expression)


def ancestors(v: Var, eqns: Sequence[JaxprEqn]) -> tuple[set[Var], list[JaxprEqn]]:
    """The variables ``v`` depends on (itself included), and the equations between, in program order."""
    reached = {v}
    between: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if any(out in reached for out in eqn.outvars):
            between.append(eqn)
            reached.update(atom for atom in eqn.invars if isinstance(atom, Var))
    return reached, between[::-1]


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, and c``."""
    if len(items) <= 2:
        return " and ".join(items)
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def traced_function(debug_info: DebugInfo) -> str:
    return f"The error occurred while tracing the function {debug_info.func_src_info} for {debug_info.traced_for}."


def describe(trace: Any, value: Atom) -> Origin | None:
    """The origin of a variable of a program being recorded (a ``DynamicJaxprTrace``)."""
    info: DebugInfo | None = trace.debug_info
    if info is None:
        return None
    reached, between = ({value}, []) if isinstance(value, Literal) else ancestors(value, trace.eqns)
    behind = [(name, v) for name, v in zip(info.arg_names or (), trace.invars) if v in reached]
    paths = tuple(name for name, _ in behind)
    plain = all(name.isidentifier() and v.aval.shape == () for name, v in behind)
    text = traced_function(info)
    if paths:
        many = len(paths) > 1
        text += (
            " This concrete value was not available in Python because it depends on the "
            f"value{'s' if many else ''} of the argument{'s' if many else ''} {listed(paths)}."
        )
    elif between:
        text += _operations(between)
    origin = Origin(text, info.func_name, info.traced_for, paths, paths if plain else (), use_of_value())
    captured = [const for v, const in zip(trace.constvars, trace.consts) if v in reached and hasattr(const, "_origin")]
    return origin if paths or not captured else _captured_origin(origin, captured)


def _captured_origin(origin: Origin, captured: Sequence[Any]) -> Origin:
    """The origin of a value that depends only on values of an enclosing function, told by that function's arguments."""
    outer = captured[0]._origin()
    if outer is None or not outer.arg_paths:
        return origin
    text = (
        f"{origin.text}\nThe value was captured from the enclosing function {outer.function}, "
        f"where it depends on {listed(outer.arg_paths)}."
    )
    return outer.replace(text=text, use=origin.use)


def _operations(eqns: Sequence[JaxprEqn]) -> str:
    """The operations that made a value that depends on no argument."""
    lines = [
        f"  operation {eqn!r}\n    from line {source_info.summarize(eqn.source)}" for eqn in eqns[:_N_OPERATIONS_SHOWN]
    ]
    text = " This value became a tracer due to JAX operations on these lines:\n\n" + "\n\n".join(lines)
    if len(eqns) > _N_OPERATIONS_SHOWN:
        text += "\n\n(Additional originating lines are not shown.)"
    return text
