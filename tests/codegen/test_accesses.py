"""Accesses at known offsets against NumPy: any offsets, every dtype; nothing between unreadable pages is touched.

The functions run in a child process, which dies if one of them strays.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft
from tests.codegen.test_bounds import NAMES

PROGRAM = """
    import sys
    import ml_dtypes
    import numpy as np
    from tests.codegen.running import guarded, load_text
    from weft._base import target
    from weft.codegen.memory_access import accesses
    from weft.codegen import module_text
    from weft.codegen.cpu import families
    from weft.codegen.arithmetic.lanes import Lanes
    from weft.codegen.memory_access.memory import Memory
    from weft.codegen.memory_access.memory_words import whole
    from weft.codegen.nests.nest import PARAMETERS
    from weft.codegen.writer import Writer

    on = target.named(sys.argv[1])
    rng = np.random.default_rng(7)
    DTYPES = [np.float32, np.float64, np.int8, np.uint16, np.int64, np.bool_, np.complex64, np.complex128]
    DTYPES += [ml_dtypes.bfloat16]

    def drawn(kind, width):
        if kind == "any":
            return rng.integers(0, rng.integers(1, 5 * width), width)
        if kind == "one":
            return np.full(width, rng.integers(0, 9))
        if kind == "rows":
            return (np.arange(width) // rng.integers(1, 5)) * rng.integers(1, 9) + rng.integers(0, 9)
        return abs((np.arange(width) - (width - 1) * rng.integers(0, 2)) * rng.integers(1, 5)) + rng.integers(0, width)

    def function(write, dtype, width, arrays):
        writer = families.writer(on)
        slots = [writer.element("ptr", "%operands", str(k)) for k in range(len(arrays))]
        pointers = [writer.op(f"load ptr, ptr {slot}, align 8") for slot in slots]
        write(Memory(Lanes(writer, width), on), pointers)
        call, _ = load_text(module_text.text(writer, "k", PARAMETERS), on)
        call(arrays, [], [0] * 6)

    def filled(count, dtype, end):
        found = guarded(count, dtype, end)
        found[:] = rng.integers(0, 2 if dtype == bool else 100, count).astype(dtype)
        return found

    def loads(dtype, width, end):
        vectors, sources = rng.integers(1, 5), rng.integers(1, 3)
        numbers = [np.full(width, k % sources) for k in range(vectors)]
        numbers = [rng.integers(0, sources, width) if rng.random() < 0.5 else one for one in numbers]
        numbers[0][:sources] = np.arange(sources)
        numbers += [np.full(width, n) for n in range(sources)]
        offsets = [drawn(rng.choice(["any", "one", "rows", "steps"]), width) for _ in numbers]
        least = [min(p[n == k].min(initial=99) for n, p in zip(numbers, offsets)) for k in range(sources)]
        offsets = [p - np.array(least)[n] for n, p in zip(numbers, offsets)]
        spans = [max(p[n == k].max(initial=0) for n, p in zip(numbers, offsets)) + 1 for k in range(sources)]
        arrays = [*[filled(span, dtype, end) for span in spans], guarded(width * len(numbers), dtype, end)]

        def write(memory, pointers):
            wanted = [list(zip(n.tolist(), p.tolist())) for n, p in zip(numbers, offsets)]
            for k, value in enumerate(accesses.load(memory, dtype, pointers[:-1], wanted)):
                memory.store(value, memory.writer.element(whole(dtype), pointers[-1], str(k * width)))

        function(write, dtype, width, arrays)
        expected = [arrays[n][o] for row in zip(numbers, offsets) for n, o in zip(*row)]
        assert arrays[-1].tobytes() == np.array(expected, dtype).tobytes(), (dtype, width, numbers, offsets)

    def stores(dtype, width, end):
        vectors = rng.integers(1, 5)
        order = rng.permutation(width * vectors)
        kind = rng.integers(0, 3)
        if kind == 1:  # whole vectors, which may overlap
            order = np.concatenate([np.arange(width) + start for start in rng.integers(0, 2 * width, vectors)])
        if kind == 2 and Memory(Lanes(families.writer(on), width), on).masks(dtype):
            order = np.sort(rng.choice(4 * width, width * vectors, replace=False)) if vectors < 4 else order
            order = order - order.min()
        rows = order.reshape(vectors, width).tolist()
        arrays = [filled(width * vectors, dtype, end), filled(max(map(max, rows)) + 1, dtype, end)]
        expected = arrays[1].copy()
        values = arrays[0].copy()
        if kind == 1:
            values = arrays[0][: 1].repeat(width * vectors)
        arrays[0][:] = values
        expected[np.concatenate(rows)] = values

        def write(memory, pointers):
            starts = [memory.writer.element(whole(dtype), pointers[0], str(k * width)) for k in range(vectors)]
            given = [memory.load(dtype, start) for start in starts]
            accesses.store(memory, given, [[(0, offset) for offset in row] for row in rows], pointers[1:])

        function(write, dtype, width, arrays)
        assert arrays[1].tobytes() == expected.tobytes(), (dtype, width, rows)

    def rows(dtype, width, end):
        # elements of rows at pointers of their own, as lanes and back
        count = int(rng.integers(1, 20))
        count = count if Memory(Lanes(families.writer(on), width), on).masks(dtype) else -(-count // width) * width
        arrays = [filled(count, dtype, end) for _ in range(2 * width)]
        offsets = [[(row, k) for row in range(width)] for k in range(count)]

        def write(memory, pointers):
            values = accesses.load(memory, dtype, pointers[:width], offsets)
            accesses.store(memory, values, offsets, pointers[width:])

        function(write, dtype, width, arrays)
        for given, found in zip(arrays[:width], arrays[width:]):
            assert given.tobytes() == found.tobytes(), (dtype, width, count)

    for number in range(120):
        dtype = np.dtype(DTYPES[number % len(DTYPES)])
        width = [on.lanes, on.lanes // 2, 2 * on.lanes, 2][number % 4]
        (rows if number % 5 == 4 else loads if number % 3 else stores)(dtype, width, bool(number & 8))
    print("fine")
"""


@pytest.mark.parametrize("name", NAMES)
def test_any_offsets(name: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", (done.returncode, done.stderr[-2000:])


def test_elements_of_one_row_are_loaded_once() -> None:
    """A reversed row is one load, and a shuffle."""
    text = weft.jit(lambda x: x[:, ::-1]).lower(np.zeros((3000, 8), np.float32)).compile().as_text("llvm")
    assert "masked" not in text and text.count("load <8 x float>") == 1
