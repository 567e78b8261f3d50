"""Writes what finds run-time offsets on a GPU: starts are clamped, their bytes added (``loops.gpu.grid_starts``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft._base.target import Target
from weft.codegen.cpu import families
from weft.codegen.gpu import threads
from weft.codegen.writer import Writer
from weft.loops.gpu.grid_starts import Moved, Starts

Term = tuple[str, np.dtype, str, str]  # where a start is, its type, the most that it may be, its stride


def offset_of(writer: Writer, terms: Sequence[Term]) -> tuple[str, str]:
    """The sum of clamped starts times strides, and whether a start was clamped."""
    total, clamped = "0", "false"
    for pointer, dtype, most, stride in terms:
        bits, signed = 8 * dtype.itemsize, dtype.kind == "i"
        value = writer.load(f"i{bits}", pointer)
        if bits < 64:
            value = writer.op(f"{'sext' if signed else 'zext'} i{bits} {value} to i64")
        over = writer.compare_index("sgt" if signed else "ugt", value, most)
        under = writer.compare_index("slt", value, "0") if signed else "false"
        clamped = writer.op(f"or i1 {clamped}, {writer.op(f'or i1 {over}, {under}')}")
        value = writer.choose_index(under, "0", writer.choose_index(over, most, value))
        total = writer.index("add", total, writer.index("mul", value, stride))
    return total, clamped


def write(starts: Starts, target: Target) -> Writer:
    """The entry ``starts``, of one thread."""
    writer = families.writer(target)
    pointers = iter([writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr") for k in range(len(starts.operands))])
    words: Iterator[str] = iter([f"%w{k}" for k in range(2 * len(starts.operands))])
    for dtypes, flag in starts.offsets:
        terms = [(next(pointers), dtype, next(words), next(words)) for dtype in dtypes]
        total, clamped = offset_of(writer, terms)
        writer.line(f"store i64 {total}, ptr {next(pointers)}")
        if flag:
            byte = next(pointers)
            threads.when(writer, clamped, lambda byte=byte: writer.line(f"store i8 1, ptr {byte}"))
    return writer


def moved(kernel: Moved) -> tuple[list[str], list[str]]:
    """Parameters of the operands of a moved kernel, and the lines that move them."""
    own, lines = len(kernel.nest.operands), list[str]()
    parameters = [f"%o{k}" for k in range(len(kernel.operands))]
    for operand, number in kernel.moved:
        parameters[operand] = f"%from{operand}"
        lines.append(f"%by{operand} = load i64, ptr addrspace(1) %o{own + number}")
        lines.append(f"%o{operand} = getelementptr i8, ptr addrspace(1) %from{operand}, i64 %by{operand}")
    return [f"ptr addrspace(1) {name}" for name in parameters], lines
