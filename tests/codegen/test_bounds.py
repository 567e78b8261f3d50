"""No access outside an operand: arrays end right before, or begin right behind, memory that must not be touched.

The kernels run in a child process, which dies if one of them strays.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.codegen.running import HOST
from weft._base import target

NAMES = [t.name for t in target.TARGETS.values() if t.triple == HOST.triple and t.lanes <= HOST.lanes]

PROGRAM = """
    import sys
    import numpy as np
    from tests.codegen.running import guarded, load, map_nest, elementwise
    from tests.codegen.test_nests import P, R, apply, nest, operand, phase_sum, ADD
    from weft._base import target
    from weft.loops import ir

    on = target.named(sys.argv[1])
    for dtype in (np.float32, np.float64, np.int8, np.uint16, np.complex64, np.complex128, np.bool_, np.float16):
        dtype = np.dtype(dtype)
        scalar = (lambda e, x: e.not_(x)) if dtype == np.bool_ else (lambda e, x: e.add(x, x))
        for cost in (1.0, 40.0):
            for stride in (1, ir.RUNTIME):
                call, _ = load(map_nest(elementwise(scalar, cost=cost), [dtype], dtype, on.lanes, stride=stride), on)
                for n in (1, 2, 15, 16, 17, 33, 63):
                    for end in (False, True):
                        step = 1 if stride == 1 else 3
                        x, out = guarded((n - 1) * step + 1, dtype, end), guarded(n, dtype, end)
                        x[:] = 1
                        call([x, out], [n, step], [0, 0, 0, n, 0, 0])
                        assert (out == (0 if dtype == np.bool_ else 2)).all()
        made = phase_sum(dtype, on)
        if made is not None:
            call, _ = load(made, on)
            for n in (1, 5, 31, 32, 33, 100):
                for end in (False, True):
                    x, out = guarded(n, dtype, end), guarded(1, dtype, end)
                    x[:] = 1
                    call([x, out], [1, n, n], [0, 1, 0, n, 0, 0])
                    assert out[0] == np.array(n).astype(dtype)
    operands = [operand(np.float32, "in", 1, ir.RUNTIME), operand(np.float32, "out", ir.RUNTIME, 1)]
    body = (ir.Load(0, 0), apply(1, ADD, 0, 0), ir.Store(1, 1))
    call, _ = load(nest((P, P), operands, [ir.Phase(body=body)], 1, on.lanes), on)
    for m, n in ((1, 1), (16, 16), (17, 33), (40, 20)):
        for end in (False, True):
            x, out = guarded(m * n, np.float32, end), guarded(m * n, np.float32, end)
            x[:] = np.arange(m * n)
            call([x, out], [m, n, m, n], [0, m, 0, n, 0, 0])
            assert (out.reshape(m, n) == 2 * x.reshape(n, m).T).all()
    digit = ir.Dim("digit")
    for dtype in (np.float32, np.int32, np.float64):  # rows of longer rows, as vectors over several of them
        operands = [operand(dtype, "in", 0, ir.RUNTIME, 1), operand(dtype, "out", 1, 0, 0)]
        body = (ir.Load(0, 0), apply(1, ADD, 0, 0, dtype=dtype), ir.Store(1, 1))
        call, _ = load(nest((P, digit, digit), operands, [ir.Phase(body=body)], 0, on.lanes), on)
        for rows, columns, stride in ((1, 2, 3), (7, 3, 5), (40, 3, 5), (99, 4, 4), (33, 5, 9), (50, 2, 40)):
            for end in (False, True):
                x, out = guarded((rows - 1) * stride + columns, dtype, end), guarded(rows * columns, dtype, end)
                x[:] = np.arange(x.size)
                for cut in (0, rows * columns // 3):
                    for low, high in ((0, cut), (cut, rows * columns)):
                        call([x, out], [rows * columns, rows, columns, stride], [0, 0, low, high, 0, 0])
                wanted = (np.arange(rows)[:, None] * stride + np.arange(columns)).ravel()
                assert (out == 2 * wanted).all(), (dtype, rows, columns, stride)
    print("fine")
"""


@pytest.mark.parametrize("name", NAMES)
def test_nothing_outside_the_operands_is_touched(name):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", (done.returncode, done.stderr[-2000:])
