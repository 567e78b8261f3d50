"""Each check of the PTX machine finds what breaks it, says where, and lets pass what keeps the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu import native_build
from tests.gpu.ptx_machine import ALL_CHECKS, WRITTEN_ONCE, Buffer, Counts, MachineError, Module

pytestmark = pytest.mark.skipif(native_build.compiler() is None, reason="there is no C++ compiler")


def kernel(body: str, before: str = "") -> Module:
    """A kernel k(p, q): addresses in %rd1 and %rd2, thread and block in %r1 and %r2, the thread's word in %rd3."""
    return Module(f"""
.version 7.8
.target sm_90
.address_size 64
{before}
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
  .reg .pred %p<9>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<20>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd3, %r1, 4;
{body}
  ret;
}}
""")


SHARED = ".shared .align 16 .b8 sm[1024];"
IN_SHARED = "  mov.b64 %rd4, sm;\n  add.s64 %rd5, %rd4, %rd3;\n"


def launch(
    module: Module, grid: int = 1, block: int = 64, checks: int = ALL_CHECKS, steps: int = 0, **given: Buffer
) -> None:
    p = given.get("p") or Buffer.of(np.zeros(256, np.int32))
    q = given.get("q") or Buffer.of(np.zeros(256, np.int32))
    module.launch("k", grid, block, p, q, checks=checks, steps=steps)


def fails(kind: str, match: str, module: Module, **options: Any) -> None:
    with pytest.raises(MachineError, match=match) as found:
        launch(module, **options)
    assert found.value.kind == kind, found.value


def test_out_of_bounds_names_address_line_and_thread() -> None:
    module = kernel("  add.s64 %rd4, %rd1, %rd3;\n  st.global.b32 [%rd4+772], %r1;\n")
    fails("out of bounds", r"byte 1024 of an allocation of 1024 bytes.*line 17: st.global.*thread \(63, 0, 0\)", module)
    launch(module, block=63)


def test_what_was_freed_is_out_of_bounds() -> None:
    gone = Buffer.of(np.zeros(4, np.int32))
    address = gone.address
    del gone
    module = kernel("  ld.global.b32 %r3, [%rd4];\n  st.global.b32 [%rd1], %r3;\n".replace("%rd4", "%rd2"))
    q = Buffer(4)
    q.address, kept = address, q.address
    fails("out of bounds", "4 bytes at", module, block=1, q=q)
    q.address = kept


def test_misaligned() -> None:
    module = kernel("  ld.global.b64 %rd4, [%rd1+4];\n  st.global.b64 [%rd2], %rd4;\n")
    fails("misaligned address", "8 bytes at", module, block=1)


def test_values_that_nobody_wrote_may_be_moved_but_not_decide() -> None:
    new, out = Buffer(1024), Buffer(1024)
    move = (
        "  add.s64 %rd4, %rd1, %rd3;\n  ld.global.b32 %r3, [%rd4];\n  add.s64 %rd5, %rd2, %rd3;\n"
        "  st.global.b32 [%rd5], %r3;\n"
    )
    launch(kernel(move), block=256, p=new, q=out)
    assert not out.is_written()
    decides = (
        "  ld.global.b32 %r3, [%rd1];\n  setp.eq.s32 %p1, %r3, 5;\n  @%p1 bra OUT;\n"
        "  st.global.b32 [%rd2], %r1;\nOUT:\n"
    )
    fails("uninitialised", "bra OUT", kernel(decides), block=1, p=new)
    launch(kernel(decides), block=1)
    addresses = "  ld.global.b64 %rd4, [%rd1];\n  ld.global.b32 %r3, [%rd4];\n  st.global.b32 [%rd2], %r3;\n"
    fails("uninitialised", "the address", kernel(addresses), block=1, p=new)


def test_registers_that_nobody_wrote() -> None:
    fails(
        "uninitialised",
        "bra",
        kernel("  setp.eq.s32 %p1, %r9, 5;\n  @%p1 bra OUT;\n  st.global.b32 [%rd2], %r1;\nOUT:\n"),
    )
    noted = "  // implicit-def: %r9\n  setp.eq.s32 %p1, %r9, 5;\n  @%p1 bra OUT;\n  st.global.b32 [%rd2], 1;\nOUT:\n"
    launch(kernel(noted), block=1)
    launch(kernel(noted.replace("// implicit-def: %r9", "")), block=1, checks=0)


SHIFTED = (
    "  xor.b32 %r3, %r1, 32;\n  mul.wide.u32 %rd6, %r3, 4;\n  add.s64 %rd7, %rd4, %rd6;\n  ld.shared.b32 %r4, [%rd7];\n"
)
OUT = "  add.s64 %rd8, %rd1, %rd3;\n  st.global.b32 [%rd8], %r4;\n"


