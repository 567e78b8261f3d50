"""Lowers a kernel to statements: each runs once, once per point, or at every reduced index of some phase.

``phases`` says where; ``cpu_space`` then makes loops of the axes.

    softmax [b, n(lanes)]  ->  phase 0: max;  phase 1: exp kept in a row, sum;  phase 2: divide, store
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import index_maps, kinds
from weft.core.index_maps import CONSTANT, Affine
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.symbolic.sizes import present, whole
from weft.loops import assembled, guards, indexed, ir, kernel
from weft.loops.body import Body, Operand, Scatter
from weft.loops.canonical import make_canonical
from weft.loops.index_math import ZERO, Sizes, added, scaled
from weft.loops.kernel import Access, Kernel, Node
from weft.loops.phases import Phases


def _position(emit: Any, index: Any, start: Any, step: Any, dtype: np.dtype) -> Any:
    return emit.convert(emit.add(emit.mul(index, step), start), dtype)


POSITION = kinds.Elementwise(
    scalar=_position, reference=lambda index, start, step, dtype: (index * step + start).astype(dtype)
)


def lower(source: Kernel, sizes: Sizes, guarded: guards.Guarded | None = None) -> Body:
    """A kernel as statements over its own axes. ``guarded``: with guards."""
    made = _Lowering(source, sizes, guarded).body()
    make_canonical(made)
    return made


def _empty(source: Kernel) -> Body:
    """The body of a kernel, without statements."""
    results = tuple([output.targets and _scatter(output.targets) for output in source.outputs])
    return Body(source.name, source.axes, source.reduced, source.run, source.tree, results, [], [], [], [], [], set())


def _scatter(targets: kernel.Targets) -> Scatter:
    equation = targets.equation
    axes = frozenset([use.axis for node in targets.components for use in node.access])
    return Scatter(axes, bool(equation.primitive.kind.ordered(equation.params)))


class _Numbers:
    """The numbers of a body's values, and its scalar parameters. Writers share it, and it knows none of them."""

    def __init__(self, result: Body, at_start: bool) -> None:
        self.result, self.at_start = result, at_start  # whether parameters are read before the loops
        self.count = 0
        self.scalars: dict[Any, int] = {}

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def scalar(self, value: Any, dtype: Any, source: Any = None) -> int:
        """A scalar parameter's value.

        Equal fractions share a parameter, and so do uses of one integer literal (the divisor of a quotient and its
        remainder). Other integers do not: they may be sizes that are equal only now, and the nest must not depend on
        that.
        """
        dtype = np.dtype(dtype)
        array = np.asarray(present(value), dtype)
        is_fraction = dtype.kind == "f" and not float(array).is_integer()
        if is_fraction:
            key: Any = (array.tobytes(), dtype)
        else:
            key = (id(source), dtype) if isinstance(source, Literal) else len(self.scalars)
        found = self.scalars.get(key)
        if found is not None:
            return found
        out = self.scalars[key] = self.new()
        self.result.scalars.append((dtype, value))
        bucket = self.result.setup if self.at_start else self.result.phases[0][1]
        bucket.append(ir.Param(out, len(self.result.scalars) - 1, dtype))
        return out


