"""Unknown sizes from the extents of arguments, and the checks that a call must pass.

    x: f32[2*b, c], y: f32[b]    ->    b = extent 0 of x / 2, c = extent 1 of x; extent 0 of y must be b

The same plan is followed by Python where an exported function is called, and written into its module, so that other
readers of the file refuse what is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple, Record
from weft.stablehlo.text import Tensor, Text
from weft.stablehlo.unknown_sizes import open_text
from weft.stablehlo.unknown_sizes.symbolic_dims import SymbolicDim, combined, terms_of


class Step(NamedTuple):
    """``name = (extent - rest) / times``, the extent being one of an argument's."""

    name: str
    argument: int
    dimension: int
    times: int
    rest: Any


class Check(NamedTuple):
    """What must hold: ``difference`` is zero, or at least zero; ``text`` has the found value at ``{0}``."""

    text: str
    is_equation: bool
    difference: Any  # of sizes; it is taken from the extent that ``extent`` names
    extent: tuple[int, int] | None
    divisor: int = 0  # the extent is to be a multiple


class SizePlan(Record):
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]


def _linear(dim: SymbolicDim, known: set[str]) -> tuple[str, int, Any] | None:
    """(name, count, rest) of a size that is linear in one name that is not known."""
    unknown = dim.names() - known
    if len(unknown) != 1:
        return None
    (name,) = unknown
    count = dim.terms.get(((name, 1),), 0)
    rest = combined(((dim, 1), (SymbolicDim({((name, 1),): count}, dim.scope), -1)), dim.scope) if count else dim
    if not count or (isinstance(rest, SymbolicDim) and name in rest.names()):
        return None
    return name, count, rest


def plan(shapes: Sequence[Sequence[Any]], in_tree: Any) -> SizePlan:
    """How to find the unknown sizes in the shapes of arguments. Raises ValueError where they cannot be found."""
    names = argument_names(in_tree, len(shapes))
    waiting = [
        (argument, dimension, n)
        for argument, shape in enumerate(shapes)
        for dimension, n in enumerate(shape)
        if isinstance(n, SymbolicDim)
    ]
    said = ", ".join([f"{name}.shape = {tuple(s)}" for name, s in zip(names, shapes, strict=True) if _is_open(s)])
    using = f"Using the following polymorphic shapes specifications: {said}."
    steps: list[Step] = []
    known: set[str] = set()
    found = True
    while found:
        found = False
        for item in list(waiting):
            line = _linear(item[2], known)
            if line is not None:
                steps.append(Step(line[0], item[0], item[1], line[1], line[2]))
                known.add(line[0])
                waiting.remove(item)
                found = True
    missing = {name for _, _, n in waiting for name in n.names()} - known
    if missing:
        left = ", ".join([f"'{n}' for dimension size {names[p]}.shape[{d}]" for p, d, n in waiting])
        raise ValueError(
            f"Cannot solve for values of dimension variables {sorted(missing)}. We can only solve linear uni-variate "
            f"constraints. {using} Unprocessed specifications: {left}. Give the function an argument with an extent "
            "that is the variable alone."
        )
    checks = [*_checks_of_steps(steps, shapes, using), *_other_checks(waiting, names, using)]
    scope = next((n.scope for shape in shapes for n in shape if isinstance(n, SymbolicDim)), None)
    for constraint in scope.checks if scope is not None else ():
        difference = constraint.difference
        if difference.names() <= known:
            wanted = "equal to" if constraint.is_equation else "greater or equal to"
            text = (
                f"Input shapes do not match the symbolic shape constraint {constraint.text}. Expected '{difference}' "
                f"to be {wanted} 0, but found {{0}}. {using}"
            )
            checks.append(Check(text, constraint.is_equation, difference, None))
    return SizePlan(tuple(steps), tuple(checks))