def test_shared_memory_between_warps_needs_a_barrier() -> None:
    store = SHARED + IN_SHARED + "  st.shared.b32 [%rd5], %r1;\n"
    fails(
        "race",
        r"byte \d+ of shared memory.*block 0",
        kernel(store + SHIFTED.replace("%r4", "%r5") + "  mov.b32 %r4, %r5;\n" + OUT),
    )
    p = Buffer(256)
    launch(kernel(store + "  bar.sync 0;\n" + SHIFTED + OUT), p=p)
    np.testing.assert_array_equal(p.read(64, np.int32), np.arange(64) ^ 32)


def test_a_write_after_a_read_needs_a_barrier_too() -> None:
    body = SHARED + IN_SHARED + "  st.shared.b32 [%rd5], %r1;\n  bar.sync 0;\n" + SHIFTED
    second = "  setp.ge.u32 %p1, %r1, 32;\n  @%p1 bra AFTER;\n  st.shared.b32 [%rd5], %r4;\nAFTER:\n"
    fails("race", "was read.*and is written here", kernel(body + second + OUT))
    launch(kernel(body + "  bar.sync 0;\n" + second + OUT))


def test_shared_memory_within_a_warp_needs_one_as_well() -> None:
    store = SHARED + IN_SHARED + "  st.shared.b32 [%rd5], %r1;\n"
    near = SHIFTED.replace("%r1, 32", "%r1, 1")
    fails("race", "shared memory", kernel(store + near + OUT), block=32)
    launch(kernel(store + "  bar.warp.sync -1;\n" + near + OUT), block=32)


def test_blocks_do_not_share_a_word_without_an_order() -> None:
    fails("race", r"thread 0 of block \d+ \(line 16\)", kernel("  st.global.b32 [%rd1], %r2;\n"), grid=2, block=1)
    launch(kernel("  red.global.add.u32 [%rd1], %r2;\n"), grid=20, block=64)
    launch(kernel("  red.global.add.u32 [%rd1], %r2;\n"), grid=2, block=1)


MESSAGE = """
  setp.eq.s32 %p1, %r2, 0;
  @%p1 bra WAIT;
  st.global.b32 [%rd1], 7;
  PUBLISH
  ret;
WAIT:
  LOOK
  setp.eq.s32 %p2, %r3, 0;
  @%p2 bra WAIT;
  ORDER
  ld.global.b32 %r4, [%rd1];
  st.global.b32 [%rd2+8], %r4;
"""


def message(publish: str, look: str, order: str = "") -> Module:
    return kernel(MESSAGE.replace("PUBLISH", publish).replace("LOOK", look).replace("ORDER", order))


def test_release_and_acquire_order_blocks() -> None:
    store, load = "st.{}.gpu.global.b32 [%rd2], 1;", "ld.{}.gpu.global.b32 %r3, [%rd2];"
    launch(message(store.format("release"), load.format("acquire")), grid=2, block=1)
    fenced = "fence.acq_rel.gpu;\n  " + store.format("relaxed")
    launch(message(fenced, load.format("relaxed"), "fence.acq_rel.gpu;"), grid=2, block=1)
    fails("race", "is read here", message(store.format("relaxed"), load.format("relaxed")), grid=2, block=1)
    fails("race", "is read here", message(store.format("release"), load.format("relaxed")), grid=2, block=1)


def test_each_byte_is_written_once_where_that_is_asked() -> None:
    module = kernel("  st.global.b32 [%rd1], 1;\n  bar.sync 0;\n")
    fails("race", "is written here", module)
    ordered = kernel("""
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra A;
  st.global.b32 [%rd1], 1;
A:
  bar.sync 0;
  setp.ne.s32 %p2, %r1, 32;
  @%p2 bra B;
  st.global.b32 [%rd1], 1;
B:
""")
    launch(ordered)
    fails("written twice", "by thread 0 of block 0", ordered, checks=ALL_CHECKS | WRITTEN_ONCE)


def test_barriers_in_divergent_code() -> None:
    half = "  setp.lt.u32 %p1, %r1, 16;\n  @%p1 bra OUT;\n  bar.sync 0;\nOUT:\n"
    fails("divergent", "lane 0 is elsewhere", kernel(half))
    warp = half.replace("16", "32")
    fails("divergent", "the barrier waits for warp 0, which has ended", kernel(warp))
    everyone = "  setp.lt.u32 %p1, %r1, 16;\n  @%p1 bra OUT;\n  st.global.b32 [%rd1], 1;\nOUT:\n  bar.sync 0;\n"
    launch(kernel(everyone.replace("[%rd1], 1", "[%rd8], 1").replace("@%p1", "add.s64 %rd8, %rd1, %rd3;\n  @%p1")))