class _Lowering:
    """The state while one kernel is lowered."""

    def __init__(self, source: Kernel, sizes: Sizes, guarded: guards.Guarded | None = None) -> None:
        self.kernel, self.sizes = source, sizes
        self.phases = Phases(source)
        self.reduced, self.has_axes = self.phases.reduced, self.phases.has_axes
        self.is_body = self.phases.is_body
        self.values: dict[tuple[Node, int], int] = {}  # (node, phase or -1) -> value number
        self.operand_index: dict[Any, int] = {}
        self.result = _empty(source)
        numbers = _Numbers(self.result, self.has_axes)
        self._number, self._scalar = numbers.new, numbers.scalar
        self.indexed = indexed.IndexWriter(self._number, self._scalar, sizes)
        self.guards = None if guarded is None else guards.GuardWriter(guarded, self._number)
        extents = {axis.key: axis.extent for axis in source.axes}
        self.assembled = assembled.Reader(self.indexed, extents, self.result.indexed)

    def body(self) -> Body:
        self.result.phases = [([], [], []) for _ in range(self.phases.count)]
        for equation in self.kernel.equations:
            for node in self.phases.nodes(equation):
                self._emit_equation(equation, node)
        for output in self.kernel.outputs:
            if output.targets is None:
                self._emit_store(output)
            else:
                self._emit_update(output, output.targets)
        if self.guards is not None:
            self.guards.finish(self.result)
        return self.result

    # statements

    def _bucket(self, node: Node, phase: int) -> list[ir.Statement]:
        """The list that takes the statements of a node; for a body value ``phase`` is the phase that reads it."""
        if self.is_body(node):
            return self.result.phases[phase][1]
        if self.phases.is_setup(node) and self.has_axes:
            return self.result.setup
        return self.result.phases[self.phases.available.get(node, 0)][0]

    def _value(self, node: Node, phase: int) -> int:
        """The number of a node's value as seen from a phase; values not computed by the kernel are loaded here."""
        slot = (node, phase if self.is_body(node) else -1)
        found = self.values.get(slot)
        if found is not None:
            return found
        atom = node.atom
        if isinstance(atom, kernel.Constant):
            found = self.values[slot] = self._scalar(atom.val, atom.aval.dtype, atom.literal)
            return found
        bucket = self._bucket(node, phase)
        inside = self.assembled.inside(bucket, node.access, atom.aval.shape)
        starts = self.kernel.dynamic.get(atom)
        if inside is None:
            out = self._number()
            bucket.append(ir.Load(out, self._operand(atom, node.access, "in", starts)))
        else:
            strides = self.sizes.strides(atom if starts is None else starts.invars[0])
            moved = sum(u.start * s.elems for u, s in zip(node.access, strides, strict=True) if u.axis != CONSTANT)
            at_first = tuple([use if use.axis == CONSTANT else use._replace(start=0) for use in node.access])
            offset, out = self._scalar(moved, np.int64), self._number()
            bucket.append(ir.LoadAt(out, self._operand(atom, at_first, "in", starts), offset, inside))
        self.values[slot] = out
        return out

    def _operand(self, variable: Any, access: Access, role: str, starts: Any) -> int:
        """The number of the operand for a buffer and an access."""
        base = variable if role == "out" or starts is None else starts.invars[0]
        key = (variable, access, role)
        found = self.operand_index.get(key)
        if found is not None:
            return found
        offset, fixed, strides = 0, True, {}
        for use, stride in zip(access, self.sizes.strides(base), strict=True):
            offset += whole(use.start) * stride.elems
            backwards = use.axis != CONSTANT and use.step <= 0  # from the end, which other sizes have elsewhere
            fixed = fixed and (use.start == 0 or (stride.product == () and not backwards))
            if use.axis != CONSTANT:
                strides[use.axis] = added(strides.get(use.axis, ZERO), scaled(stride, use.step))
        self.operand_index[key] = len(self.result.operands)
        dtype = np.dtype(base.aval.dtype)
        self.result.operands.append(Operand(base, role, offset, fixed, strides, starts, dtype, access))
        return self.operand_index[key]

    def _emit_equation(self, equation: JaxprEqn, node: Node) -> None:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Reduction):
            self._emit_reduction(equation, kind, node)
        elif isinstance(kind, kinds.Elementwise):
            self._emit_elementwise(equation, node)
        elif isinstance(kind, kinds.Gather):
            self._emit_gather(equation, kind, node)
        elif isinstance(kind, kinds.Generate):
            self._each_phase(node, lambda phase: self._emit_index(equation, kind, node, phase))
        elif isinstance(kind, kinds.Cumulative):
            self._emit_scan(equation, node)
        elif len(self.kernel.nodes[node]) > 1:
            self._emit_assembled(equation, kind, node)
        else:  # a view or an identity: its value is its operand's
            operand = self.kernel.nodes[node][0]
            self._each_phase(node, lambda phase: self._value(operand, phase))

    def _each_phase(self, node: Node, emit: Callable[[int], int]) -> None:
        """Emit a value in every phase that wants it (row level and setup: once)."""
        if not self.is_body(node):
            self.values[node, -1] = emit(self.phases.available.get(node, 0))
            return
        for phase in sorted(self.phases.wanted.get(node, ())) if self.reduced else (0,):
            self.values[node, phase] = emit(phase)

    def _emit_elementwise(self, equation: JaxprEqn, node: Node) -> None:
        operands = self.kernel.nodes[node]
        dtype = np.dtype(equation.outvars[0].aval.dtype)

        def apply(phase: int) -> int:
            args = tuple([self._value(operand, phase) for operand in operands])
            out = self._number()
            bucket = self._bucket(node, phase)
            bucket.append(made := ir.applied(equation, out, args))
            test = None if self.guards is None else guards.wraps_at(equation)
            if self.guards is not None and test is not None and check_scopes.wants_integers(equation):
                self.guards.add(bucket, self.guards.apply(bucket, "wraps", test, args, made.params))
            return out

        self._once_or_kept(node, dtype, apply)

    def _once_or_kept(self, node: Node, dtype: np.dtype, emit: Callable[[int], int]) -> None:
        """Emit a value in every phase that reads it, or once in the first of them, which stores it in a row buffer."""
        if node not in self.phases.kept:
            self._each_phase(node, emit)
            return
        first, *later = sorted(self.phases.wanted[node])
        self.values[node, first] = emit(first)
        row = len(self.result.rows)
        self.result.rows.append(dtype)
        self.result.phases[first][1].append(ir.RowStore(row, self.values[node, first]))
        for phase in later:
            out = self.values[node, phase] = self._number()
            self.result.phases[phase][1].append(ir.RowLoad(out, row))

    def _emit_gather(self, equation: JaxprEqn, kind: kinds.Gather, node: Node) -> None:
        array, indices = equation.invars
        avals = [array.aval, indices.aval]
        windows = kind.windows(avals, equation.outvars[0].aval, equation.params)
        fill = kind.fill(equation.outvars[0].aval, equation.params)
        operand = self._operand(array, kernel.window_access(windows, array, node.access, self.sizes), "in", None)
        dtype = np.dtype(array.aval.dtype)
        components = self.kernel.nodes[node]
        windowed = indexed.Windowed(array, windows, equation.outvars[0])
        dtypes = [indices.aval.dtype] * len(components)

        def offset_in(phase: int) -> tuple[int, int | None]:
            values = [self._value(component, phase) for component in components]
            bucket = self._bucket(max(components, key=self.phases.depth, default=node), phase)
            offset = self.indexed.offset(bucket, windowed, values, dtypes)
            tested = self.guards is not None and self.guards.wants(equation, "index")
            if not components or (fill is None and not tested):
                return offset, None
            inside = self.indexed.inside(bucket, windowed, values, dtypes)
            if tested and self.guards is not None:
                self.guards.outside(bucket, inside)
            return offset, None if fill is None else inside

        found: dict[int, tuple[int, int | None]] = {}  # a row's address is computed once for all phases

        def load(phase: int) -> int:
            slot = phase if any(self.is_body(component) for component in components) else -1
            if slot not in found:
                found[slot] = offset_in(phase)
            offset, inside = found[slot]
            bucket, out = self._bucket(node, phase), self._number()
            bucket.append(ir.LoadAt(out, operand, offset))
            return out if inside is None else self.indexed.filled(bucket, inside, out, fill, dtype)

        self._once_or_kept(node, dtype, load)

    def _emit_update(self, output: kernel.Output, targets: kernel.Targets) -> None:
        equation = targets.equation
        kind, array, indices = equation.primitive.kind, equation.outvars[0], equation.invars[1]
        windows = kind.windows([atom.aval for atom in equation.invars], array.aval, equation.params)
        values = [self._value(component, 0) for component in targets.components]
        dtypes = [indices.aval.dtype] * len(values)
        new = self._value(output.node, 0)
        operand = self._operand(array, output.access, "out", None)
        bucket = self.result.phases[0][1]
        found, clips = indexed.Windowed(array, windows, equation.invars[2]), kind.clips(equation.params)
        tested = self.guards is not None and self.guards.wants(equation, "index") and bool(values)
        inside = None if clips and not tested else self.indexed.inside(bucket, found, values, dtypes)
        if tested and self.guards is not None and inside is not None:
            self.guards.outside(bucket, inside)
        inside = None if clips else inside
        offset = self.indexed.offset(bucket, found, values, dtypes, clips)
        old = self._number()
        steps, result = self.indexed.combination(kind.update(equation.params), old, new)
        free = kind.free(np.dtype(array.aval.dtype), equation.params)
        bucket.append(ir.Update(operand, offset, inside, old, steps, result, None, free))
        if self.guards is not None:
            self.guards.updated(bucket, array.aval.dtype, self._words() | self.guards.guarded.wanted(equation))

    def _emit_index(self, equation: JaxprEqn, kind: kinds.Generate, node: Node, phase: int) -> int:
        dtype = np.dtype(equation.outvars[0].aval.dtype)
        use = node.access[kind.dimension(equation.params)]
        if use.axis == CONSTANT:
            return self._scalar(use.start, dtype)
        return self._index(use, dtype, self._bucket(node, phase))

    def _index(self, use: Affine, dtype: np.dtype, bucket: list[ir.Statement]) -> int:
        self.result.indexed.add(use.axis)
        plain = use.start == 0 and use.step == 1
        out = self._number()
        bucket.append(ir.IndexOf(out, use.axis, dtype if plain else np.dtype(np.int64)))
        if plain:
            return out
        start, step = (self._scalar(x, np.int64) for x in (use.start, use.step))
        position = self._number()
        bucket.append(ir.Apply(position, "position", POSITION, (("dtype", dtype),), (out, start, step), dtype))
        return position

    def _emit_reduction(self, equation: JaxprEqn, kind: kinds.Reduction, node: Node) -> None:
        phase = self.phases.available[node] - 1
        nodes = self.kernel.nodes[node]
        args = tuple([self._value(operand, phase) for operand in nodes])
        index = None
        if kind.needs_index:
            use = Affine(self.kernel.reduced[-1])
            index = self._index(use, np.dtype(np.int64), self.result.phases[phase][1])
        outs = tuple([self._number() for _ in equation.outvars])
        for out, variable in zip(outs, equation.outvars, strict=True):
            self.values[Node(variable, node.access), -1] = out
        tree = "row" if self.kernel.tree == "row" else "column"
        self.result.phases[phase][2].append(ir.reduced(equation, outs, args, index, tree))
        if self.guards is not None and guards.sum_wraps(equation) and check_scopes.wants_integers(equation):
            self._guard_sum(self.result.phases[phase][2][-1], phase)

    def _guard_sum(self, exact: ir.Reduce, phase: int) -> None:
        """The same reduction of the values in float64, whose result shows whether the integers left their dtype."""
        assert self.guards is not None
        wide, total, real = self._number(), self._number(), guards.FLOAT64
        self.result.phases[phase][1].append(ir.Apply(wide, "float64", guards.AS_FLOAT64, (), exact.args, real))
        identity = float(exact.accumulators[0][1])
        self.result.phases[phase][2].append(
            ir.Reduce(
                (total,), exact.name, exact.kind, exact.params, (wide,), None, ((real, identity),), (real,), exact.tree
            )
        )
        block = self.result.phases[phase + 1][0]
        params = (("dtype", exact.dtypes[0]),)
        self.guards.add(block, self.guards.apply(block, "leaves", guards.LEAVES, (total,), params))

    def _emit_scan(self, equation: JaxprEqn, node: Node) -> None:
        args = tuple([self._value(operand, 0) for operand in self.kernel.nodes[node]])
        outs = tuple([self._number() for _ in equation.outvars])
        for out, variable in zip(outs, equation.outvars, strict=True):
            self.values[Node(variable, node.access), 0] = out
        self.result.phases[0][1].append(ir.scanned(equation, outs, args))

    def _emit_assembled(self, equation: JaxprEqn, kind: kinds.Assemble, node: Node) -> None:
        out = equation.outvars[0].aval
        pieces = kind.pieces([atom.aval for atom in equation.invars], out, equation.params)
        read = index_maps.pieces_of(pieces, node.access, self.assembled.extents) or []

        def choose(phase: int) -> int:
            values = [self._value(operand, phase) for operand in self.kernel.nodes[node]]
            bucket = self._bucket(node, phase)
            return self.assembled.chosen(bucket, node.access, [piece for piece, _ in read], values, np.dtype(out.dtype))

        self._each_phase(node, choose)

    def _emit_store(self, output: kernel.Output) -> None:
        node = output.node
        phase = self.phases.available.get(node, 0)
        value = self._value(node, phase)
        operand = self._operand(output.target, output.access, "out", output.starts)
        before, body, _ = self.result.phases[phase]
        block = body if self.is_body(node) or not self.reduced else before
        block.append(ir.Store(operand, value))
        if self.guards is not None:
            self.guards.stored(block, value, node.atom.aval.dtype, self._words())

    def _words(self) -> frozenset[str]:
        """The checks of what the kernel computes."""
        assert self.guards is not None
        made = [e for e in self.kernel.equations if guards.may_make(e.primitive.kind)]
        return frozenset().union(*[self.guards.guarded.wanted(equation) for equation in made])
