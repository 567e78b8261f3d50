"""Names of unknown sizes with the constraints on them, and the language in which shapes and constraints are written.

    symbolic_shape("b, 2*n + 1, _", constraints=["b >= 4", "mod(n, 8) == 0"], like=(None, None, 3))

An equation is kept as a rule (its first term is replaced by the rest, in every size of the scope), an inequality for
the bounds of sizes (``size_bounds``). Both are checked where an exported function is called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.avals import get_aval
from weft.core.tracing import source_info
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.stablehlo.unknown_sizes import size_bounds, symbolic_dims
from weft.stablehlo.unknown_sizes.symbolic_dims import SymbolicDim


class Equation(NamedTuple):
    """``times * term == value``: the left side is replaced by the right one."""

    term: Any
    times: int
    value: Any


class Constraint(NamedTuple):
    """A constraint as it was written, and what is zero (``is_equation``) or at least zero by it."""

    text: str
    difference: Any
    is_equation: bool


class SymbolicScope:
    """Names of unknown sizes, and constraints on them, that belong together.

    >>> scope = weft.export.SymbolicScope(["b >= 4", "a == 2*b"])
    >>> a, b = weft.export.symbolic_shape("a, b", scope=scope)
    >>> a, b >= 3
    (2*b, True)
    """

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str):
            raise ValueError(f"The symbolic constraints should be a sequence of strings. Got {constraints_str!r}")
        self.constraints = tuple(constraints_str)
        self.equations: list[Equation] = []
        self.inequalities: list[SymbolicDim] = []
        self.checks: list[Constraint] = []
        self.ranges: dict[str, size_bounds.Range] = {}
        self.bounds: dict[SymbolicDim, size_bounds.Range] = {}
        self.where = source_info.summarize(source_info.capture())
        for text in self.constraints:
            self._constrain(text)

    def factor(self, operation: Any) -> SymbolicDim:
        """An operation as a size."""
        return SymbolicDim({((operation, 1),): 1}, self)

    def _constrain(self, text: Any) -> None:
        if not isinstance(text, str):
            raise ValueError(f"The symbolic constraints should be a sequence of strings. Got {text!r}")
        found = re.search(r"==|>=|<=", text)
        if found is None:
            raise ValueError(
                f"Constraint parsing error: {text!r} must contain one of '==' or '>=' or '<=', as in 'b >= 4'"
            )
        left, right = (_Parser(part, self).only() for part in (text[: found.start()], text[found.end() :]))
        if found[0] == "==":
            self._equate(text, left, right)
        else:
            difference = left - right if found[0] == ">=" else right - left
            self._bound(text, difference)
        self.bounds.clear()

    def _bound(self, text: str, difference: Any) -> None:
        if size_bounds.decided(difference) is False:
            raise ValueError(f"Unsatisfiable explicit constraint: {text}")
        if isinstance(difference, SymbolicDim):
            self.inequalities.append(difference)
            self.checks.append(Constraint(text, difference, False))
            line = difference.linear()
            if line is not None:
                name, count, constant = line
                low, high = self.ranges.get(name, (1, float("inf")))
                own = -(constant // count) if count > 0 else constant // -count
                self.ranges[name] = (max(low, own), high) if count > 0 else (low, min(high, own))

    def _equate(self, text: str, left: Any, right: Any) -> None:
        if isinstance(left, int):
            left, right = right, left
        difference = left - right
        low, high = size_bounds.bounds(difference)
        if low > 0 or high < 0:
            raise ValueError(f"Unsatisfiable explicit constraint: {text}")
        if isinstance(left, int) or isinstance(difference, int):
            return
        terms = left.terms
        if len(terms) > 1:
            raise ValueError(
                f"Invalid equality constraint: {text}. The left-hand-side must be of the form 'term * coefficient'."
            )
        ((term, count),) = terms.items()
        if count < 0:
            count, right = -count, -right
        if len(term) == 1 and isinstance(term[0][0], symbolic_dims.Operation) and term[0][0].name == "mod":
            # left % n == r says that n divides left - r
            x, n = term[0][0].left, term[0][0].right
            quotient = x // n
            if count == 1 and isinstance(quotient, SymbolicDim) and isinstance(n, int):
                ((inner, _),) = quotient.terms.items()
                self._keep(text, Equation(inner, n, x - right), difference)
                return
        self._keep(text, Equation(term, count, right), difference)

    def _keep(self, text: str, equation: Equation, difference: Any) -> None:
        self.checks.append(Constraint(text, difference, True))
        self.equations.append(equation)

    def __str__(self) -> str:
        lines = "".join([f"\n  {text}" for text in self.constraints])
        return f"{id(self)} created at {self.where}" + (f" with constraints:{lines}" if lines else "")


# -- shapes in words --------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\.\.\.|\*\*|//|==|[<>]=|.))")
_CALLS = ("floordiv", "mod", "max", "min")


class _Parser:
    """Reads sizes: sums of products of names, numbers, powers ``b^2``, and calls such as ``floordiv(b, 2)``."""

    def __init__(self, text: str, scope: SymbolicScope, like: Sequence[Any] | None = None) -> None:
        self.text = text
        self.scope = scope
        self.like = None if like is None else tuple(like)
        self.position = 0
        self.dimension = 0

    def error(self, detail: str, at: int | None = None) -> ValueError:
        at = self.position if at is None else at
        return ValueError(
            f"syntax error in symbolic shape {self.text!r} in dimension {self.dimension}: {detail}. "
            f"Parsed {self.text[:at]!r}, remaining {self.text[at:]!r}."
        )

    def peek(self) -> tuple[str, str]:
        """Kind and text of the next word."""
        found = _TOKEN.match(self.text, self.position)
        if found is None or found.lastgroup is None or not found[0].strip():
            return "end", ""
        return found.lastgroup, found[found.lastgroup]

    def take(self, *words: str) -> str | None:
        """The next word if it is one of these."""
        word = self.peek()[1]
        if word not in words or not word:
            return None
        found = _TOKEN.match(self.text, self.position)
        assert found is not None
        self.position = found.end()
        return word

    def only(self) -> Any:
        """The one size that the text is."""
        found = self.sum()
        if self.peek()[0] != "end":
            raise self.error(f"expecting the end, or one of * + -, but found {self.peek()[1]!r}")
        return found

    def shape(self) -> tuple[Any, ...]:
        closing = {"(": ")", "[": "]"}.get(self.take("(", "[") or "")
        extents: list[Any] = []
        while self.peek()[0] != "end" and self.peek()[1] != closing:
            self.dimension = len(extents)
            start = self.position
            if (word := self.take("_", "...")) is not None:
                extents += self.known(word, len(extents), start)
            else:
                extents.append(self.checked(self.sum(), len(extents), start))
            if self.take(",") is None:
                break
        if closing is not None and self.take(closing) is None:
            raise self.error(f"expecting {closing!r}, but found {self.peek()[1] or 'the end'!r}")
        if self.peek()[0] != "end":
            raise self.error(f"expecting one of * + - or a comma, but found {self.peek()[1]!r}")
        if self.like is not None and len(extents) != len(self.like):
            raise self.error(f"the specification has {len(extents)} dimensions; like={self.like}")
        return tuple(extents)

    def known(self, word: str, index: int, start: int) -> Sequence[Any]:
        """The extents of ``like`` for a blank."""
        if self.like is None:
            raise self.error(f"{word!r} takes its extent from like=, which was not given", start)
        if word == "...":
            after = self.text[self.position :].count(",")
            return self.like[index : len(self.like) - after]
        if index >= len(self.like):
            raise self.error(f"no such dimension; like={self.like}", start)
        if self.like[index] is None:
            raise self.error(f"the placeholder stands for an extent that like= does not know; like={self.like}", start)
        return [self.like[index]]

    def checked(self, extent: Any, index: int, start: int) -> Any:
        own = self.like[index] if self.like is not None and index < len(self.like) else None
        if isinstance(extent, int) and isinstance(own, int) and own != extent:
            raise self.error(f"different size {extent} for known dimension; like={self.like}", start)
        return extent

    def sum(self) -> Any:
        total: Any = 0
        sign = self.take("-", "+") or "+"
        while True:
            sign = "-" if (self.take("-") is None) == (sign == "-") else "+"
            total = total - self.product() if sign == "-" else total + self.product()
            found = self.take("+", "-")
            if found is None:
                return total
            sign = found

    def product(self) -> Any:
        found = self.power()
        while self.take("*") is not None:
            found = found * self.power()
        return found

    def power(self) -> Any:
        found = self.factor()
        if self.take("^") is not None:
            return found ** self.integer()
        return found

    def integer(self) -> int:
        kind, word = self.peek()
        if kind != "number" or "." in word:
            raise self.error(f"expecting integer, found {word or 'the end'}")
        self.take(word)
        return int(word)

    def factor(self) -> Any:
        kind, word = self.peek()
        if kind == "number":
            return self.integer()
        if kind != "name" or word == "_":
            raise self.error(f"expecting a name, a number or -, but found {word or 'the end'!r}")
        self.take(word)
        if word not in _CALLS or self.peek()[1] != "(":
            return symbolic_dims.variable(word, self.scope)
        self.take("(")
        left = self.sum()
        if self.take(",") is None:
            raise self.error(f"expecting ',' and the second operand of {word}")
        right = self.sum()
        if self.take(")") is None:
            raise self.error(f"expecting ')' after the operands of {word}")
        return symbolic_dims.operation(word, left, right, self.scope)


def symbolic_shape(
    shape_spec: str | None, *, constraints: Sequence[str] = (), scope: Any = None, like: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """The extents that ``shape_spec`` names, such as ``"batch, 2*n, 3"``; ``_`` and ``...`` are those of ``like``.

    ``constraints`` say what is known of the sizes, ``"n >= 2"``, ``"mod(n, 8) == 0"``, ``"a == 2*b"``, and hold where
    the exported function is called. Sizes that one function takes are made in one call, or with one ``scope``.

    >>> weft.export.symbolic_shape("b, _", like=(None, 4))
    (b, 4)
    >>> weft.eval_shape(lambda x: jnp.concatenate([x, x]), weft.ShapeDtypeStruct(_, jnp.float32)).shape
    (2*b, 4)
    """
    if shape_spec is not None and not isinstance(shape_spec, str):
        raise ValueError(f"polymorphic shape spec should be None or a string. Found {shape_spec}.")
    if scope is not None and constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`.")
    scope = SymbolicScope(constraints) if scope is None else scope
    return _Parser("..." if shape_spec is None else shape_spec, scope, like).shape()


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """Structs for arguments: their dtypes, with the shapes that ``shapes_specs`` says (None: their own).

    ``shapes_specs`` is one specification for all arrays (see ``symbolic_shape``), or a tree of them, a prefix of args.

    >>> weft.export.symbolic_args_specs((np.ones((2, 3), np.float32),), ("b, _",))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32),)
    """
    if scope is not None and constraints:
        raise ValueError("Cannot use both `scope` and `constraints`")
    shared = SymbolicScope(constraints) if scope is None else scope

    def one(spec: Any, leaf: Any) -> ShapeDtypeStruct:
        aval = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else get_aval(leaf)
        shape = aval.shape if spec is None else symbolic_shape(spec, scope=shared, like=aval.shape)
        return ShapeDtypeStruct(shape, aval.dtype)

    tree_util = lazy.submodule("weft.tree_util")
    is_spec = lambda x: x is None or isinstance(x, str)  # noqa: E731 - a predicate
    specs = tree_util.tree_broadcast(shapes_specs, args, is_leaf=is_spec)
    leaves, tree = runtime.tree_flatten(args)
    listed = tree_util.tree_leaves(specs, is_leaf=is_spec)
    return runtime.tree_unflatten(tree, [one(spec, leaf) for spec, leaf in zip(listed, leaves, strict=True)])
