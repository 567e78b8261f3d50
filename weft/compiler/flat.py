"""Jaxpr -> its shape-free description: what programs have in common that differ in extents and counts alone.

Calls are walked through, variables numbered in order. Sizes (extents, and where the pieces of assembled arrays start)
are told apart by which of them are equal and which are 0 or 1: that is the ``pattern``. So are literals that may be
sizes (counts, divisors, floats that are of no consequence to ``algebra``), and those they may be equal to. Everything
else, such as where a view reads, is in the ``key`` as it is. What has no such description is ``Unfit``.

    f32[64,100] -> reduce_sum[axes=(1,)] -> div 100.0        is like        f32[80,120] -> ... -> div 120.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft import operations as lax
from weft.compiler import algebra, assemble, contraction, divisors, keys, registers, rolls, simplify, walks
from weft.compiler.groups import FAR, LONG_COLUMN, LONG_ROW, LONG_SIDE
from weft.core import avals, kinds
from weft.core.fingerprint import fingerprint
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.loops import indexed, starts
from weft.loops.schedule import LONG, NARROW, SHORT

MAX_ELEMENTS = 1 << 48
MAX_EQUATIONS = 512  # of a larger program the compilation costs little beside its tracing
EXACT = tuple(dict.fromkeys([0.0, 1.0, *algebra.POWERS]))  # values at which a rewrite looks
OWN = 1 << 20  # numbers of a pattern from -OWN down are values for which something may be done,
OPEN = 1 - OWN  # and this is all others


_COUNTING = frozenset([  # of whose integers nothing asks the value
    lax.add_p, lax.sub_p, lax.mul_p, lax.select_n_p, lax.max_p, lax.min_p, lax.clamp_p,
    lax.lt_p, lax.le_p, lax.gt_p, lax.ge_p, lax.eq_p, lax.ne_p, lax.convert_element_type_p,
    lax.dynamic_slice_p, lax.dynamic_update_slice_p, lax.broadcast_in_dim_p,
])  # fmt: skip


class Unfit(Exception):
    """The program has no shape-free description."""


class Flat:
    """A program described: ``key`` and ``pattern`` without its sizes, ``numbers`` with the rest.

    Atoms are numbers: 0, 1, ... the variables, -1, -2, ... the literals. Equal sizes are one class, and a class is a
    number too: ``pattern`` has that of every size, ``classes`` that of a value, ``sizes`` the value of each. Those
    of literals in the pattern are negative.
    """

    __slots__ = (
        "avals", "classes", "constants", "invars", "is_narrow", "key", "literals", "loops", "numbers",
        "outvars", "pattern", "rows", "sizes", "variables",
    )  # fmt: skip

    def __init__(self, closed: ClosedJaxpr) -> None:
        jaxpr = closed.jaxpr
        self.avals: list[Any] = []
        self.literals: list[Literal] = []
        self.rows: list[tuple[JaxprEqn, list[int], int, Any]] = []  # equation, operands, first result, position
        self.variables: dict[int, Var] = {}
        self.loops: dict[int, JaxprEqn] = {}
        self.constants, self.invars = len(jaxpr.constvars), len(jaxpr.invars)
        writer = _Writer(self)
        env: dict[Any, int] = {}
        types = [writer.bind(env, v) for v in (*jaxpr.constvars, *jaxpr.invars)]
        writer.walk(jaxpr, env)
        self.outvars = [writer.atom(env, atom) for atom in jaxpr.outvars]
        for number in self.outvars:
            if number < 0:
                writer.value(number, None, 0)
        self.classes = dict(writer.classes)
        self.sizes = tuple(self.classes)
        self.pattern = tuple(writer.pattern)
        self.is_narrow = writer.is_narrow()
        self.key = (
            self.constants,
            *types,
            *writer.key,
            *self.outvars,
            self.is_narrow,
            tuple(writer.lengths),
            writer.is_huge,
        )
        weak = tuple([aval.weak_type for aval in self.avals[: self.constants + self.invars]])
        self.numbers = (*self.sizes, *writer.values, *weak, *[v.aval.weak_type for v in jaxpr.outvars])

    def variable(self, number: int) -> Var:
        """The variable of a number, always the same."""
        found = self.variables.get(number)
        if found is None:
            found = self.variables[number] = Var(self.avals[number])
        return found

    def loop(self, row: int) -> JaxprEqn:
        """The loop of a row, or the routine that it is (``registers``) at these sizes."""
        if row not in self.loops:
            eqn, operands, first, _ = self.rows[row]
            makers = {row[2]: row[:2] for row in self.rows}
            atoms: list[Any] = []
            for number in operands:
                maker, read = makers.get(number, (None, ()))
                if maker is not None and maker.primitive is lax.broadcast_in_dim_p and not self.avals[number].shape:
                    number = min(number, *read)  # a literal that is broadcast to no dimensions: the loop knows it
                atoms.append(self.literals[-number - 1] if number < 0 else self.variable(number))
            outvars = [self.variable(first + i) for i in range(len(eqn.outvars))]
            whole = eqn.replace(invars=atoms, outvars=outvars)
            self.loops[row] = registers.in_registers([whole], simplify.simplify_body)[0]
        return self.loops[row]

    def jaxpr(self) -> Jaxpr:
        """The program without calls, over variables and literals of its own."""
        own = [Literal(literal.val, literal.aval) for literal in self.literals]
        self.literals = own

        def atom(number: int) -> Any:
            return own[-number - 1] if number < 0 else self.variable(number)

        eqns = [
            JaxprEqn(
                [atom(n) for n in operands],
                [self.variable(first + i) for i in range(len(eqn.outvars))],
                eqn.primitive, eqn.params, eqn.effects, source,
            )
            for eqn, operands, first, source in self.rows
        ]  # fmt: skip
        inputs = [self.variable(number) for number in range(self.constants + self.invars)]
        outvars = [atom(number) for number in self.outvars]
        return Jaxpr(inputs[: self.constants], inputs[self.constants :], outvars, eqns)


def describe(closed: ClosedJaxpr) -> Flat | None:
    """The description of a program, or None if it has none; keys are described as the words that they consist of."""
    try:
        return Flat(closed)
    except Unfit:
        if not keys.has_keys(closed.jaxpr):
            return None
    words, jaxpr = keys.without_keys(closed), closed.jaxpr
    dtypes_of = [v.aval.dtype for v in jaxpr.constvars]
    if len(words.consts) != len(dtypes_of) or dtypes.float0 in dtypes_of:
        return None
    try:
        found = Flat(words)
    except Unfit:
        return None
    found.numbers += tuple([atom.aval for atom in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)])
    return found


def flatten(closed: ClosedJaxpr, flat: Flat) -> ClosedJaxpr:
    """The described program itself, without calls: what a ``Template`` is made of."""
    consts = zip(closed.consts, closed.jaxpr.constvars, strict=True)
    words = [avals.key_words(value) if dtypes.is_extended(v.aval.dtype) else value for value, v in consts]
    return ClosedJaxpr(flat.jaxpr(), words)


class _Numbers(dict[Any, int]):
    """A number for each value that was asked for, in the order of the first questions."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