def test_shuffles_name_the_lanes_that_are_there() -> None:
    body = (
        "  setp.lt.u32 %p1, %r1, 16;\n  @%p1 bra OUT;\n  shfl.sync.bfly.b32 %r4, %r1, 1, 31, {};\n"
        "  add.s64 %rd8, %rd1, %rd3;\n"
    )
    body += "  st.global.b32 [%rd8], %r4;\nOUT:\n"
    fails("divergent", "it names lane 0", kernel(body.format(-1)), block=32)
    p = Buffer.of(np.zeros(32, np.int32))
    launch(kernel(body.format(0xFFFF0000)), block=32, p=p)
    np.testing.assert_array_equal(p.read(32, np.int32)[16:], np.arange(16, 32) ^ 1)


def test_shared_memory_has_an_end() -> None:
    fails(
        "out of bounds",
        "of the 1024 bytes of shared memory",
        kernel(SHARED + IN_SHARED + "  st.shared.b32 [%rd5+1000], %r1;\n"),
    )


def test_launches_within_the_limits() -> None:
    module = kernel("  st.global.b32 [%rd1], 1;\n")
    fails("launch", "1025 threads", module, block=1025)
    with pytest.raises(MachineError, match="8 bytes of parameters, and the kernel has 16"):
        module.launch("k", 1, 1, Buffer(4))
    with pytest.raises(MachineError, match="227 KB"):
        module.launch("k", 1, 1, Buffer(4), Buffer(4), shared=228 * 1024)
    with pytest.raises(MachineError, match="there is no kernel"):
        module.launch("other", 1, 1)
    limited = Module(kernel("").text.replace("k_param_1)", "k_param_1)\n.maxntid 32"))
    fails("launch", "at most 32", limited)


def test_a_loop_without_an_end_is_a_hang() -> None:
    fails("hang", "instructions and has not ended", kernel("AGAIN:\n  bra AGAIN;\n"), block=32, steps=100_000)


def test_what_the_machine_does_not_know_is_named() -> None:
    for body, words in (
        ("  frobnicate.b32 %r3, %r1;\n", "no such instruction: frobnicate.b32 %r3, %r1"),
        ("  ex2.approx.f32 %r3, %r1;\n", "an approximation"),
        ("  add.s32 %r3, %r1, %r99x;\n", "there is no register %r99x"),
        ("  add.s64 %rd4, %rd1, %r1;\n", "%r1 has 4 bytes"),
        ("  bra NOWHERE;\n", "there is no label NOWHERE"),
    ):
        with pytest.raises(MachineError, match=words):
            kernel(body)


def test_a_result_of_no_bytes_is_refused() -> None:
    """As ptxas does."""
    with pytest.raises(MachineError, match="a parameter of no bytes"):
        Module(".version 7.8\n.target sm_90\n.address_size 64\n.func (.param .align 16 .b8 r[0]) f() { ret; }\n")


def test_a_trap_is_a_fault() -> None:
    fails("trap", "trap", kernel("  trap;\n"), block=1)


def test_the_order_of_blocks_follows_the_seed() -> None:
    body = (
        "  atom.global.add.u32 %r3, [%rd1], 1;\n  mul.wide.u32 %rd4, %r2, 4;\n"
        "  add.s64 %rd5, %rd2, %rd4;\n  st.global.b32 [%rd5], %r3;\n"
    )
    module, orders = kernel(body), []
    for seed in (0, 1, 1, 2):
        p, q = Buffer.of(np.zeros(1, np.int32)), Buffer(4 * 64)
        module.launch("k", 64, 1, p, q, seed=seed, resident=1)
        orders.append(q.read(64, np.int32).tolist())
    assert orders[0] == list(range(64)) and orders[1] == orders[2] != orders[3] and sorted(orders[1]) == orders[0]


def test_sectors_conflicts_and_bytes_are_counted() -> None:
    def counted(body: str) -> Counts:
        p, q = Buffer.of(np.zeros(4096, np.int32)), Buffer.of(np.zeros(4096, np.int32))
        return kernel(SHARED + IN_SHARED + body).launch("k", 1, 32, p, q, counted=1)

    together = counted("  add.s64 %rd6, %rd1, %rd3;\n  ld.global.b32 %r3, [%rd6];\n  st.shared.b32 [%rd5], %r3;\n")
    assert (together.sectors, together.bytes, together.shared_passes) == (4, 128, 1)
    apart = "  mul.wide.u32 %rd6, %r1, 128;\n  add.s64 %rd7, %rd1, %rd6;\n  ld.global.b32 %r3, [%rd7];\n"
    apart += (
        "  and.b32 %r4, %r1, 7;\n  mul.wide.u32 %rd8, %r4, 128;\n  add.s64 %rd9, %rd4, %rd8;\n"
        "  ld.shared.b32 %r5, [%rd9];\n"
    )
    scattered = counted(apart)
    assert (scattered.sectors, scattered.shared_passes) == (32, 8)