def _checks_of_steps(steps: Sequence[Step], shapes: Sequence[Sequence[Any]], using: str) -> list[Check]:
    opening = "Input shapes do not match the polymorphic shapes specification."
    found = []
    for step in steps:
        name, scope = step.name, shapes[step.argument][step.dimension].scope
        if abs(step.times) != 1:
            text = f"{opening} Division had remainder {{0}} when computing the value of '{name}'. {using}"
            found.append(Check(text, True, step.rest, (step.argument, step.dimension), abs(step.times)))
        difference = combined(((SymbolicDim({((name, 1),): 1}, scope), 1), (1, -1)), scope)
        text = f"{opening} Expected value >= 1 for dimension variable '{name}', but found 1 + {{0}}. {using}"
        found.append(Check(text, False, difference, None))
    return found


def _other_checks(waiting: Sequence[tuple[int, int, Any]], names: Sequence[str], using: str) -> list[Check]:
    return [
        Check(
            "Input shapes do not match the polymorphic shapes specification. Found inconsistency between dimension "
            f"size {names[argument]}.shape[{dimension}] and the specification '{n}': they differ by {{0}}. {using}",
            True,
            n,
            (argument, dimension),
        )
        for argument, dimension, n in waiting
    ]


def _is_open(shape: Sequence[Any]) -> bool:
    return any(isinstance(n, SymbolicDim) for n in shape)


def argument_names(in_tree: Any, count: int) -> list[str]:
    """``args[0]``, ``kwargs['k']``: how the flat arguments are called."""
    if in_tree is None:
        return [f"args[{number}]" for number in range(count)]
    tree_util = lazy.submodule("weft.tree_util")
    args, kwargs = runtime.tree_unflatten(in_tree, list(range(count)))
    paths = [
        f"{word}{tree_util.keystr(path)}"
        for word, part in (("args", args), ("kwargs", kwargs))
        for path, _ in tree_util.tree_flatten_with_path(part)[0]
    ]
    return paths if len(paths) == count else [f"args[{number}]" for number in range(count)]


def _value(x: Any, sizes: Mapping[str, int]) -> int:
    return x.at(sizes) if isinstance(x, SymbolicDim) else x


def solved(found: SizePlan, given: Sequence[Sequence[int]]) -> dict[str, int]:
    """The unknown sizes of a call, from the extents of its arguments. Raises ValueError where a check fails."""
    sizes: dict[str, int] = {}
    for step in found.steps:
        sizes[step.name] = (given[step.argument][step.dimension] - _value(step.rest, sizes)) // step.times
    for check in found.checks:
        value = _value(check.difference, sizes)
        if check.extent is not None:
            value = given[check.extent[0]][check.extent[1]] - value
        if check.divisor:
            value %= check.divisor
        if value < 0 or (check.is_equation and value):
            obtained = ", ".join([f"'{name}' = {size}" for name, size in sizes.items()])
            raise ValueError(f"{check.text.format(value)} Obtained dimension variables: {obtained}.")
    return sizes


def written(text: Text, found: SizePlan, arguments: Sequence[Tensor]) -> None:
    """Write the unknown sizes (``text.sizes``) and the checks at the start of a module's function."""
    kind = ((), open_text.INT32)

    def extent(argument: int, dimension: int) -> Tensor:
        return text.op("get_dimension_size", [arguments[argument]], *kind, f"dimension = {dimension} : i64")

    for step in found.steps:
        value = extent(step.argument, step.dimension)
        if terms_of(step.rest):
            value = text.op("subtract", [value, text.extent(step.rest)], *kind)
        if step.times != 1:
            value = text.op("divide", [value, text.constant(step.times, *kind)], *kind)
        text.sizes[step.name] = value
    for check in found.checks:
        value = text.extent(check.difference)
        if check.extent is not None:
            value = text.op("subtract", [extent(*check.extent), value], *kind)
        if check.divisor:
            value = text.op("remainder", [value, text.constant(check.divisor, *kind)], *kind)
        holds = text.compare("eq" if check.is_equation else "ge", value, text.constant(0, *kind))
        message = check.text.replace("\\", "\\\\").replace('"', '\\"')
        given = 'call_target_name = "shape_assertion", api_version = 2 : i32, has_side_effect = true'
        text.ops("custom_call", [holds, value], (), given, discardable=f'error_message = "{message}"')