class _Writer:
    """One program on its way to a key."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.key: list[Any] = []
        self.pattern: list[int] = []
        self.values: list[Any] = []
        self.classes = _Numbers({0: 0, 1: 1})  # of sizes
        self.types: dict[Any, Any] = {}  # aval -> what of it is in the key, and in the pattern
        self.equal = _Numbers()  # of literals' values
        self.floats: dict[Any, Any] = {}  # finite ones -> what ``_real`` says of them
        self.slices: set[int] = set()
        self.is_huge = False  # whether places take 64 bits
        self.most_rows = 0
        self.lengths: list[int] = []  # for each reduction that of its rows if they are short, or LONG_COLUMN, or 0
        self.tables = (
            flat.rows, flat.avals, flat.literals, self.key, self.pattern, self.values, self.types, self.floats,
            _ALONE, lax.div_p, _Writer._equation, _Writer._type, _Writer.value, MAX_EQUATIONS,
        )  # fmt: skip

    def bind(self, env: dict[Any, int], variable: Any) -> Any:
        """Number a variable; gives its type without sizes."""
        avals, aval = self.flat.avals, variable.aval
        env[variable] = len(avals)
        avals.append(aval)
        found, classes = self.types.get(aval) or self._type(aval)
        self.pattern += classes
        return found

    def _type(self, aval: Any) -> Any:
        shape = aval.shape
        if dtypes.is_extended(aval.dtype):
            raise Unfit
        found = (aval.dtype, len(shape))
        rows = math.prod(shape[:-1])
        self.most_rows = max(self.most_rows, rows)
        size = rows * shape[-1] if shape else 1
        if size > MAX_ELEMENTS:
            raise Unfit
        self.is_huge = self.is_huge or size >= indexed.FEW
        if size >= FAR:  # fusion looks at the extents of such arrays
            found = (*found, size >= LONG_ROW, tuple([min(extent, LONG_SIDE) for extent in shape]))
        if aval.dtype.kind in "iu" and aval.dtype.itemsize < 8:  # whether it can count its elements (own_rows)
            found = (*found, max(shape, default=1) > 1 << 8 * aval.dtype.itemsize - (aval.dtype.kind == "i"))
        self.types[aval] = both = found, tuple(map(self.classes.__getitem__, shape))
        return both

    def is_narrow(self) -> bool:
        """Whether a dimension is so narrow, and another may be so long, that lanes turn (``schedule.Lanes``)."""
        return self.most_rows >= LONG and any(1 < size <= NARROW for size in self.classes)

    def atom(self, env: dict[Any, int], atom: Any) -> int:
        """The number of an atom; a literal is described where it is used."""
        return env[atom] if type(atom) is not Literal else self._literal(atom)

    def _literal(self, literal: Literal) -> int:
        self.flat.literals.append(literal)
        return -len(self.flat.literals)

    def value(self, number: int, eqn: JaxprEqn | None, place: int) -> None:
        """Describe a literal that an equation, or the program's result, has at a place."""
        literal = self.flat.literals[-number - 1]
        value, aval = literal.val, literal.aval
        dtype = aval.dtype
        if aval.shape or dtype.kind not in "fbiucV" or dtype == dtypes.float0:
            raise Unfit
        if dtype.kind in "cV":
            self.key.append((aval, type(value), np.asarray(value).tobytes()))
            return
        if dtype.kind != "f":
            self._integer(literal, eqn, place)
            return
        real = float(value)
        if not math.isfinite(real):
            self.key.append((aval, repr(real)))
            return
        is_divisor = eqn is not None and eqn.primitive is lax.div_p and place == 1 and real != 0  # no rule asks for it
        known = real or repr(real), type(value), getattr(value, "dtype", None), aval, is_divisor
        found = self.floats.get(known)
        if found is None:
            found = self.floats[known] = self._real(value, real, aval, is_divisor)
        key, pattern, is_open = found
        self.key.append(key)
        self.pattern += pattern
        if is_open:
            self.values.append(real)

    def _real(self, value: Any, real: float, aval: Any, is_divisor: bool) -> tuple[Any, tuple[int, ...], bool]:
        """Of a finite floating-point literal what is in the key and in the pattern, and whether its value is not."""
        dtype = aval.dtype
        rounded = float(dtype.type(real))
        same = self.equal[real, type(value), getattr(value, "dtype", None), aval]
        pattern = (-1 - same, -1 - self.equal[rounded, dtype])
        if real in EXACT and not is_divisor:
            return (aval, repr(real)), pattern, False
        own = -OWN - 3 - EXACT.index(real) if real in EXACT else OPEN
        return (aval, rounded.is_integer()), (*pattern, own), True

    def _integer(self, literal: Literal, eqn: JaxprEqn | None, place: int) -> None:
        """An integer or a bool: exact, but for extents that only move, scale or divide.

        Which are equal is told of all, for kernels take equal ones once; so is what is made of a divisor.
        """
        value, key = int(literal.val), (literal.aval, type(literal.val))
        same = -1 - self.equal[value]
        primitive = None if eqn is None else eqn.primitive
        if literal.aval.dtype.kind == "b":
            key, numbers = (*key, value), ()
        elif primitive in _COUNTING or _carries(primitive):
            numbers = (-OWN - 1 - value if abs(value) <= 1 else OPEN,)
        elif primitive in algebra.DIVISIONS[:2] and place == 1 and value > 1:
            is_plain = divisors.is_plain(value)
            made = [object(), object()] if is_plain else divisors.made_of(value)
            numbers = (OPEN if is_plain else -2 * OWN - value, *[-1 - self.equal[part] for part in made])
        else:
            key, numbers = (*key, value), ()
        if numbers:
            self.values.append(value)
        self.key.append(key)
        self.pattern += (same, *numbers)

    def _known(self, eqn: JaxprEqn, operands: Sequence[int]) -> int | None:
        """The literal that an elementwise equation of literals is, as ``algebra`` has it."""
        if eqn.primitive is lax.select_n_p and len(set(operands[1:])) == 1:
            return operands[1] if not eqn.outvars[0].aval.shape else None
        if max(operands) >= 0 or self.flat.literals[-operands[0] - 1].aval.dtype.kind not in "biu":
            return None
        literals = [self.flat.literals[-number - 1] for number in operands]
        found = algebra.number(JaxprEqn(literals, eqn.outvars, eqn.primitive, eqn.params))
        return None if found is None else self._literal(found)

    def _in_other_words(
        self, eqn: JaxprEqn, operands: Sequence[int], describe: Any
    ) -> tuple[ClosedJaxpr, Sequence[int], Any] | None:
        """What ``simplify`` will say instead of an equation, on what, and its position unless it has one of its own:
        places that it knows are then described as any others."""
        if describe is _branched:
            if operands[0] >= 0:
                return None
            programs = eqn.primitive.kind.branches(eqn.params)
            which = min(max(int(self.flat.literals[-operands[0] - 1].val), 0), len(programs) - 1)
            return programs[which], operands[1:], None
        if describe is _looped:
            inner = simplify.other_than_loop(eqn)
        else:
            producers = _Producers(self.flat)
            inner = simplify.other_than_scatter(eqn.replace(invars=[producers.atom(n) for n in operands]), producers)
        return None if inner is None else (inner, operands, eqn.source)

    def walk(self, jaxpr: Jaxpr, env: dict[Any, int], expanded: Any = None) -> None:
        """Describe the equations of a program whose inputs have numbers.

        ``expanded`` is the position of an equation that the program only says in others: theirs too.
        """
        runtime.describe_equations(self, self.tables, jaxpr.eqns, env, expanded)

    def _equation(self, eqn: JaxprEqn, operands: list[int], env: dict[Any, int], expanded: Any) -> Any:
        """What of an equation's parameters is in the key; None if it has been described as something else.

        Any equation, but those whose kind is in ``_ALONE`` come here only where they may be literals themselves.
        """
        describe = _PARAMETERS.get(type(eqn.primitive.kind))
        if describe is None:
            self._through(eqn, operands, env, expanded or eqn.source)
            return None
        if eqn.effects or len(self.flat.rows) >= MAX_EQUATIONS:
            raise Unfit
        if describe in _IN_OTHER_WORDS and (inner := self._in_other_words(eqn, operands, describe)) is not None:
            program, reads, position = inner
            self._walk_into(program, eqn, reads, env, expanded or position)
            return None
        if operands and min(operands) < 0:
            if describe is _all and max(operands[-2:]) < 0 and (known := self._known(eqn, operands)) is not None:
                env[eqn.outvars[0]] = known
                return None
            for place, number in enumerate(operands):
                if number < 0:
                    self.value(number, eqn, place)
        params = describe(self, eqn)
        if describe is _assembled and len(operands) == 2 and self.slices.issuperset(operands):  # a roll
            return (*params, eqn.outvars[0].aval.size >= rolls.LEAST_SIZE)
        return params

    def _through(self, eqn: JaxprEqn, operands: Sequence[int], env: dict[Any, int], position: Any) -> None:
        """A call is its equations, an identity its operand."""
        kind, expanded = eqn.primitive.kind, None
        if isinstance(kind, kinds.Identity) and not kind.barrier:
            env.update(zip(eqn.outvars, operands, strict=True))
            return
        if isinstance(kind, kinds.Resolve):
            if any(dtypes.is_extended(atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars)):
                raise Unfit
            inner, expanded = simplify.expanded(eqn, kind, eqn.invars), position
        else:
            inner = kind.inline(eqn.params) if isinstance(kind, kinds.Higher) else None
        if inner is None:
            raise Unfit
        self._walk_into(inner, eqn, operands, env, expanded)

    def _walk_into(
        self, inner: ClosedJaxpr, eqn: JaxprEqn, operands: Sequence[int], env: dict[Any, int], expanded: Any
    ) -> None:
        """Describe a program on operands in place of an equation."""
        if inner.consts:
            raise Unfit
        names = dict(zip(inner.jaxpr.invars, operands, strict=True))
        self.walk(inner.jaxpr, names, expanded)
        for out, atom in zip(eqn.outvars, inner.jaxpr.outvars, strict=True):
            env[out] = self.atom(names, atom)


