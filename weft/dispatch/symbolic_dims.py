"""Extents without a value, for ``eval_shape`` and ``export``: sums of unknown sizes such as ``2*batch + 1``.

weft's programs have extents that are integers. ``eval_shape`` of a function of arrays with unknown sizes traces it at
several sizes, and gives an extent of the result as a sum that fits them all; one that is no such sum, or a function
that does something else at another size, raises InconclusiveDimensionOperation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import runtime, tree_util
from weft.core.avals import get_aval
from weft.dispatch.struct import ShapeDtypeStruct
from weft.errors import InconclusiveDimensionOperation

FIRST, STEP = 83, 6  # sizes to trace at: beyond those at which functions behave in their own way, such as 1 and 2


class SymbolicDim:
    """``constant`` plus unknown sizes by name, each times a whole number.

    >>> batch, = weft.export.symbolic_shape("batch")
    >>> 2 * batch + 1
    2*batch + 1
    """

    is_symbolic = True
    __slots__ = ("constant", "factors")

    def __init__(self, factors: Mapping[str, int], constant: int = 0) -> None:
        self.factors = {name: factor for name, factor in sorted(factors.items()) if factor}
        self.constant = constant

    @staticmethod
    def made(factors: Mapping[str, int], constant: int) -> Any:
        """The sum as an int where it has no unknown."""
        dim = SymbolicDim(factors, constant)
        return dim if dim.factors else constant

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value where the unknown sizes have these values."""
        return self.constant + sum(factor * sizes[name] for name, factor in self.factors.items())

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return SymbolicDim.made(self.factors, self.constant + other)
        if isinstance(other, SymbolicDim):
            names = {*self.factors, *other.factors}
            both = {name: self.factors.get(name, 0) + other.factors.get(name, 0) for name in names}
            return SymbolicDim.made(both, self.constant + other.constant)
        return NotImplemented

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, SymbolicDim):
            raise InconclusiveDimensionOperation(f"[symbolic_shape] {self} times {other} is no sum of unknown sizes")
        if not isinstance(other, int):
            return NotImplemented
        return SymbolicDim.made({name: other * factor for name, factor in self.factors.items()}, other * self.constant)

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        parts = (self.constant, *self.factors.values())
        if any(part % other for part in parts):
            raise InconclusiveDimensionOperation(f"[symbolic_shape] {self} is not known to be divisible by {other}")
        return SymbolicDim.made({k: v // other for k, v in self.factors.items()}, self.constant // other)

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    __radd__, __rmul__ = __add__, __mul__

    def __index__(self) -> int:
        raise InconclusiveDimensionOperation(
            f"[symbolic_shape] the extent {self} has no value: weft uses such extents in eval_shape only; give the "
            "function arrays or structs whose extents are integers"
        )

    __int__ = __index__

    def __lt__(self, other: Any) -> bool:
        raise InconclusiveDimensionOperation(f"[symbolic_shape] {self} has no value, and is not compared with {other}")

    __le__ = __gt__ = __ge__ = __lt__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicDim) and (self.factors, self.constant) == (other.factors, other.constant)

    def __hash__(self) -> int:
        return hash((*self.factors.items(), self.constant))

    def __repr__(self) -> str:
        words = [name if factor == 1 else f"{factor}*{name}" for name, factor in self.factors.items()]
        return " + ".join([*words, *([str(self.constant)] if self.constant else [])]).replace("+ -", "- ")


_CONSTRAINT = re.compile(r"\s*([A-Za-z_]\w*)\s*>=\s*(\d+)\s*")
_TERM = re.compile(r"\s*(-?)\s*(?:(\d+)\s*\*\s*)?([A-Za-z_]\w*)\s*")


def _parsed(word: str) -> Any:
    if re.fullmatch(r"\s*\d+\s*", word):
        return int(word)
    total: Any = 0
    for term in re.sub(r"(?<=[\w\s])-", "+-", word.strip()).split("+"):
        found = _TERM.fullmatch(term)
        if found is None:
            if not re.fullmatch(r"-?\d+", term := term.replace(" ", "")):
                raise NotImplementedError(
                    f"[symbolic_shape] an extent is an integer or a sum such as 2*n + 1, got {word.strip()!r}"
                )
            total = total + int(term)
        else:
            total = total + SymbolicDim({found[3]: int(found[1] + (found[2] or "1"))})
    return total


class SymbolicScope:
    """Names of unknown sizes, and constraints on them, that belong together."""

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        self.constraints = tuple(constraints_str)
        symbolic_shape("", constraints=self.constraints)


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """Structs for arguments: their dtypes, with the shapes that ``shapes_specs`` says (None: their own).

    ``shapes_specs`` is one specification for all arrays (see ``symbolic_shape``), or a tree of them, a prefix of args.

    >>> weft.export.symbolic_args_specs((np.ones((2, 3), np.float32),), ("b, _",))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32),)
    """

    def one(spec: Any, leaf: Any) -> ShapeDtypeStruct:
        aval = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else get_aval(leaf)
        shape = aval.shape if spec is None else symbolic_shape(spec, constraints=constraints, like=aval.shape)
        return ShapeDtypeStruct(shape, aval.dtype)

    is_spec = lambda x: x is None or isinstance(x, str)  # noqa: E731 - a predicate
    specs = tree_util.tree_broadcast(shapes_specs, args, is_leaf=is_spec)
    leaves, tree = runtime.tree_flatten(args)
    listed = tree_util.tree_leaves(specs, is_leaf=is_spec)
    return runtime.tree_unflatten(tree, [one(spec, leaf) for spec, leaf in zip(listed, leaves, strict=True)])


def symbolic_shape(
    shape_spec: str | None, *, constraints: Sequence[str] = (), scope: Any = None, like: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """The extents that ``shape_spec`` names, such as ``"batch, 2*n, 3"``; ``_`` and ``...`` are those of ``like``.

    ``constraints`` are lower bounds, ``"n >= 2"``, of at most 80: every size at which functions are traced is larger.

    >>> weft.export.symbolic_shape("b, _", like=(None, 4))
    (b, 4)
    >>> weft.eval_shape(lambda x: jnp.concatenate([x, x]), weft.ShapeDtypeStruct(_, jnp.float32)).shape
    (2*b, 4)
    """
    for constraint in constraints:
        found = _CONSTRAINT.fullmatch(constraint)
        if found is None or int(found[2]) > FIRST - 3:
            raise NotImplementedError(
                f"[symbolic_shape] a constraint is a lower bound such as 'n >= 2', at most {FIRST - 3}; "
                f"got {constraint!r}"
            )
    words = [word for word in (shape_spec or "").strip().strip("()").split(",") if word.strip()]
    extents: list[Any] = []
    for place, word in enumerate(words):
        if word.strip() in ("_", "...") and like is None:
            raise ValueError(f"[symbolic_shape] {word.strip()!r} takes its extent from like=, which was not given")
        if word.strip() == "...":
            extents += list(like or ())[place : len(like or ()) - (len(words) - place - 1)]
        else:
            extents.append((like or ())[place] if word.strip() == "_" else _parsed(word))
    return tuple(extents)


def is_symbolic_dim(p: Any) -> bool:
    """Whether an extent is an expression in unknown sizes.

    >>> weft.export.is_symbolic_dim(3)
    False
    """
    return isinstance(p, SymbolicDim)


# -- eval_shape -------------------------------------------------------------------------------------------------------


def names_in(leaves: Sequence[Any]) -> list[str]:
    """The unknown sizes in the shapes of structs."""
    dims = [dim for leaf in leaves if isinstance(leaf, ShapeDtypeStruct) for dim in leaf.shape]
    return sorted({name for dim in dims if isinstance(dim, SymbolicDim) for name in dim.factors})


def points_of(names: Sequence[str]) -> list[dict[str, int]]:
    """The sizes to trace at: a first, one with a step in each name, and one to check."""
    first = {name: FIRST + 2 * STEP * place for place, name in enumerate(names)}
    points = [first, *[{**first, name: first[name] + STEP} for name in names]]
    points.append({name: 3 * size + 2 for name, size in first.items()})
    return points


def points_to_check(names: Sequence[str]) -> list[dict[str, int]]:
    """More sizes: with many divisors, as programs that ask for one do something else there."""
    return [{name: 420 * (place + 1) for place, name in enumerate(names)}]


def placed(leaf: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(leaf, ShapeDtypeStruct):
        return leaf
    return leaf.update(shape=tuple(dim.at(sizes) if isinstance(dim, SymbolicDim) else dim for dim in leaf.shape))


def fitted(names: Sequence[str], points: Sequence[Mapping[str, int]], values: Sequence[int]) -> Any:
    """The extent that has these values at these points: the first, one step in each name, and one to check."""
    factors = {}
    for name, value in zip(names, values[1:-1], strict=True):
        factors[name], rest = divmod(value - values[0], STEP)
        if rest:
            break
    else:
        constant = values[0] - sum(factor * points[0][name] for name, factor in factors.items())
        dim = SymbolicDim(factors, constant)
        if dim.at(points[-1]) == values[-1]:
            return SymbolicDim.made(factors, constant)
    raise InconclusiveDimensionOperation(
        f"[eval_shape] an extent of the result is {values[0]} where {dict(points[0])} and {values[-1]} where "
        f"{dict(points[-1])}, which is no sum of the unknown sizes with whole factors"
    )


def eval_shape(structs: Callable[..., Any], leaves: Sequence[Any], treedef: Any) -> Any:
    """``structs(*args, **kwargs)`` at several sizes, with the extents that fit all of them."""
    names = names_in(leaves)
    points = points_of(names)
    found = []
    for sizes in points:
        args, kwargs = runtime.tree_unflatten(treedef, [placed(leaf, sizes) for leaf in leaves])
        found.append(runtime.tree_flatten(structs(*args, **kwargs)))
    if any(tree != found[0][1] for _, tree in found):
        raise InconclusiveDimensionOperation("[eval_shape] the structure of the result depends on an unknown size")
    fit = functools.partial(fitted, names, points)
    results = []
    for outs in zip(*[outs for outs, _ in found], strict=True):
        if any((len(out.shape), out.dtype) != (len(outs[0].shape), outs[0].dtype) for out in outs):
            raise InconclusiveDimensionOperation(
                "[eval_shape] the rank or dtype of a result depends on an unknown size"
            )
        results.append(outs[0].update(shape=tuple(map(fit, zip(*[out.shape for out in outs], strict=True)))))
    return runtime.tree_unflatten(found[0][1], results)
