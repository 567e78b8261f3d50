"""What tests of the native client share: a kernel of PTX, and a program that launches it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from weft import runtime
from weft.compiler.plans.instructions import Launch, NewOutput

_HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"
_ENTRY = """.visible .entry {name}(.param .u64 x, .param .u64 y, .param .u64 scratch, .param .b64 n)
{{
  .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b32 %r<5>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3; cvt.u64.u32 %rd4, %r4;
  setp.ge.s64 %p1, %rd4, %rd3; @%p1 bra DONE;
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
  shl.b64 %rd5, %rd4, 2; add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd2, %rd5;
  ld.global.f32 %f1, [%rd6]; add.f32 %f2, %f1, {number}; st.global.f32 [%rd7], %f2;
DONE:
  ret;
}}
"""
# y = x + 1, and y = x + 2, to see which of two entries was launched
PTX = (
    _HEAD + _ENTRY.format(name="plus", number="0f3F800000") + _ENTRY.format(name="plus2", number="0f40000000")
).encode()
# lets the stream work for long: as many steps as the word says
SPIN = (
    _HEAD
    + """.visible .entry spin(.param .u64 x, .param .u64 y, .param .u64 scratch, .param .b64 n)
{
  .reg .pred %p<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [n];
AGAIN:
  add.s64 %rd1, %rd1, -1; setp.gt.s64 %p1, %rd1, 0; @%p1 bra AGAIN;
  ret;
}
"""
).encode()


def launching(
    device: Any,
    n: int = 1000,
    entries: tuple[str, str] = ("plus", ""),
    offset: int = 0,
    blocks: int = 4,
    scratch: int = 0,
    image: bytes = PTX,
    steps: int | None = None,
    name: str = "launches",
) -> Any:
    """A program of one argument, float32[n], and one result: a kernel with the elements from ``offset`` bytes on."""
    aval = runtime.ShapedArray((n,), np.dtype("float32"))
    module = runtime.DeviceModule(image, [entry for entry in entries if entry])
    word = struct.pack("q", n - offset // 4 if steps is None else steps)
    grid = (*entries, blocks, 1, 256, 0)
    launch = Launch(module, ((0, offset, -1), (1, 0, -1)), word, (grid,), (0, 1), scratch, 1.0)
    return runtime.Executable(1, [NewOutput(aval.nbytes, aval)], [], 0, [launch], name, (aval,), device.number)