class _Producers:
    """What makes the variables of a program that is being described."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.numbers: dict[Var, int] = {}
        self.rows = {row[2] + k: row for row in flat.rows for k in range(len(row[0].outvars))}

    def atom(self, number: int) -> Any:
        if number < 0:
            return self.flat.literals[-number - 1]
        variable = self.flat.variable(number)
        self.numbers[variable] = number
        return variable

    def get(self, variable: Var) -> JaxprEqn | None:
        """The equation, on operands that are asked for next."""
        row = self.rows.get(self.numbers[variable])
        if row is None:
            return None
        eqn, operands, first, _ = row
        return eqn.replace(
            invars=[self.atom(n) for n in operands], outvars=[self.atom(first + k) for k in range(len(eqn.outvars))]
        )


def _carries(primitive: Any) -> bool:
    """Whether it runs programs, which read literals as they do any scalar."""
    return primitive is not None and isinstance(primitive.kind, kinds.Loop | kinds.Branch)


# what of an equation's parameters is in the key; sizes are those of its operands and results


def _all(_: _Writer, eqn: JaxprEqn) -> Any:
    return tuple(eqn.params.items()) if eqn.params else ()


def _reduced(writer: _Writer, eqn: JaxprEqn) -> Any:
    """All; how long its rows are is told of the program."""
    aval = eqn.invars[0].aval
    length = math.prod(map(aval.shape.__getitem__, eqn.primitive.kind.axes(eqn.params)))
    is_short = 1 < length <= SHORT and aval.size >= LONG * length
    is_long = length >= LONG_COLUMN and aval.size >= FAR
    writer.lengths.append(length if is_short else LONG_COLUMN * is_long)
    return tuple(eqn.params.items())


def _places(writer: _Writer, eqn: JaxprEqn) -> Any:
    """Where a view reads: how far from an end, or from a place that is a size."""
    if eqn.primitive is lax.slice_p:
        writer.slices.add(len(writer.flat.avals))
    aval = eqn.invars[0].aval
    places: list[Any] = []
    found = eqn.primitive.kind.index_map(aval, eqn.outvars[0].aval, eqn.params)
    for dim, extent in zip(found, aval.shape, strict=True):
        start = starts.of_view(dim.start, dim.step, extent) if dim.start else 0
        if type(start) is starts.Start:
            writer.pattern += [writer.classes[size] for size, _ in start.terms]
            start = (start.rest, len(start.terms))
        places.append((dim.out_dim, start, dim.step))
    return tuple(places)


def _dimension(_: _Writer, eqn: JaxprEqn) -> Any:
    return eqn.primitive.kind.dimension(eqn.params)


def _contracted(_: _Writer, eqn: JaxprEqn) -> Any:
    """With the length of sums by vectors that are so short, and so many, that they are no matrix product."""
    left, right = [atom.aval for atom in eqn.invars]
    numbers = eqn.params["dimension_numbers"]
    is_short = eqn.outvars[0].aval.size >= LONG and contraction.is_short_sums(left, right, numbers)
    return (*eqn.params.items(), math.prod([left.shape[dim] for dim in numbers[0][0]]) if is_short else 0)


def _called(writer: _Writer, eqn: JaxprEqn) -> Any:
    kind = eqn.primitive.kind
    if kind.foreign:
        raise Unfit
    if kind.library is not None:  # matrices of other sizes may be unrolled, or take another workspace
        return (*eqn.params.items(), *[atom.aval.shape for atom in eqn.invars])
    if algebra.is_turned_sort(eqn):  # rows then that the program does not have
        aval = eqn.invars[0].aval
        writer.most_rows = max(writer.most_rows, aval.size // max(aval.shape[eqn.params["dimension"]], 1))
    return tuple(eqn.params.items())


def _moved(_: _Writer, __: JaxprEqn) -> Any:
    """Nothing: what is read or written is as large as the result or the update, and starts are operands."""
    return ()


def _run(writer: _Writer, programs: Sequence[ClosedJaxpr]) -> None:
    """Programs that an equation runs, which are compiled for themselves."""
    if any(program.consts for program in programs):
        raise Unfit
    writer.values += [fingerprint(program) for program in programs]


def _looped(writer: _Writer, eqn: JaxprEqn) -> Any:
    parts = eqn.primitive.kind.parts(eqn.params)
    _run(writer, [program for program in (parts.body, parts.cond) if program is not None])
    writer.values.append(parts.trips)
    return parts.n_consts, parts.n_carry, parts.n_cond_consts, parts.cond is None, parts.trips is None, parts.reverse


def _branched(writer: _Writer, eqn: JaxprEqn) -> Any:
    programs = eqn.primitive.kind.branches(eqn.params)
    _run(writer, programs)
    return len(programs)


def _windowed(writer: _Writer, eqn: JaxprEqn) -> Any:
    """How windows lie; their extents, and how far they may move, are sizes."""
    avals, kind = [atom.aval for atom in eqn.invars], eqn.primitive.kind
    array, indices = avals[:2]
    if indices.dtype.itemsize < 4:
        raise Unfit  # whether it reaches the ends of the array may be asked (row_scatters)
    windows = kind.windows(avals, eqn.outvars[0].aval, eqn.params)
    writer.pattern += [writer.classes[most] for most in windows.most]
    params = [item for item in eqn.params.items() if item[0] != "slice_sizes"]
    return (*params, windows.starts, windows.moved, windows.batch, array.size >= indexed.FEW)


def _scattered(writer: _Writer, eqn: JaxprEqn) -> Any:
    """As other windows; a name of its own, since ``walk`` first asks what is said instead of a scatter."""
    return _windowed(writer, eqn)


def _reshaped(_: _Writer, eqn: JaxprEqn) -> Any:
    """Which dimensions it splits and joins: a product may read what it makes in the array before it."""
    kind = eqn.primitive.kind
    if kind.rewrite is not None and kind.rewrite(**eqn.params) is not None:
        raise Unfit
    return tuple(walks.groups(eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape))


def pieces(eqn: JaxprEqn) -> list[kinds.Piece]:
    """The regions of an assembled array that are described."""
    avals = [atom.aval for atom in eqn.invars]
    return assemble.disjoint(eqn.primitive.kind.pieces(avals, eqn.outvars[0].aval, eqn.params))


def _assembled(writer: _Writer, eqn: JaxprEqn) -> Any:
    """What the pieces are made of; where they begin and end are sizes."""
    found = []
    for piece in pieces(eqn):
        writer.pattern += [writer.classes[size] for size in (*piece.start, *piece.extent)]
        reads = tuple([(dim.out_dim, dim.start, dim.step) for dim in piece.index_map])
        found.append((piece.operand, piece.fill, piece.step, reads))
    return tuple(found)


_PARAMETERS = {
    kinds.Elementwise: _all,
    kinds.Reduction: _reduced,
    kinds.View: _places,
    kinds.Generate: _dimension,
    kinds.Reshape: _reshaped,
    kinds.Assemble: _assembled,
    kinds.Contraction: _contracted,
    kinds.Cumulative: _all,
    kinds.External: _called,
    kinds.DynamicSlice: _moved,
    kinds.DynamicUpdateSlice: _moved,
    kinds.Gather: _windowed,
    kinds.Scatter: _scattered,
    kinds.Loop: _looped,
    kinds.Branch: _branched,
}
_IN_OTHER_WORDS = frozenset([_scattered, _branched, _looped])
_ALONE = {  # what is asked of an equation, wherever its operands are from; None: all its parameters are in the key
    kind: None if describe is _all else describe
    for kind, describe in _PARAMETERS.items()
    if describe not in _IN_OTHER_WORDS and describe is not _assembled
}
