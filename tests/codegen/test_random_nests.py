"""Random expressions over every dtype: the same bits on vectors, on scalars, and on every target of this processor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.running import HOST, elementwise, load
from tests.codegen.test_emitter import BF16, BOOL, COMPLEX, EVERY, F16, FLOATS, operands
from weft import runtime
from weft._base import target
from weft.codegen import compile as compiling
from weft.loops import ir

UNARY_FLOAT = ["neg", "abs", "floor", "round_half_even", "sign", "exp", "sin", "tanh", "sqrt", "log1p", "erf", "atan"]
BINARY = ["add", "sub", "mul", "max", "min"]
COUNTS = (0, 1, 15, 33, 100)


class Expressions:
    """Grows a list of statements; every value has a known dtype."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.dtypes = [EVERY[k] for k in self.r.integers(0, len(EVERY), 3)]
        self.statements = [ir.Load(k, k) for k in range(3)]
        self.values = list(enumerate(self.dtypes))

    def add(self, scalar, args, dtype):
        out = len(self.values)
        self.statements.append(
            ir.Apply(out, "f", elementwise(scalar, cost=float(self.r.choice([1, 8]))), (), args, dtype)
        )
        self.values.append((out, dtype))

    def grow(self):
        r = self.r
        n, dtype = self.values[r.integers(len(self.values))]
        same = [m for m, d in self.values if d == dtype]
        other = int(r.choice(same))
        kind = r.integers(6)
        if kind == 0:
            to = EVERY[r.integers(len(EVERY))]
            if dtype in COMPLEX and to not in COMPLEX:
                return
            self.add(lambda e, x, to=to: e.convert(x, to), (n,), to)
        elif kind == 1 and dtype in FLOATS:
            name = str(r.choice(UNARY_FLOAT))
            self.add(lambda e, x, name=name: getattr(e, name)(x), (n,), dtype)
        elif kind == 2:
            name = str(r.choice(["eq", "ne"] if dtype in COMPLEX else ["lt", "le", "eq", "ne"]))
            self.add(lambda e, x, y, name=name: e.compare(name, x, y), (n, other), BOOL)
        elif kind == 3:
            which = [m for m, d in self.values if d == BOOL]
            if which:
                self.add(lambda e, w, x, y: e.select(w, x, y), (int(r.choice(which)), n, other), dtype)
        elif kind == 4 and dtype.kind in "iu":
            name = str(r.choice(["div", "rem", "and_", "xor", "shift_left", "shift_right_logical", "population_count"]))
            args = (n,) if name == "population_count" else (n, other)
            self.add(lambda e, *a, name=name: getattr(e, name)(*a), args, dtype)
        else:
            name = str(r.choice(BINARY[:3] if dtype in COMPLEX else BINARY[2:] if dtype == BOOL else BINARY))
            self.add(lambda e, x, y, name=name: getattr(e, name)(x, y), (n, other), dtype)

    def nest(self, width, strided):
        outs = self.values[-3:]
        stores = [ir.Store(3 + k, n) for k, (n, _) in enumerate(outs)]
        inputs = [ir.Operand(d, "in", (ir.RUNTIME if k == strided else 1,)) for k, d in enumerate(self.dtypes)]
        results = [ir.Operand(d, "out", (1,)) for _, d in outs]
        phase = ir.Phase(body=(*self.statements, *stores))
        return ir.Nest((ir.Dim("parallel"),), (*inputs, *results), (), (), 0, width, False, (), (phase,)), outs


def results(expressions, width, on, strided, arrays):
    made, outs = expressions.nest(width, strided)
    call, _ = load(made, on)
    found = []
    for n in COUNTS:
        buffers = [np.zeros(n + 3, d) for _, d in outs]
        call([*arrays, *buffers], [n, 2], [0, 0, 0, n, 0, 0])
        found += buffers
    return found


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_same_bits_everywhere(seed):
    expressions = Expressions(seed)
    while len(expressions.values) < 14:
        expressions.grow()
    arrays = [operands(d, 240)[k % 2].copy() for k, d in enumerate(expressions.dtypes)]
    strided = seed % 4
    ways = [(1, HOST)] + [
        (t.lanes, t) for t in target.TARGETS.values() if t.triple == HOST.triple and t.lanes <= HOST.lanes
    ]
    runs = [results(expressions, width, on, strided, arrays) for width, on in ways]
    for run in runs[1:]:
        for got, want in zip(run, runs[0], strict=True):
            if got.dtype in (BF16, F16):
                got, want = got.astype(np.float32), want.astype(np.float32)
            np.testing.assert_array_equal(got, want)
    for on in target.TARGETS.values():  # other processors: at least an object without outside symbols
        made = compiling.compile_nest(expressions.nest(on.lanes, strided)[0], on)
        assert runtime.link_kernel(made.bytes, made.symbol)
