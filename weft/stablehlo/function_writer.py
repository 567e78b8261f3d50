"""Writes the functions of a module of StableHLO, and into each the equations of a program.

``FunctionWriter`` goes through the equations; the rule that ``module`` hands down writes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.tracing import source_info
from weft.dispatch.programs.lowered_shardings import LoweredShardings
from weft.errors import InconclusiveDimensionOperation
from weft.stablehlo import shardy, types
from weft.stablehlo.text import Tensor, Text
from weft.stablehlo.unknown_sizes import open_equations, size_checks
from weft.stablehlo.unknown_sizes.size_fits import MorePoints

if TYPE_CHECKING:
    from weft.stablehlo import collectives

Interface = tuple[Sequence[Any], Sequence[Any]]  # the types of arguments and of results
EquationWriter = Callable[["FunctionWriter", JaxprEqn, list[Tensor]], Sequence[Tensor]]
Rule = Callable[["ModuleWriter", JaxprEqn], "EquationWriter | None"]


def symbol(name: str) -> str:
    """A name that may stand behind an @."""
    return re.sub(r"[^\w.$]", "_", name).rstrip("_") or "_"


class ModuleWriter:
    """The functions of a module; a program that is called twice is one function.

    ``rule``: gives what writes an equation, None if nothing does.
    ``calls_lapack``: linear algebra may call LAPACK, which compilers for the CPU bring.
    ``meshes``: those that shardings name; None for a module that says nothing of shardings. ``by_hand``: where what is
    being written is part of a program of shards.
    """

    def __init__(
        self,
        rule: Rule,
        debug_info: bool,
        platforms: tuple[str, ...] = ("cpu",),
        shardings: LoweredShardings | None = None,
        plan: size_checks.SizePlan | None = None,
    ) -> None:
        self.rule = rule
        self.plan = plan
        self.chooses = len(platforms) > 1  # programs may ask on which platform they run, which main is told
        self.functions: list[str] = []
        self.platforms = platforms
        self.meshes = None if shardings is None else shardy.Meshes(shardings.n_devices)
        self.by_hand: collectives.ByHand | None = None
        self.calls_lapack = shardings is not None and shardings.is_for_host and platforms == ("cpu",)
        self.debug_info = debug_info
        self._names: set[str] = set()
        self._known: dict[Any, tuple[str, Any]] = {}

    def reserve(self, name: str) -> str:
        """A symbol that no function of the module has, like ``name``."""
        base = symbol(name)
        found, count = base, 0
        while found in self._names:
            found, count = f"{base}{'.' if base.startswith('weft.') else '_'}{count}", count + 1
        self._names.add(found)
        return found

    def called(self, closed: ClosedJaxpr, name: str) -> str:
        """The symbol of the function of a program."""
        key = (self.by_hand, id(closed.jaxpr), *map(id, closed.consts))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (self.reserve(name), closed)  # kept, so that ids stay its own
            index = len(self.functions)
            self.functions.insert(index, self.function(closed, found[0], "private"))
        return found[0]

    def expression(self, key: Any, name: str, operands: Sequence[Tensor], write: Callable[..., Tensor]) -> str:
        """The symbol of a function for a long scalar expression over operands of one shape."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (self.reserve(name), None)
            text = Text()
            arguments = [Tensor(f"%arg{index}", x.shape, x.dtype) for index, x in enumerate(operands)]
            result = write(text, arguments)
            self.functions.append(_function_text(text, f"private @{found[0]}", arguments, [result]))
        return found[0]

    def function(
        self,
        closed: ClosedJaxpr,
        name: str,
        visibility: str,
        argument_attributes: Sequence[str] = (),
        result_attributes: Sequence[str] = (),
        interface: Interface | None = None,
    ) -> str:
        """The text of a program's function; ``interface`` are its types before random keys became words."""
        writer = FunctionWriter(self, Text())
        text = writer.text
        ins, outs = interface or (closed.in_avals, closed.out_avals)
        arguments = [
            Tensor(f"%arg{index}", *type_of(outer if outer.dtype == dtypes.float0 else inner))
            for index, (outer, inner) in enumerate(zip(ins, closed.in_avals, strict=True))
        ]
        if self.plan is not None and visibility == "public":
            size_checks.written(text, self.plan, arguments)
        given = [writer.shaped(x, aval) for x, aval in zip(arguments, closed.in_avals, strict=True)]
        found = writer.program(closed, given)
        results = [
            writer.shaped(x, aval) if aval.dtype == dtypes.float0 else x for x, aval in zip(found, outs, strict=True)
        ]
        return _function_text(text, f"{visibility} @{name}", arguments, results, argument_attributes, result_attributes)


