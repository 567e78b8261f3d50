"""Loops and branches whose programs are made by hand, in every form that a tracer would not write, beside NumPy.

Results of bodies are literals, inputs, the same variable twice or nothing that was computed; state and captured values
are unread, literals or without elements; loops run 0 or 1 times, in reverse, unrolled, inside each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from weft import lax
from weft.control.branches import cond_p
from weft.control.scan import scan_p
from weft.control.while_loop import while_p
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Literal
from weft.core.tracing import trace as tracing
from weft.interpreters import partial_eval as pe

F, I, B = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)  # noqa: E741 - the dtypes, one letter each in the tables below
SHAPES: list[tuple[int, ...]] = [(), (), (3,), (0,), (2, 2)]
Type = tuple[np.dtype[Any], tuple[int, ...]]
Atom = tuple[str, Any]  # ("value", position) or ("literal", number)
SCALAR: Type = (I, ())

NUMPY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "max": np.maximum,
    "neg": np.negative,
    "lt": np.less,
    "select_n": lambda which, off, on: np.where(which, on, off),
}


def value(draw: random.Random, aval: Type) -> Any:
    """A number or an array of eighths, so that sums are exact."""
    dtype, extents = aval
    whole = np.array([draw.randrange(-16, 16) for _ in range(int(np.prod(extents)))], np.float32).reshape(extents)
    made = whole % 2 < 1 if dtype == B else (whole / 8 if dtype == F else whole).astype(dtype)
    return made if extents else made[()]


def types(draw: random.Random, known: Sequence[Type], most: int) -> list[Type]:
    """Some types, often ones that there are values of."""
    count = draw.randrange(most + 1)
    return [
        draw.choice(known) if known and draw.random() < 0.7 else (draw.choice([F, I, B]), draw.choice(SHAPES))
        for _ in range(count)
    ]


def atom(draw: random.Random, known: Sequence[Type], wanted: Type) -> Atom:
    """A value of a type, or a literal."""
    indices = [index for index, aval in enumerate(known) if aval == wanted]
    if indices and (wanted[1] or draw.random() < 0.7):
        return "value", draw.choice(indices)
    return "literal", value(draw, wanted)


class Program:
    """Random equations on inputs of given types, and results of given types picked from inputs, values and literals."""

    def __init__(self, draw: random.Random, ins: Sequence[Type], outs: Sequence[Type], depth: int) -> None:
        self.ins, self.types = list(ins), list(ins)
        self.equations: list[Any] = []
        for _ in range(draw.randrange(4)):
            if depth and draw.random() < 0.3:
                self.add(Control(draw, self.types, depth - 1))
            else:
                self.add_operation(draw)
        self.outs = [atom(draw, self.types, aval) for aval in outs]

    def add(self, control: Control) -> None:
        self.equations.append(control)
        self.types += control.outs

    def add_operation(self, draw: random.Random) -> None:
        numbers = [index for index, (dtype, _) in enumerate(self.types) if dtype != B]
        if not numbers:
            return
        x = draw.choice(numbers)
        aval = self.types[x]
        word = draw.choice(["add", "sub", "max", "neg", "lt", "select_n"])
        rest = [] if word == "neg" else [atom(draw, self.types, aval)]
        masks = [index for index, mask in enumerate(self.types) if mask == (B, aval[1])]
        if word == "select_n":
            word, first = ("select_n", [("value", draw.choice(masks))]) if masks else ("add", [])
            operands = [*first, ("value", x), *rest]
        else:
            operands = [("value", x), *rest]
        self.equations.append((word, operands))
        self.types.append((B, aval[1]) if word == "lt" else aval)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The results in NumPy."""
        pool = list(values)
        for equation in self.equations:
            if isinstance(equation, Control):
                pool += equation.run([self.read(pool, x) for x in equation.operands])
            else:
                word, operands = equation
                pool.append(NUMPY[word](*[self.read(pool, x) for x in operands]))
        return [np.asarray(self.read(pool, x)) for x in self.outs]

    @staticmethod
    def read(pool: Sequence[Any], x: Atom) -> Any:
        return pool[x[1]] if x[0] == "value" else x[1]

    def traced(self) -> ClosedJaxpr:
        """The program, in which results that are literals are literals."""

        def flat(*values: Any) -> list[Any]:
            pool = list(values)
            for equation in self.equations:
                if isinstance(equation, Control):
                    pool += equation.bind([self.read(pool, x) for x in equation.operands])
                else:
                    word, operands = equation
                    pool.append(getattr(lax, word)(*[self.read(pool, x) for x in operands]))
            return [self.read(pool, x) for x in self.outs]

        closed, _ = tracing.trace_to_jaxpr(flat, [weft.core.ShapedArray(s, d) for d, s in self.ins])
        outvars = [
            Literal(x, weft.core.ShapedArray((), x.dtype)) if word == "literal" and not np.ndim(x) else v
            for (word, x), v in zip(self.outs, closed.jaxpr.outvars, strict=True)
        ]
        return ClosedJaxpr(closed.jaxpr.replace(outvars=outvars), closed.consts)


