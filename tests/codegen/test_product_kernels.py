"""Kernels of matrix products for every width of vectors: the same bits, on the processor that runs the test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from weft.codegen.cpu.products import columns, rows, tiles
from weft.codegen.cpu.products.lanes import Lanes, Machine
from weft.codegen.cpu.products.tables import ATTRIBUTES
from weft.codegen.cpu.products.writer import Function, Module, offsets
from weft.operations.product_sums import product

# what each instruction set's kernels look like, in instructions of any processor
WIDTHS = {
    "16 bytes": Machine("narrow", 16, 8, False, False, "", ""),
    "32 bytes": Machine("middle", 32, 6, True, False, "", ""),
    "64 bytes, masks": Machine("wide", 64, 14, False, True, "", ""),
}
DTYPES = {"f": np.float32, "d": np.float64, "F": np.complex64, "D": np.complex128, "i": np.int32, "l": np.int64}
KINDS = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64, "i32": ctypes.c_int32, "i8": ctypes.c_int8}


def compiled(write: Callable[[Module], Function]) -> tuple[Any, Any]:
    """A kernel as a function, and what keeps its code alive."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = Module()
    function = write(module)
    text = module.text(ATTRIBUTES).replace(f"define internal void @{function.name}(", f"define void @{function.name}(")
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=1)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    types = [KINDS[argument.type] for argument in function.arguments]
    return ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(function.name)), engine


def record(layout: list[tuple[str, str]], **values: int) -> ctypes.Structure:
    """A record of these values, the others zero."""
    fields = [(f"{name}_", KINDS[type_]) for name, type_ in layout]
    made = type("Made", (ctypes.Structure,), {"_fields_": fields})()
    for name, value in values.items():
        setattr(made, f"{name}_", value)
    return made


def numbers(letter: str, *shape: int) -> np.ndarray:
    """Values of few bits, so that a product and its sum with another number are exact in float64."""
    rng, dtype = np.random.default_rng(3), DTYPES[letter]
    whole = rng.integers(-2047, 2048, shape)
    if letter in "il":
        return (whole * 1234567).astype(dtype)
    made = whole / 1024 + (1j * rng.integers(-2047, 2048, shape) / 1024 if letter in "FD" else 0)
    return made.astype(dtype)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> Machine:
    """A width, without the instructions that only some processors have."""
    machine = WIDTHS[request.param]
    machine.permutes = False
    return machine


def test_records_are_laid_out_as_c_does() -> None:
    for layout in (tiles.TILE, tiles.CARRY, tiles.PANEL, rows.VECTOR, columns.CHAIN, columns.STREAMS):
        made = record(layout)
        for name, (offset, _) in offsets(layout).items():
            assert getattr(type(made), f"{name}_").offset == offset


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize("columns_", [1, 0])
def test_tiles(width: Machine, letter: str, columns_: int) -> None:
    e = Lanes(width, letter)
    n, k, height = 2 * e.width - columns_ % e.width, 37, 3
    a, b, c = numbers(letter, height, k), numbers(letter, k, n), numbers(letter, height, n)
    call, engine = compiled(lambda module: tiles.Tile(module, e, "tile", height, [e.vector] * 2, "strided").write())
    expected = c + product(a, b, in_chains=False)
    place = record(
        tiles.TILE, a=a.ctypes.data, a_row=k, a_k=1, b=b.ctypes.data, b_k=n, c=c.ctypes.data, c_row=n, k=k,
        rows=height, columns=n, add=1,
    )  # fmt: skip
    call(ctypes.byref(place))
    assert engine is not None
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("letter", DTYPES)
def test_rows_by_a_vector(width: Machine, letter: str) -> None:
    e, count, k = Lanes(width, letter), 11, 45
    a, x, y = numbers(letter, count, k), numbers(letter, k), np.zeros(count, DTYPES[letter])
    call, engine = compiled(lambda module: rows.RowsKernel(module, e, "rows", letter, 2, False).f)
    place = record(
        rows.VECTOR, a=a.ctypes.data, a_row=k, a_k=1, x=x.ctypes.data, x_k=1, y=y.ctypes.data, y_row=1, rows=count, k=k
    )
    call(ctypes.byref(place))
    assert engine is not None
    np.testing.assert_array_equal(y, product(a, x[:, None])[:, 0])


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("letter", DTYPES)
def test_strips_of_columns(width: Machine, letter: str, by_lane: bool) -> None:
    e, k = Lanes(width, letter), 45
    last = max(1, e.width - 1)
    count = e.width + last
    a, x, y = numbers(letter, k, count), numbers(letter, k), np.zeros(count, DTYPES[letter])
    call, engine = compiled(lambda module: columns.Strip(module, e, "strip", letter, 2, last < e.width, by_lane).f)
    place = record(
        rows.VECTOR,
        a=a.ctypes.data,
        a_row=1,
        a_k=count,
        x=x.ctypes.data,
        x_k=1,
        y=y.ctypes.data,
        y_row=1,
        rows=count,
        k=k,
    )
    call(ctypes.byref(place), 0, last)
    assert engine is not None
    np.testing.assert_array_equal(y, product(x[None], a)[0])


def test_short_rows_that_are_permuted() -> None:
    machine = Machine("wide", 64, 14, False, True, "", "")
    machine.permutes = False
    for letter in DTYPES:
        e, count, k = Lanes(machine, letter), 13, 3
        k = min(k, e.width // 2)
        a, x, y = numbers(letter, count, k), numbers(letter, k), np.zeros(count, DTYPES[letter])
        call, engine = compiled(lambda module, e=e: rows.short_rows(module, e, "short"))
        place = record(
            rows.VECTOR, a=a.ctypes.data, a_row=k, a_k=1, x=x.ctypes.data, x_k=1, y=y.ctypes.data, y_row=1, rows=count,
            k=k,
        )  # fmt: skip
        call(ctypes.byref(place))
        assert engine is not None
        np.testing.assert_array_equal(y, product(a, x[:, None])[:, 0])