def _function_text(
    text: Text,
    name: str,
    arguments: Sequence[Tensor],
    results: Sequence[Tensor],
    argument_attributes: Sequence[str] = (),
    result_attributes: Sequence[str] = (),
) -> str:
    """A function whose lines are written."""
    inputs = [f"{x.name}: {x.type}" for x in arguments]
    outputs = [x.type for x in results]
    for listed, attributes in ((inputs, argument_attributes), (outputs, result_attributes)):
        for index, attribute in enumerate(attributes):
            listed[index] += f" {{{attribute}}}" if attribute else ""
    end = "func.return"
    if results:
        end += f" {', '.join([x.name for x in results])} : {', '.join([x.type for x in results])}"
    header = f"func.func {name}({', '.join(inputs)}) -> ({', '.join(outputs)}) {{"
    lines = [line for block in (*text.lines, end) for line in block.split("\n")]
    return "\n".join([f"  {header}", *[f"    {line}" for line in lines], "  }\n"])


def type_of(aval: Any) -> tuple[types.Shape, np.dtype]:
    """Shape and dtype of an array; float0, the tangent of an integer, has no elements but a shape, as in JAX: i1."""
    return aval.shape, types.stored(aval.dtype)


class FunctionWriter:
    """Writes programs into one function."""

    def __init__(self, module: ModuleWriter, text: Text) -> None:
        self.module = module
        self.text = text

    def program(self, closed: ClosedJaxpr, arguments: Sequence[Tensor]) -> list[Tensor]:
        """The results of a program on these arguments, its equations written here."""
        jaxpr, text = closed.jaxpr, self.text
        env: dict[Var, Tensor] = dict(zip(jaxpr.invars, arguments, strict=True))
        for v, value in zip(jaxpr.constvars, closed.consts, strict=True):
            shape, dtype = type_of(v.aval)
            env[v] = text.constant(np.broadcast_to(np.asarray(value), shape), shape, dtype)

        def read(atom: Atom) -> Tensor:
            if not isinstance(atom, Literal):
                return env[atom]
            shape, dtype = type_of(atom.aval)
            if types.is_open(atom.val):
                return text.convert(text.extent(atom.val), dtype)
            return text.constant(np.asarray(atom.val).astype(dtype), shape, dtype)

        for eqn in jaxpr.eqns:
            outer = text.where
            if self.module.debug_info:
                text.where = location(eqn) or outer
            found = self.constrained(eqn, self.equation(eqn, [read(x) for x in eqn.invars]))
            env.update(zip(eqn.outvars, found, strict=True))
            text.where = outer
        return [read(x) for x in jaxpr.outvars]

    def constrained(self, eqn: JaxprEqn, results: Sequence[Tensor]) -> Sequence[Tensor]:
        """The results of an equation, lying as it asks, or as their types say."""
        meshes, here = self.module.meshes, self.module.by_hand
        if meshes is None:
            return results
        asked = shardy.ASKED.get(eqn.primitive.name)
        shardings = asked(eqn.params) if asked else [getattr(v.aval, "explicit_sharding", None) for v in eqn.outvars]
        found = list(results)
        for index, (x, sharding) in enumerate(zip(results, shardings, strict=True)):
            if shardy.says_something(sharding) and not (here and here.axes.issuperset(here.mesh.axis_names)):
                given = f"sharding = {meshes.sharding(sharding, x.ndim)}"
                found[index] = self.text.ops("sharding_constraint", [x], [(x.shape, x.dtype)], given, dialect="sdy")[0]
        return found

    def shaped(self, x: Tensor, aval: Any) -> Tensor:
        """The tangent of an integer in its other form: booleans of its shape outside, no elements inside."""
        shape, dtype = type_of(aval)
        return x if x.shape == shape else self.text.constant(False, shape, dtype)

    def inner(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Tensor]) -> list[Tensor]:
        """The results of a program without constants of its own, or with these."""
        return self.program(jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, consts), arguments)

    def expanded(
        self, eqn: JaxprEqn, expand: Callable[[JaxprEqn], ClosedJaxpr], operands: Sequence[Tensor]
    ) -> list[Tensor]:
        """The results of the program that an equation expands into."""
        program = open_equations.program(eqn, expand)
        assert program is not None
        return self.program(program, operands)

    def equation(self, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
        """The results of an equation."""
        writer = self.module.rule(self.module, eqn)
        if writer is None:
            raise not_written(eqn)
        if not self.text.sizes:
            return writer(self, eqn, operands)
        try:
            return writer(self, eqn, operands)
        except MorePoints:
            raise
        except InconclusiveDimensionOperation as error:
            why = f"it is not written for extents without a value, {_open_types(eqn)} ({error})"
            raise not_written(eqn, why) from None


def location(eqn: JaxprEqn) -> str:
    """The user's line of an equation, as MLIR writes locations."""
    frame = source_info.SourceInfo(eqn.source).frame
    if frame is None:
        return ""
    file = frame.file_name.replace("\\", "\\\\").replace('"', '\\"')
    return f' loc("{eqn.primitive.name}"("{file}":{frame.line}:{frame.column}))'


def not_written(eqn: JaxprEqn, why: str = "StableHLO has no such operation, and weft no program for it") -> Exception:
    """The error for an equation that has no form in StableHLO."""
    where = source_info.summarize(eqn.source)
    return NotImplementedError(f"[stablehlo] {eqn.primitive.name} at {where} cannot be written as StableHLO: {why}")


def _open_types(eqn: JaxprEqn) -> str:
    return ", ".join([v.aval.str_short() for v in (*eqn.invars, *eqn.outvars)])
