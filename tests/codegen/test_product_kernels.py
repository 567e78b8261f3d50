"""Kernels of matrix products for every width of vectors: the same bits, on the processor that runs the test."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import weft
from weft.codegen.cpu.products import columns, packing, rows, tiles
from weft.codegen.cpu.products.lanes import NARROW, Lanes, Machine
from weft.codegen.cpu.products.tables import ATTRIBUTES, KERNELS, VECTOR_KERNELS
from weft.codegen.cpu.products.writer import Function, Module, offsets, size_of
from weft.operations.product_sums import product

# The machines of ``MACHINES``, in instructions of any processor: none permutes lanes by numbers in a register.
WIDTHS = {
    "16 bytes": Machine("narrow", 16, height=8, free=16, masks=False, permutes=False),
    "32 bytes": Machine("middle", 32, height=6, free=8, masks=False, permutes=False),
    "64 bytes, masks": Machine("wide", 64, height=14, free=16, masks=True, permutes=False),
}
DTYPES = {"f": np.float32, "d": np.float64, "F": np.complex64, "D": np.complex128, "i": np.int32, "l": np.int64}
KINDS = {
    "ptr": ctypes.c_void_p, "i64": ctypes.c_int64, "i32": ctypes.c_int32, "i8": ctypes.c_int8,
    "double": ctypes.c_double,
}  # fmt: skip


def compiled(write: Callable[[Module], Function]) -> Callable[..., None]:
    """A kernel as a function."""
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
    call: Any = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(function.name))
    call.code = engine  # its code lives as long as the function
    return call


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
    """A width of vectors."""
    return WIDTHS[request.param]


def fields_in_header(struct: str) -> list[tuple[str, str]]:
    """The fields of a record of runtime/src/gemm_kernels.h, as the package lists them."""
    header = (Path(weft.__file__).parent / "runtime/src/gemm_kernels.h").read_text()
    found = re.search(rf"^struct {struct} {{\n(.*?)^}};", header, re.S | re.M)
    assert found is not None
    body = re.sub(r"//.*", "", found[1])
    body = re.sub(r"^ *\w+ line\(.*", "", body, flags=re.M)  # a method
    body = re.sub(r"void \(\*(\w+)\)\([^)]*\)", r"Function \1", body)
    kinds, fields = {"int": "i32", "int64_t": "i64", "double": "double", "bool": "i8", "char": "i8"}, []
    for statement in filter(None, map(str.strip, body.split(";"))):
        first, *others = statement.removeprefix("const ").split(",")
        kind, _, first = first.replace("* const*", "*").replace("*", " *").strip().partition(" ")
        for name in (first, *others):
            bare, of, count = name.strip(" *").partition("[")
            type_ = "ptr" if "*" in name or kind.endswith("Function") else kinds[kind]
            for i in range(int(count.strip("]")) if of else 1):
                fields.append((f"{bare}[{i}]" if of else bare, type_))
    return fields


RECORDS = {
    "GemmTile": tiles.TILE, "GemmCarry": tiles.CARRY, "GemmRun": tiles.RUN, "GemmPanel": tiles.PANEL,
    "GemmVector": rows.VECTOR, "GemmStreams": columns.STREAMS,
    "GemmVectorKernels": VECTOR_KERNELS, "GemmKernels": KERNELS,
}  # fmt: skip


@pytest.mark.parametrize("struct", RECORDS)
def test_records_are_those_of_the_header(struct: str) -> None:
    layout, stated = RECORDS[struct], fields_in_header(struct)
    if struct == "GemmVectorKernels":  # its first eight fields are two arrays
        assert [name for name, _ in stated[:8]] == [f"{of}[{i}]" for of in ("rows", "wide_rows") for i in range(4)]
        stated[:8] = layout[:8]
    if struct == "GemmCarry":  # kernels read its first fields alone
        stated = stated[: len(layout)]
    assert stated == layout


@pytest.mark.parametrize("struct", RECORDS)
def test_records_are_laid_out_as_c_does(struct: str) -> None:
    layout = RECORDS[struct]
    made = type(record(layout))
    assert [getattr(made, f"{name}_").offset for name, _ in layout] == [at for at, _ in offsets(layout).values()]
    assert ctypes.sizeof(made) == size_of(layout)


@pytest.mark.parametrize("letter", DTYPES)
@pytest.mark.parametrize("columns_", [1, 0])
def test_tiles(width: Machine, letter: str, columns_: int) -> None:
    e = Lanes(width, letter)
    n, k, height = 2 * e.width - columns_ % e.width, 37, 3
    a, b, c = numbers(letter, height, k), numbers(letter, k, n), numbers(letter, height, n)
    call = compiled(lambda module: tiles.Tile(module, e, "tile", height, [e.vector] * 2, "strided").write())
    expected = c + product(a, b, in_chains=False)
    operands = record(
        tiles.TILE, a=a.ctypes.data, a_row=k, a_k=1, b=b.ctypes.data, b_k=n, c=c.ctypes.data, c_row=n, k=k,
        rows=height, columns=n, add=1,
    )  # fmt: skip
    call(ctypes.byref(operands))
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("letter", DTYPES)
def test_rows_by_a_vector(width: Machine, letter: str) -> None:
    e, count, k = Lanes(width, letter), 11, 45
    a, x, y = numbers(letter, count, k), numbers(letter, k), np.zeros(count, DTYPES[letter])
    call = compiled(lambda module: rows.RowsKernel(module, e, "rows", letter, 2, False).f)
    operands = record(
        rows.VECTOR, a=a.ctypes.data, a_row=k, a_k=1, x=x.ctypes.data, x_k=1, y=y.ctypes.data, y_row=1, rows=count, k=k
    )
    call(ctypes.byref(operands))
    np.testing.assert_array_equal(y, product(a, x[:, None])[:, 0])


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("letter", DTYPES)
def test_strips_of_columns(width: Machine, letter: str, by_lane: bool) -> None:
    e, k = Lanes(width, letter), 45
    last = max(1, e.width - 1)
    count = e.width + last
    a, x, y = numbers(letter, k, count), numbers(letter, k), np.zeros(count, DTYPES[letter])
    call = compiled(lambda module: columns.Strip(module, e, "strip", letter, 2, last < e.width, by_lane).f)
    operands = record(
        rows.VECTOR, a=a.ctypes.data, a_row=1, a_k=count, x=x.ctypes.data, x_k=1, y=y.ctypes.data, y_row=1, rows=count,
        k=k,
    )  # fmt: skip
    call(ctypes.byref(operands), 0, last)
    np.testing.assert_array_equal(y, product(x[None], a)[0])


@pytest.mark.parametrize("letter", [*"fdFD", *NARROW])
def test_packing(width: Machine, letter: str) -> None:
    narrow = {"e": np.float16, "E": ml_dtypes.bfloat16, "h": np.int16, "H": np.uint16, "b": np.int8, "B": np.uint8}
    sums = letter if letter in DTYPES else "f" if letter in "eE" else "i"
    e, k = Lanes(width, sums), 35
    columns_, padded = e.width + 1, 2 * e.width
    call = compiled(lambda module: packing.pack(module, e, "pack", letter))
    dtype = np.dtype({**DTYPES, **narrow}[letter])
    source = np.random.default_rng(5).integers(0, 100, (k, columns_)).astype(dtype)
    expected = np.zeros((k, padded), DTYPES[sums])
    expected[:, :columns_] = source.astype(DTYPES[sums])
    apart = np.zeros((k, 2 * columns_), dtype)
    apart[:, ::2] = source
    for lies in (source, np.asfortranarray(source), apart[:, ::2]):  # columns side by side, terms side by side, neither
        to = np.ones((k, padded), DTYPES[sums])
        steps = [stride // dtype.itemsize for stride in lies.strides]
        operands = record(
            tiles.PANEL, source=lies.ctypes.data, k_stride=steps[0], x_stride=steps[1], k=k, width=columns_,
            padded=padded, pitch=padded, to=to.ctypes.data,
        )  # fmt: skip
        call(ctypes.byref(operands))
        np.testing.assert_array_equal(to, expected)


def test_short_rows_that_are_permuted() -> None:
    for letter in DTYPES:
        e, count, k = Lanes(WIDTHS["64 bytes, masks"], letter), 13, 3
        k = min(k, e.width // 2)
        a, x, y = numbers(letter, count, k), numbers(letter, k), np.zeros(count, DTYPES[letter])
        call = compiled(lambda module, e=e: rows.short_rows(module, e, "short"))
        operands = record(
            rows.VECTOR, a=a.ctypes.data, a_row=k, a_k=1, x=x.ctypes.data, x_k=1, y=y.ctypes.data, y_row=1, rows=count,
            k=k,
        )  # fmt: skip
        call(ctypes.byref(operands))
        np.testing.assert_array_equal(y, product(a, x[:, None])[:, 0])
