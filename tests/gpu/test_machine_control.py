"""Control flow and memory as LLVM writes them, in the machine: calls, tables, divergent loops, locals, atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu import native_build
from tests.gpu.llvm_ptx import elementwise, ptx
from tests.gpu.ptx_machine import Buffer, Module

pytestmark = pytest.mark.skipif(native_build.compiler() is None, reason="there is no C++ compiler")

X = np.random.default_rng(1).integers(0, 2**31, 1000, np.uint32)


def run(body: str, declarations: str = "", cpu: str = "sm_90", **options: Any) -> np.ndarray:
    module = Module(ptx(elementwise("i32", ["i32"], body, declarations), cpu))
    out = Buffer(X.nbytes)
    module.launch("k", 4, 256, Buffer.of(X), out, X.size, **options)
    return out.read(X.size, np.uint32)


def test_a_function_is_called_and_calls_another() -> None:
    functions = """
define i32 @inner(i32 %x, i64 %y) noinline {
  %t = trunc i64 %y to i32
  %r = mul i32 %x, %t
  ret i32 %r
}
define i32 @outer(i32 %x) noinline {
  %odd = and i32 %x, 1
  %is = icmp eq i32 %odd, 0
  br i1 %is, label %even, label %other
even:
  %e = call i32 @inner(i32 %x, i64 3)
  ret i32 %e
other:
  %o = add i32 %x, 7
  ret i32 %o
}
"""
    got = run("  %r = call i32 @outer(i32 %x0)\n", functions)
    np.testing.assert_array_equal(got, np.where(X % 2 == 0, X * np.uint32(3), X + np.uint32(7)))


def test_a_function_is_called_by_its_address() -> None:
    functions = """
define i32 @twice(i32 %x) noinline {
  %r = shl i32 %x, 1
  ret i32 %r
}
@table = internal addrspace(1) global [2 x i64] [i64 0, i64 ptrtoint (ptr @twice to i64)]
"""
    body = """
  %at = load volatile i64, ptr addrspace(1) getelementptr (i64, ptr addrspace(1) @table, i64 1)
  %f = inttoptr i64 %at to ptr
  %r = call i32 %f(i32 %x0)
"""
    np.testing.assert_array_equal(run(body, functions), X * np.uint32(2))


def test_a_switch_goes_through_a_table() -> None:
    cases = "\n".join(f"    i32 {k}, label %c{k}" for k in range(6))
    blocks = "".join(f"c{k}:\n  %v{k} = mul i32 %x0, {3 * k * k + 5}\n  br label %join\n" for k in range(6))
    sources = ", ".join(f"[ %v{k}, %c{k} ]" for k in range(6))
    body = f"  %w = urem i32 %x0, 7\n  switch i32 %w, label %d [\n{cases}\n  ]\n{blocks}d:\n  br label %join\n"
    body += f"join:\n  %r = phi i32 {sources}, [ 1, %d ]\n"
    w = X % 7
    want = np.where(w == 6, np.uint32(1), X * (3 * w * w + 5))
    np.testing.assert_array_equal(run(body), want)


def test_lanes_leave_a_loop_one_after_the_other() -> None:
    body = """
  %turns = and i32 %x0, 63
  br label %loop
loop:
  %turn = phi i32 [ 0, %go ], [ %i2, %loop ]
  %s = phi i32 [ 1, %go ], [ %s2, %loop ]
  %p = mul i32 %s, 1664525
  %s2 = add i32 %p, 1013904223
  %i2 = add i32 %turn, 1
  %more = icmp ult i32 %i2, %turns
  br i1 %more, label %loop, label %after
after:
  %r = add i32 %s2, %i2
"""
    got = run(body)
    for x, y in zip(X[:200].tolist(), got[:200].tolist(), strict=True):
        s, turns = 1, max(1, x & 63)
        for _ in range(turns):
            s = (s * 1664525 + 1013904223) % 2**32
        assert y == (s + turns) % 2**32


def test_local_arrays_and_constants() -> None:
    constants = "@c = internal addrspace(4) constant [4 x i32] [i32 11, i32 22, i32 33, i32 44]"
    body = """
  %a = alloca [8 x i32], align 16
  %w = and i32 %x0, 7
  %p = getelementptr i32, ptr %a, i32 %w
  %z = getelementptr i32, ptr %a, i32 0
  store volatile i32 5, ptr %z
  store volatile i32 %x0, ptr %p
  %v = load volatile i32, ptr %z
  %q = and i32 %x0, 3
  %cp = getelementptr i32, ptr addrspace(4) @c, i32 %q
  %cv = load i32, ptr addrspace(4) %cp
  %r = add i32 %v, %cv
