"""Small kernels written by hand in LLVM IR, as relocatable objects: what the runtime's tests load and run.

``unary_kernel("fadd", "1.0")`` is a Kernel with the runtime's calling convention that applies one instruction to
every element of operand 0 and stores to operand 1, over the vector range it is given.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from weft import runtime
from weft.compiler.plans.instructions import Kernel, NewOutput

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

SIGNATURE = "define void @kernel(ptr %ops, ptr %params, ptr %range, ptr %scratch)"

UNARY = (
    SIGNATURE
    + """ {
entry:
  %a = load ptr, ptr %ops
  %op = getelementptr ptr, ptr %ops, i64 1
  %o = load ptr, ptr %op
  %lp = getelementptr i64, ptr %range, i64 2
  %hp = getelementptr i64, ptr %range, i64 3
  %lo = load i64, ptr %lp
  %hi = load i64, ptr %hp
  %g = icmp slt i64 %lo, %hi
  br i1 %g, label %L, label %X
L:
  %i = phi i64 [ %lo, %entry ], [ %n, %L ]
  %pa = getelementptr float, ptr %a, i64 %i
  %po = getelementptr float, ptr %o, i64 %i
  %v = load float, ptr %pa
  %w = INSTRUCTION float %v, CONSTANT
  store float %w, ptr %po
  %n = add i64 %i, 1
  %c = icmp slt i64 %n, %hi
  br i1 %c, label %L, label %X
X:
  ret void
}
"""
)

# A sum in blocks of 8192: mode 0 writes one partial per block, mode 1 adds them up in order.
BLOCK_SUM = (
    SIGNATURE
    + """ {
entry:
  %a = load ptr, ptr %ops
  %op = getelementptr ptr, ptr %ops, i64 1
  %o = load ptr, ptr %op
  %size = load i64, ptr %params
  %lp = getelementptr i64, ptr %range, i64 2
  %hp = getelementptr i64, ptr %range, i64 3
  %mp = getelementptr i64, ptr %range, i64 4
  %pp = getelementptr i64, ptr %range, i64 5
  %lo = load i64, ptr %lp
  %hi = load i64, ptr %hp
  %mode = load i64, ptr %mp
  %partial = load ptr, ptr %pp
  %finish = icmp eq i64 %mode, 1
  %any = icmp slt i64 %lo, %hi
  br i1 %finish, label %F, label %B0
B0:
  br i1 %any, label %B, label %X
B:
  %b = phi i64 [ %lo, %B0 ], [ %bn, %BE ]
  %from = mul i64 %b, 8192
  %to0 = add i64 %from, 8192
  %short = icmp slt i64 %size, %to0
  %to = select i1 %short, i64 %size, i64 %to0
  br label %E
E:
  %i = phi i64 [ %from, %B ], [ %in, %E ]
  %s = phi float [ 0.0, %B ], [ %sn, %E ]
  %pa = getelementptr float, ptr %a, i64 %i
  %v = load float, ptr %pa
  %sn = fadd float %s, %v
  %in = add i64 %i, 1
  %ic = icmp slt i64 %in, %to
  br i1 %ic, label %E, label %BE
BE:
  %slot = getelementptr [16 x i8], ptr %partial, i64 %b
  store float %sn, ptr %slot
  %bn = add i64 %b, 1
  %bc = icmp slt i64 %bn, %hi
  br i1 %bc, label %B, label %X
F:
  store float 0.0, ptr %o
  br i1 %any, label %G, label %X
G:
  %j = phi i64 [ %lo, %F ], [ %jn, %G ]
  %t = phi float [ 0.0, %F ], [ %tn, %G ]
  %sj = getelementptr [16 x i8], ptr %partial, i64 %j
  %p = load float, ptr %sj
  %tn = fadd float %t, %p
  store float %tn, ptr %o
  %jn = add i64 %j, 1
  %jc = icmp slt i64 %jn, %hi
  br i1 %jc, label %G, label %X
X:
  ret void
}
"""
)


@functools.cache
def target_machine(triple: str | None = None) -> llvm.TargetMachine:
    if triple is not None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(triple).create_target_machine(opt=1, reloc="pic", codemodel="small")
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=1, reloc="pic", codemodel="small"
    )


def object_code(ir: str, triple: str | None = None) -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    if triple is not None:
        module.triple = triple
    return target_machine(triple).emit_object(module)


@functools.cache
def unary_kernel(instruction: str, constant: str) -> runtime.Kernel:
    ir = UNARY.replace("INSTRUCTION", instruction).replace("CONSTANT", constant)
    return runtime.load_kernel(object_code(ir), "kernel")


@functools.cache
def block_sum_kernel() -> runtime.Kernel:
    return runtime.load_kernel(object_code(BLOCK_SUM), "kernel")


def unary_step(
    kernel: runtime.Kernel, source: int, target: int, size: int, cost_ns: float | None = None
) -> tuple[Any, ...]:
    """A kernel instruction over ``size`` contiguous float32 elements."""
    cost = size * 0.2 if cost_ns is None else cost_ns
    params = struct.pack("q", size)
    locations = ((source, 0, -1), (target, 0, -1))
    return Kernel(kernel, locations, params, (), "vector", size, 64, cost, 0, 0, size, size)


def aval(shape: tuple[int, ...], dtype: Any = np.float32) -> runtime.ShapedArray:
    return runtime.ShapedArray(shape, np.dtype(dtype))


def array(value: Any, dtype: Any = np.float32) -> runtime.Array:
    ndarray = np.asarray(value, dtype)
    return runtime.array_from_numpy(ndarray, aval(ndarray.shape, dtype))


def unary_executable(kernel: runtime.Kernel, size: int, cost_ns: float | None = None) -> runtime.Executable:
    kind = aval((size,))
    steps = [unary_step(kernel, 0, 1, size, cost_ns)]
    return runtime.Executable(1, [NewOutput(kind.nbytes, kind)], [], 0, steps, "unary", (kind,))