class Control:
    """A random scan, while or cond on values of the given types."""

    def __init__(self, draw: random.Random, known: Sequence[Type], depth: int) -> None:
        self.word = draw.choice(["scan", "scan", "while", "cond"])
        make = {"scan": self.make_scan, "while": self.make_while, "cond": self.make_cond}
        self.outs: list[Type] = []
        self.operands: list[Atom] = make[self.word](draw, known, depth)

    def make_scan(self, draw: random.Random, known: Sequence[Type], depth: int) -> list[Atom]:
        self.length, self.reverse = draw.choice([0, 1, 2, 3, 17]), draw.random() < 0.4
        self.unroll = draw.choice([1, 1, 2, 4, 20])
        consts, state, rows = (types(draw, known, most) for most in (3, 3, 2))
        outputs = types(draw, [*known, *rows, *state], 3)
        self.counts = len(consts), len(state)
        self.body = Program(draw, [*consts, *state, *rows], [*state, *outputs], depth)
        self.outs = [*state, *[(dtype, (self.length, *extents)) for dtype, extents in outputs]]
        stacked: list[Type] = [(dtype, (self.length, *extents)) for dtype, extents in rows]
        return [atom(draw, known, aval) for aval in (*consts, *state, *stacked)]

    def make_while(self, draw: random.Random, known: Sequence[Type], depth: int) -> list[Atom]:
        """It counts to a number in a part of its state, at any index."""
        tested, consts, state = (types(draw, known, most) for most in (2, 2, 3))
        counter = draw.randrange(len(state) + 1)
        state.insert(counter, SCALAR)
        self.counts = len(tested), len(consts)
        self.body, self.test = Program(draw, [*consts, *state], state, depth), Program(draw, [*tested, *state], [], 0)
        self.body.equations.append(("add", [("value", len(consts) + counter), ("literal", np.int32(1))]))
        self.body.outs[counter] = "value", len(self.body.types)
        self.test.equations.append(
            ("lt", [("value", len(tested) + counter), ("literal", np.int32(draw.choice([0, 1, 2, 5])))])
        )
        self.test.outs = [("value", len(self.test.types)) if draw.random() < 0.9 else ("literal", np.bool_(False))]
        self.outs = state
        operands = [atom(draw, known, aval) for aval in (*tested, *consts, *state)]
        operands[len(tested) + len(consts) + counter] = "literal", np.int32(0)
        return operands

    def make_cond(self, draw: random.Random, known: Sequence[Type], depth: int) -> list[Atom]:
        ins, self.outs = types(draw, known, 3), types(draw, known, 3)
        self.branches = [Program(draw, ins, self.outs, depth) for _ in range(draw.randrange(1, 4))]
        return [atom(draw, known, aval) for aval in (SCALAR, *ins)]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The results in NumPy: a Python loop."""
        if self.word == "cond":
            return self.branches[min(max(int(values[0]), 0), len(self.branches) - 1)].run(values[1:])
        n, m = self.counts
        if self.word == "while":
            tested, consts, state = values[:n], values[n : n + m], list(values[n + m :])
            while self.test.run([*tested, *state])[0]:
                state = self.body.run([*consts, *state])
            return [np.asarray(x) for x in state]
        consts, state, rows = values[:n], list(values[n : n + m]), values[n + m :]
        made: list[Any] = [None] * self.length
        for index in reversed(range(self.length)) if self.reverse else range(self.length):
            results = self.body.run([*consts, *state, *[row[index] for row in rows]])
            state, made[index] = results[:m], results[m:]
        outputs = [
            np.stack([row[k] for row in made]) if made else np.zeros(extents, dtype)
            for k, (dtype, extents) in enumerate(self.outs[m:])
        ]
        return [*[np.asarray(x) for x in state], *outputs]

    def bind(self, values: Sequence[Any]) -> list[Any]:
        if self.word == "cond":
            index = lax.clamp(np.int32(0), values[0], np.int32(len(self.branches) - 1))
            return cond_p.bind(index, *values[1:], branches=tuple([branch.traced() for branch in self.branches]))
        n, m = self.counts
        if self.word == "while":
            programs = {"cond_jaxpr": self.test.traced(), "body_jaxpr": self.body.traced()}
            return while_p.bind(*values, cond_nconsts=n, body_nconsts=m, **programs)
        return scan_p.bind(
            *values, jaxpr=self.body.traced(), length=self.length, num_consts=n, num_carry=m, reverse=self.reverse,
            unroll=self.unroll,
        )  # fmt: skip


def check(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("seed", range(24))
def test_random_loops(seed: int) -> None:
    """Compiled, one operation after the other, and without what only some of the results need."""
    draw = random.Random(seed)
    ins = [*types(draw, [], 4), (F, ())]
    program = Program(draw, ins, [], 0)
    program.add(Control(draw, program.types, draw.choice([0, 1, 2])))
    program.outs = [("value", index) for index in range(len(ins), len(program.types))]
    args = [value(draw, aval) for aval in ins]
    expected = program.run([np.asarray(x) for x in args])
    closed = program.traced()
    check(weft.jit(lambda *args: eval_jaxpr(closed.jaxpr, closed.consts, *args))(*args), expected)
    check(eval_jaxpr(closed.jaxpr, closed.consts, *map(weft.numpy.asarray, args)), expected)
    used = [draw.random() < 0.5 for _ in expected]
    pruned, reads = pe.dce_jaxpr(closed.jaxpr, used)
    given = [x for x, has in zip(args, reads, strict=True) if has]
    found = weft.jit(lambda *args: eval_jaxpr(pruned, closed.consts, *args))(*given)
    check(found, [x for x, has in zip(expected, used, strict=True) if has])


def test_a_part_of_the_state_without_elements_before_parts_that_are_exchanged() -> None:
    """It has no block of memory, so that its address is that of another part."""
    rows = weft.numpy.arange(1.0, 6.0)

    def step(state: Any, _: Any) -> Any:
        last = lax.scan(lambda c, row: (row, c + 0.5), state[1], rows)[0]
        return (weft.numpy.full((0,), True), last, -1.0), state[1]

    empty = weft.numpy.zeros(0, bool)
    final, seen = weft.jit(lambda: lax.scan(step, (empty, 9.0, 9.0), None, length=3))()
    assert ([x.tolist() for x in final], seen.tolist()) == ([[], 5.0, -1.0], [9.0, 5.0, 5.0])
