"""The loader: objects of LLVM run as loaded; anything not self-contained, or damaged, raises and never crashes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import struct
import weakref

import pytest

from tests.runtime import machine_code
from weft import runtime
from weft._base import target
from weft.compiler.plans.instructions import Kernel, NewOutput

SWITCH = """
@table = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]

define internal double @scale(double %x) noinline {
  %y = fmul double %x, 3.0
  ret double %y
}

define void @choose(ptr %ops, ptr %params, ptr %range, ptr %scratch) {
entry:
  %n = load i64, ptr %params
  %out = load ptr, ptr %ops
  switch i64 %n, label %other [ i64 0, label %c0 i64 1, label %c1 i64 2, label %c2 i64 3, label %c3 i64 4, label %c4
                                i64 5, label %c5 i64 6, label %c6 i64 7, label %c7 ]
c0: br label %join
c1: br label %join
c2: br label %join
c3: br label %join
c4:
  %i = and i64 %n, 3
  %p = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %t = load double, ptr %p
  br label %join
c5:
  %s = call double @scale(double 2.25)
  br label %join
c6:
  fence seq_cst
  br label %join
c7: br label %join
other: br label %join
join:
  %v = phi double [ 10.25, %c0 ], [ 20.5, %c1 ], [ 30.75, %c2 ], [ 41.0, %c3 ], [ %t, %c4 ], [ %s, %c5 ],
                  [ 61.5, %c6 ], [ 71.75, %c7 ], [ -1.0, %other ]
  store double %v, ptr %out
  ret void
}
"""

EXTERNAL = """
declare double @sin(double)
define double @f(double %x) {
  %y = call double @sin(double %x)
  ret double %y
}
"""

WRITABLE = """
@counter = internal global i64 7
define i64 @f() {
  %v = load i64, ptr @counter
  %w = add i64 %v, 1
  store i64 %w, ptr @counter
  ret i64 %w
}
"""

ABSOLUTE = """
@value = internal constant i64 7
@pointer = constant ptr @value
define ptr @f() {
  %p = load volatile ptr, ptr @pointer
  ret ptr %p
}
"""


def run_choose(kernel: runtime.Kernel, n: int) -> float:
    kind = machine_code.aval((1,), "float64")
    step = Kernel(kernel, ((0, 0, -1),), struct.pack("q", n), (), "none", 0, 1, 1.0, 0, 0, 1, 1)
    executable = runtime.Executable(0, [NewOutput(8, kind)], [], 0, [step], "choose")
    (result,) = executable.run([])
    return memoryview(result).cast("B").cast("d")[0]


def test_constant_pool_jump_table_and_local_call() -> None:
    kernel = runtime.load_kernel(machine_code.object_code(SWITCH), "choose")
    expected = [10.25, 20.5, 30.75, 41.0, 1.5, 6.75, 61.5, 71.75, -1.0]
    assert [run_choose(kernel, n) for n in range(9)] == expected
    assert kernel.symbol == "choose" and kernel.nbytes % 4096 == 0


def test_code_is_unmapped_with_its_handle() -> None:
    kernel = runtime.load_kernel(machine_code.object_code(SWITCH), "choose")
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def writable_code() -> set[str]:
    with open("/proc/self/maps") as maps:
        return {line for line in maps if line.split()[1].startswith("rwx")}


def test_no_page_of_ours_is_writable_and_executable() -> None:
    code = machine_code.object_code(SWITCH)
    before = writable_code()  # libffi has some
    kernel = runtime.load_kernel(code, "choose")
    assert writable_code() <= before, kernel


@pytest.mark.parametrize(
    ("ir", "symbol", "message"),
    [
        (EXTERNAL, "f", "external symbol sin"),
        (WRITABLE, "f", "writable"),
        (ABSOLUTE, "f", "relocation|writable"),
        (SWITCH, "nothing", "does not define nothing"),
        (SWITCH, "table", "does not define|is not code"),
    ],
)
def test_what_is_not_self_contained_is_refused(ir: str, symbol: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        runtime.load_kernel(machine_code.object_code(ir), symbol)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(57), b"MZ" * 100, bytes(64)])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RuntimeError, match="load_kernel"):
        runtime.load_kernel(data, "f")


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        runtime.load_kernel("text", "f")
    with pytest.raises(TypeError):
        runtime.load_kernel(b"", 3)


def test_truncated_objects_raise() -> None:
    code = machine_code.object_code(SWITCH)
    for size in range(0, len(code), 7):
        with pytest.raises(RuntimeError):
            runtime.link_kernel(code[:size], "choose")


def test_damaged_objects_never_crash() -> None:
    code = machine_code.object_code(SWITCH)
    rng = random.Random(0)
    refused = 0
    for _ in range(20000):
        damaged = bytearray(code)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(len(code))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            image, entry = runtime.link_kernel(bytes(damaged), "choose")
        except (RuntimeError, MemoryError):
            refused += 1
        else:
            assert 0 <= entry < len(image)
    assert refused > 1000


def test_every_header_number_damaged() -> None:
    code = machine_code.object_code(SWITCH)
    (section_offset,) = struct.unpack_from("<Q", code, 40)
    fields = [(at, 8) for at in (24, 32, 40)] + [(at, 2) for at in range(52, 64, 2)]
    for section in range((len(code) - section_offset) // 64):
        start = section_offset + 64 * section
        fields += [(start, 4), (start + 4, 4), (start + 40, 4), (start + 44, 4)]
        fields += [(start + at, 8) for at in (8, 16, 24, 32, 48, 56)]
    for at, width in fields:
        for value in (0, 1, (1 << (8 * width)) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, len(code)):
            damaged = bytearray(code)
            damaged[at : at + width] = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
            with contextlib.suppress(RuntimeError, MemoryError):
                runtime.link_kernel(bytes(damaged), "choose")


def test_names_in_the_null_section_are_refused() -> None:
    code = bytearray(machine_code.object_code(SWITCH))
    (section_offset,) = struct.unpack_from("<Q", code, 40)
    struct.pack_into("<H", code, 62, 0)  # names in section 0, which claims to be a string table outside the file
    struct.pack_into("<I", code, section_offset + 4, 3)
    struct.pack_into("<QQ", code, section_offset + 24, 1 << 40, 1 << 20)
    with pytest.raises(RuntimeError, match="section 0 lies outside the file"):
        runtime.link_kernel(bytes(code), "choose")


def test_objects_for_another_machine_link_but_do_not_load() -> None:
    other = "x86_64" if target.host().triple.startswith("aarch64") else "aarch64"
    code = machine_code.object_code(SWITCH, f"{other}-unknown-linux-gnu")
    image, entry = runtime.link_kernel(code, "choose")
    assert len(image) > entry
    with pytest.raises(RuntimeError, match="another machine"):
        runtime.load_kernel(code, "choose")


def test_aarch64_pages_and_offsets_point_at_the_constants() -> None:
    ir = """
    @table = private unnamed_addr constant [2 x i64] [i64 81985529216486895, i64 5]
    define i64 @f(i64 %i) {
      %p = getelementptr [2 x i64], ptr @table, i64 0, i64 %i
      %v = load i64, ptr %p
      ret i64 %v
    }
    """
    image, entry = runtime.link_kernel(machine_code.object_code(ir, "aarch64-unknown-linux-gnu"), "f")
    where = image.index((81985529216486895).to_bytes(8, "little"))
    words = struct.unpack_from(f"<{(where - entry) // 4}I", image, entry)
    (page,) = [w for w in words if w & 0x9F000000 == 0x90000000]
    (low,) = [w for w in words if w & 0xFFC00000 == 0x91000000]
    immediate = (page >> 29 & 3) | (page >> 5 & 0x7FFFF) << 2
    at = (entry & ~0xFFF) + (immediate << 12) + (low >> 10 & 0xFFF)
    assert at == where


def test_loaded_code_is_callable_from_anywhere() -> None:
    # Many blobs at once: each is its own mapping, none disturbs another.
    kernels = [runtime.load_kernel(machine_code.object_code(SWITCH), "choose") for _ in range(50)]
    assert [run_choose(kernel, 5) for kernel in kernels] == [6.75] * 50
    assert ctypes.sizeof(ctypes.c_void_p) == 8