"""
    want = np.where(X % 8 == 0, X, 5).astype(np.uint32) + np.array([11, 22, 33, 44], np.uint32)[X % 4]
    np.testing.assert_array_equal(run(body, constants), want)


@pytest.mark.parametrize("operation", ["add", "max", "umin", "xor", "xchg", "fadd", "cas"])
def test_atomics_of_all_threads(operation: str) -> None:
    if operation == "cas":  # made of compare and exchange: a maximum of float32
        change = "  %f = bitcast i32 %x0 to float\n  %u = atomicrmw fmax ptr addrspace(1) %p0, float %f monotonic\n"
    elif operation == "fadd":
        change = "  %s = and i32 %x0, 255\n  %f = uitofp i32 %s to float\n"
        change += "  %u = atomicrmw fadd ptr addrspace(1) %p0, float %f monotonic\n"
    else:
        change = f"  %u = atomicrmw {operation} ptr addrspace(1) %p0, i32 %x0 monotonic\n"
    ir = elementwise("i32", ["i32"], change + "  %r = add i32 0, 0\n").replace(
        "ptr addrspace(1) %p0, i64 %i", "ptr addrspace(1) %src, i64 %i"
    )
    ir = ir.replace("noalias %p0", "%p0, ptr addrspace(1) noalias %src")
    floats = np.abs(np.random.default_rng(2).standard_normal(1000)).astype(np.float32)
    x = floats.view(np.uint32) if operation == "cas" else X
    pointer, out = (
        Buffer.of(np.array([0], np.uint32) if operation != "umin" else np.array([2**32 - 1], np.uint32)),
        Buffer(4000),
    )
    Module(ptx(ir)).launch("k", 4, 256, pointer, Buffer.of(x), out, 1000, seed=3)
    got = pointer.read(1, np.uint32)[0]
    wants: dict[str, Any] = {
        "add": x.sum(dtype=np.uint32), "max": x.max(), "umin": x.min(), "xor": np.bitwise_xor.reduce(x),
        "fadd": (x & 255).sum().astype(np.float32).view(np.uint32), "cas": floats.max().view(np.uint32),
    }  # fmt: skip
    assert got in x if operation == "xchg" else got == wants[operation]


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90", "sm_100"])
def test_shuffles_votes_and_reductions_of_warps(cpu: str) -> None:
    declared = """
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.up.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
declare i32 @llvm.nvvm.redux.sync.umax(i32, i32)
"""
    body = """
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %x0, i32 5, i32 31)
  %b = call i32 @llvm.nvvm.shfl.sync.up.i32(i32 -1, i32 %x0, i32 1, i32 0)
  %odd = trunc i32 %x0 to i1
  %c = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %odd)
  %d = call i32 @llvm.nvvm.redux.sync.umax(i32 %x0, i32 -1)
  %e = xor i32 %a, %b
  %f = xor i32 %c, %d
  %r = add i32 %e, %f
"""
    x = X[:992].reshape(-1, 32)
    module = Module(ptx(elementwise("i32", ["i32"], body, declared), cpu))
    out = Buffer(x.nbytes)
    module.launch("k", 31, 32, Buffer.of(x), out, x.size)
    up = np.concatenate([x[:, :1], x[:, :-1]], 1)
    ballot = ((x & 1) << np.arange(32, dtype=np.uint32)).sum(1, dtype=np.uint32)[:, None]
    want = (x[:, np.arange(32) ^ 5] ^ up) + (ballot ^ x.max(1)[:, None])
    np.testing.assert_array_equal(out.read(x.shape, np.uint32), want)


def test_shared_memory_of_the_launch_s_choice() -> None:
    declared = "@dynamic = external addrspace(3) global [0 x i32], align 16\n"
    declared += "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)"
    body = """
  %m = getelementptr i32, ptr addrspace(3) @dynamic, i32 %tid
  store i32 %x0, ptr addrspace(3) %m
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %other = xor i32 %tid, 255
  %o2 = getelementptr i32, ptr addrspace(3) @dynamic, i32 %other
  %r = load i32, ptr addrspace(3) %o2
"""
    module = Module(ptx(elementwise("i32", ["i32"], body, declared)))
    out = Buffer(2048)
    module.launch("k", 2, 256, Buffer.of(X[:512]), out, 512, shared=1024)
    np.testing.assert_array_equal(out.read((2, 256), np.uint32), X[:512].reshape(2, 256)[:, ::-1])
