"""Running single nests: compile, load, call through the kernel ABI on NumPy arrays."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from weft import runtime
from weft._base import target
from weft.codegen import compile as compiling
from weft.core import kinds
from weft.loops import ir

HOST = target.host()
P = ctypes.c_void_p
GO_ON = np.zeros(1, np.int32)  # what kernels read to know whether they are to stop
_kept = []


def guarded(count: int, dtype: np.dtype | type, at_end: bool) -> np.ndarray:
    """An array inside readable pages between two unreadable ones."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 6 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _kept.append(memory)
    libc = ctypes.CDLL(None, use_errno=True)
    for outer in (0, 5):
        assert libc.mprotect(ctypes.c_void_p(base + outer * page), page, 0) == 0
    size = count * np.dtype(dtype).itemsize
    start = 5 * page - size if at_end else page
    return np.frombuffer(memory, dtype, count, start)


def load(nest: ir.Nest, on: target.Target = HOST):
    """A callable (operands, params, the six numbers of the range, scratch) and the compiled object."""
    return load_text(compiling.text_of(nest, on), on)


def load_text(text: str, on: target.Target = HOST):
    """``load`` of a function that is written."""
    compiled = compiling.compile_text(text, on)
    image, entry = runtime.link_kernel(compiled.bytes, compiled.symbol)
    memory = mmap.mmap(-1, len(image) + 64, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(image)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + entry
    function = ctypes.CFUNCTYPE(None, P, P, P, P)(address)
    _kept.append(memory)

    def call(arrays, params, limits, scratch=0):
        pointers = (P * max(len(arrays), 1))(*(a if isinstance(a, int) else a.ctypes.data for a in arrays))
        block = np.array(params if len(params) else [0], np.int64)
        bounds = np.array([*limits, GO_ON.ctypes.data], np.int64)
        space = np.zeros(max(scratch, 64) + 64, np.uint8)
        base = (space.ctypes.data + 63) & ~63
        function(ctypes.addressof(pointers), block.ctypes.data, bounds.ctypes.data, base)

    return call, compiled


def elementwise(scalar, reference=None, cost=1.0):
    return kinds.Elementwise(scalar, reference, cost)


def map_nest(kind, in_dtypes, out_dtype, width=HOST.lanes, params=(), stride=1):
    """out[i] = kind(*in[i]) over one parallel dimension."""
    n = len(in_dtypes)
    operands = [ir.Operand(np.dtype(d), "in", (stride,)) for d in in_dtypes]
    operands.append(ir.Operand(np.dtype(out_dtype), "out", (1,)))
    body = [ir.Load(k, k) for k in range(n)]
    body.append(ir.Apply(n, "f", kind, params, tuple(range(n)), np.dtype(out_dtype)))
    body.append(ir.Store(n, n))
    return ir.Nest((ir.Dim("parallel"),), tuple(operands), (), (), 0, width, False, (), (ir.Phase(body=tuple(body)),))


def run_map(kind, arrays, out_dtype, width=HOST.lanes, params=(), stride=1, on=HOST):
    """Apply a kind to 1-d arrays natively."""
    n = len(arrays[0]) // stride
    call, _ = load(
        map_nest(kind, [a.dtype for a in arrays], out_dtype, width, params, stride if stride == 1 else ir.RUNTIME), on
    )
    out = np.zeros(n, out_dtype)
    call([*arrays, out], [n] + ([stride] * len(arrays) if stride != 1 else []), [0, 0, 0, n, 0, 0])
    return out
