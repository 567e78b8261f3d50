"""From the text of a StableHLO module to a jaxpr: the operations of the main function are run under a trace.

Constants stay NumPy arrays, and so do small integers that are computed from them and from extents (``known_extents``):
shapes that a module leaves open are known where it is read. How an operation is read stands in ``read_operations``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, runtime
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tracing.trace import trace_to_jaxpr
from weft.stablehlo.reading import known_extents, parser, read_operations, read_shards
from weft.stablehlo.reading.parser import Module, Operation, ParsedRegion, Parser

Environment = dict[str, Any]
COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ["add", "multiply", "minimum", "maximum", "and", "or", "xor"])


def program(
    text: str,
    name: str = "main",
    *,
    platforms: Sequence[str] = ("cpu",),
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> ClosedJaxpr:
    """The program of a function of a module, in generic form (weft's own text, or what a portable artifact holds).

    ``shapes`` are those of the arguments, where the module leaves extents open.
    Raises NotImplementedError for an operation that weft does not have, ValueError for text that is no such module.

    >>> text = weft.jit(lambda x: x + 1).lower(np.float32(1)).as_text("stablehlo")
    >>> from weft.stablehlo.reading import reader
    >>> reader.program(text)
    { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }
    """
    try:
        return _program(text, name, platforms, shapes)
    except (LookupError, AttributeError, TypeError, AssertionError, OverflowError, RecursionError) as e:
        # damaged names, attributes and types make many functions fail, each in its way: the caller gets one error
        raise ValueError(f"[stablehlo] the text is damaged, or no module: {type(e).__name__}: {e}") from e


def _program(text: str, name: str, platforms: Sequence[str], shapes: Sequence[tuple[int, ...]] | None) -> ClosedJaxpr:
    module = Parser(text).module()
    functions = module.functions
    if name not in functions:
        raise ValueError(f"[stablehlo] the module has no function {name!r}; it has {', '.join(functions)}")
    main = functions[name]
    fixed = [np.int32(platforms.index("cpu") if "cpu" in platforms else 0)] if len(platforms) > 1 else []
    arguments = main.arguments[len(fixed) :]
    if shapes is None:
        shapes = [shape for _, (shape, _) in arguments]
    avals = []
    for (argument, (expected, dtype)), shape in zip(arguments, shapes, strict=True):
        if any(n is None for n in shape):
            raise ValueError(f"[stablehlo] the argument {argument} has extents without a value: give shapes=")
        if len(shape) != len(expected) or any(m not in (n, None) for m, n in zip(expected, shape, strict=True)):
            raise ValueError(f"[stablehlo] the argument {argument} has the shape {expected}, got {tuple(shape)}")
        avals.append(runtime.ShapedArray(tuple(shape), dtype))
    reading = Reading(module)
    ins, outs = [[reading.sharding(given) for given in each] for each in module.lies[name]]

    def run(*values: Any) -> list[Any]:
        results = reading.run(main, [*fixed, *_constrained(values, ins[len(fixed) :])], {})
        return _constrained(results, outs)

    with config.context("enable_x64", True):  # the types are those of the text
        closed = trace_to_jaxpr(run, avals)[0]
    # weft's arrays keep 64 bits also where the option is off; NumPy's would lose them
    pairs = zip(closed.jaxpr.constvars, closed.consts, strict=True)
    return closed.replace(consts=[runtime.array_from_numpy(np.array(c, v.aval.dtype), v.aval) for v, c in pairs])


def _constrained(values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Arguments or results that lie as the attributes of a function say."""
    return [read_shards.constrained(x, sharding) for x, sharding in itertools.zip_longest(values, given[: len(values)])]


class Reading:
    """The functions of a module, run by name; ``by_hand``: the program of a shard in which an operation stands."""

    def __init__(self, module: Module) -> None:
        self.functions = module.functions
        self.meshes = {name: read_shards.mesh_of(text) for name, text in module.meshes.items()}
        self.n_devices = module.n_devices
        self.by_hand: read_shards.ByHand | None = None

    def sharding(self, attributes: dict[str, str]) -> Any:
        """How an argument or result lies; None if nothing is said."""
        found = read_shards.shardings_of(attributes.get("sdy.sharding", ""), self.meshes)
        return found[0] if found else None

    def run(self, block: ParsedRegion, values: Sequence[Any], outer: Environment) -> list[Any]:
        """The results of a block on these arguments; regions see the values around them."""
        env = {**outer, **{name: value for (name, _), value in zip(block.arguments, values, strict=True)}}
        for operation in block.operations:
            if operation.name.endswith(".return"):
                return [env[name] for name in operation.operands]
            found = self.operation(operation, [env[name] for name in operation.operands], env)
            if len(operation.results) == 1 and len(found) != 1:
                env |= {f"{operation.results[0]}#{index}": value for index, value in enumerate(found)}
            env |= dict(zip(operation.results, found))
        return []

    def operation(self, operation: Operation, operands: list[Any], env: Environment) -> list[Any]:
        fold = known_extents.fold(operation.name, operands)
        if fold is not None:
            return [fold(Site(self, operation, env), *operands)]
        reader = read_operations.READERS.get(operation.name)
        if reader is None:
            target = operation.attributes.get("call_target_name", "")
            raise NotImplementedError(f"[stablehlo] the operation {operation.name} {target} is not read")
        found = reader(Site(self, operation, env), *operands)
        return list(found) if isinstance(found, (list, tuple)) else [found]


class Site:
    """An operation where it stands: its attributes, and its regions as functions."""

    def __init__(self, reading: Reading, operation: Operation, env: Environment) -> None:
        self.reading = reading
        self.operation = operation
        self.env = env

    @property
    def types(self) -> list[Any]:
        return self.operation.types

    def attribute(self, name: str) -> str | None:
        return self.operation.attributes.get(name)

    def region(self, number: int = 0) -> Callable[..., list[Any]]:
        block = self.operation.regions[number]
        return lambda *values: self.reading.run(block, values, self.env)

    def called(self, name: str) -> Callable[..., list[Any]]:
        block = self.reading.functions[name]
        return lambda *values: self.reading.run(block, values, {})

    def of_one(self, index: int, count: int) -> Site:
        """This operation for one of its arrays alone: the region combines the elements of each array by themselves.

        NotImplementedError if what it makes of one array's elements depends on another's.
        """
        block = self.operation.regions[0]
        own = [block.arguments[index], block.arguments[count + index]]
        result = block.operations[-1].operands[index]
        if not parser.reached(block, result) <= {name for name, _ in own}:
            raise NotImplementedError(f"[stablehlo] {self.operation.name} of several arrays whose elements are mixed")
        made = parser.needed(block, result)
        kept = [op for op in block.operations[:-1] if set(op.results) & made]
        region = ParsedRegion(own, [*kept, block.operations[-1]._replace(operands=[result])])
        return Site(self.reading, self.operation._replace(regions=[region]), self.env)

    def single(self, number: int = 0) -> str:
        """The name of the one operation by which a region combines its arguments in order.

        "second" if the region returns its second argument; "" for any other region.
        """
        block = _without_constraints(self.operation.regions[number])
        names = [name for name, _ in block.arguments]
        if len(names) == 2 and len(block.operations) == 1 and block.operations[0].operands == [names[1]]:
            return "second"
        if len(block.operations) != 2 or len(names) != 2 or len(block.operations[1].operands) != 1:
            return ""
        operation = block.operations[0]
        in_order = operation.operands == names or (operation.operands == names[::-1] and operation.name in COMMUTATIVE)
        return operation.name if in_order and block.operations[1].operands == operation.results else ""


def _without_constraints(block: ParsedRegion) -> ParsedRegion:
    """The block without statements of how values lie."""
    if not any(op.name == "sdy.sharding_constraint" for op in block.operations):
        return block
    same: dict[str, str] = {}
    kept = []
    for op in block.operations:
        operands = [same.get(name, name) for name in op.operands]
        if op.name == "sdy.sharding_constraint":
            same[op.results[0]] = operands[0]
        else:
            kept.append(op._replace(operands=operands))
    return ParsedRegion(block.arguments, kept)
