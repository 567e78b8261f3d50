"""Matrix products of GPUs: by tensor cores within a stated bound of float64, and the bits of the CPU elsewhere."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import beside_the_cpu, native_build, ptxas
from tests.gpu.llvm_ptx import ptx
from tests.gpu.prediction import ISSUE, RATES
from tests.gpu.ptx_machine import PIPES, Buffer, Counts, MachineError, Module
from weft import lax, nn
from weft._base import target
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.compiler.gpu import launches
from weft.compiler.plans.instructions import Gemm
from weft.loops.gpu import grid_products

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
HALVES = [np.dtype(jnp.bfloat16), np.dtype(np.float16)]
F32 = np.dtype(np.float32)


def normal(shape: tuple[int, ...], dtype: Any) -> Any:
    return jnp.asarray(RNG.standard_normal(shape), dtype)


def check(device: Any, formula: str, a: Any, b: Any, unit: float = 0.0, **asked: Any) -> str:
    """Holds a product by tensor cores against float64; gives the entry. ``unit``: by which operands were rounded."""
    function = weft.jit(lambda a, b: jnp.einsum(formula, a, b, preferred_element_type=np.float32, **asked))
    with weft.default_device(device):
        got = np.asarray(function(a, b))
        plan = function.lower(a, b).compile().as_text("plan")
    exact = [np.asarray(x).astype(np.float64) for x in (a, b)]
    terms = np.einsum(formula, *[np.ones_like(x) for x in exact])
    bound = (terms / 16 + 2) * 2.0**-20 + 2 * unit  # docs/NUMERICS.md
    error = np.abs(got - np.einsum(formula, *exact))
    assert np.all(error <= bound * np.einsum(formula, *[np.abs(x) for x in exact]))
    found = re.findall(r"launch (\w+) of", plan)
    assert len(found) == 1
    return found[0]


LAYOUTS = ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]
SIZES = {"m": 72, "n": 136, "k": 104, "b": 2, "h": 2}


def operands(formula: str, dtype: Any, **sizes: int) -> list[Any]:
    sizes = {**SIZES, **sizes}
    return [normal(tuple([sizes[name] for name in part]), dtype) for part in formula.split("->")[0].split(",")]


@pytest.mark.parametrize("formula", LAYOUTS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precisions(device: Any, dtype: np.dtype, formula: str) -> None:
    assert check(device, formula, *operands(formula, dtype)) == "mma_aligned"
    assert check(device, formula, *operands(formula, dtype, m=67, n=71, k=45)) == "mma"


@pytest.mark.parametrize("formula", LAYOUTS)
def test_tf32(device: Any, formula: str) -> None:
    asked = {"precision": "tensorfloat32", "unit": 2.0**-11}
    assert check(device, formula, *operands(formula, F32), **asked) == "mma_aligned"
    assert check(device, formula, *operands(formula, F32, m=67, n=71, k=45), **asked) == "mma"


@pytest.mark.parametrize("formula", LAYOUTS)
@pytest.mark.parametrize("dtype", [HALVES[0], F32], ids=str)
def test_large_tiles(device: Any, dtype: np.dtype, formula: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_products, "GPU_TILES", 1)
    a, b = operands(formula, dtype, m=248, n=504, k=72)
    assert check(device, formula, a, b, 2.0**-11 * (dtype == F32), precision="high") == "mma_large"


@pytest.mark.parametrize("formula", ["bmk,bkn->bmn", "bmhk,bnhk->bhmn", "bhmn,bnhk->bmhk", "mhk,hkn->mn"])
def test_batches_and_several_dimensions(device: Any, formula: str) -> None:
    assert check(device, formula, *operands(formula, jnp.bfloat16, k=24, m=40, n=64)) == "mma_aligned"
    assert check(device, formula, *operands(formula, jnp.bfloat16, k=21, m=33, n=35)) == "mma"


def test_an_odd_number_of_columns_and_an_operand_that_is_not_aligned(device: Any) -> None:
    a, b = operands("mk,nk->mn", jnp.bfloat16, n=69)
    assert check(device, "mk,nk->mn", a, b) == "mma_aligned"
    with weft.default_device(device):
        function = weft.jit(lambda x, b: lax.dot(x[1:].reshape(20, 16), b, preferred_element_type=np.float32))
        x, b = normal((321,), jnp.bfloat16), normal((16, 24), jnp.bfloat16)
        got = np.asarray(function(x, b))
    x, b = (np.asarray(y).astype(np.float64) for y in (x, b))
    np.testing.assert_allclose(got, x[1:].reshape(20, 16) @ b, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite(device: Any) -> None:
    a, b = (np.ones(shape, np.float32) for shape in ((16, 16), (16, 16)))
    a[0, 3], a[1, 4], a[2, 5], b[5, 2] = np.nan, np.inf, -np.inf, 0
    b[:, 7] = 0
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    for dtype, precision in ((jnp.bfloat16, None), (np.float16, None), (np.float32, "tensorfloat32")):
        with weft.default_device(device):
            found = jnp.matmul(jnp.asarray(a, dtype), jnp.asarray(b, dtype), precision=precision)
        np.testing.assert_array_equal(np.asarray(found).astype(np.float32), wanted)


def same(device: Any, function: Any, *args: Any) -> str:
    """The bits of the CPU; gives the plan."""
    wanted = np.asarray(weft.jit(function)(*args))
    with weft.default_device(device):
        compiled = weft.jit(function).lower(*args).compile()
        found = np.asarray(weft.jit(function)(*args))
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    return compiled.as_text("plan")


def test_float32_is_true_float32_unless_tf32_is_asked_for(device: Any) -> None:
    a, b = operands("mk,kn->mn", F32, m=9, n=10, k=530)
    for precision in (None, "default", "highest", "F32_F32_F32", "BF16_BF16_F32"):
        assert "tiles of" in same(device, lambda a, b, p=precision: jnp.matmul(a, b, precision=p), a, b)
    with weft.default_matmul_precision("tensorfloat32"):
        assert check(device, "mk,kn->mn", a, b, 2.0**-11).startswith("mma")
    preset = lax.DotAlgorithmPreset.TF32_TF32_F32
    assert check(device, "mk,kn->mn", a, b, 2.0**-11, precision=preset).startswith("mma")
    with weft.default_matmul_precision("TF32_TF32_F32"):
        assert check(device, "mk,kn->mn", a, b, 2.0**-11).startswith("mma")


def test_the_gradient_of_a_product_keeps_its_precision(device: Any) -> None:
    a, b = operands("mk,kn->mn", F32)
    with weft.default_device(device):
        function = weft.jit(weft.grad(lambda a: jnp.matmul(a, b, precision="high").sum()))
        assert "mma" in function.lower(a).compile().as_text("plan")


def test_half_precisions_in_float32_have_the_bits_of_the_cpu(device: Any) -> None:
    a, b = operands("mk,kn->mn", np.float16, k=600)
    assert "tiles of" in same(device, lambda a, b: jnp.matmul(a, b, precision="highest"), a, b)


NUMBERS = [np.dtype(name) for name in ("float32", "float64", "int32", "int64", "complex64", "complex128")]


def numbers(dtype: np.dtype, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    found = [RNG.standard_normal((2, *shape)) * (1 if dtype.kind in "fc" else 1000) for shape in shapes]
    return [(x[0] + 1j * x[1]).astype(dtype) if dtype.kind == "c" else x[0].astype(dtype) for x in found]


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_the_bits_of_the_cpu(device: Any, dtype: np.dtype) -> None:
    with weft.enable_x64(True):
        assert "tiles of" in same(device, lambda a, b: a @ b, *numbers(dtype, (67, 531), (531, 15)))
        assert "tiles of" in same(device, lambda a, b: a.T @ b.T, *numbers(dtype, (30, 9), (11, 30)))
        assert "tiles of" in same(device, lambda a, b: a @ b, *numbers(dtype, (3, 5, 17), (3, 17, 9)))
        way, terms = ("vector of", 8300) if dtype.kind in "fc" else ("tiles of", 520)
        assert way in same(device, lambda a, b: a @ b, *numbers(dtype, (5, terms), (terms,)))
        assert way in same(device, lambda a, b: a @ b, *numbers(dtype, (70,), (70, 5)))


@pytest.mark.parametrize("along", LAYOUTS)
def test_large_tiles_have_the_same_bits(device: Any, along: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_products, "GPU_TILES", 1)
    sizes = {"m": 121, "n": 107, "k": 1049 if along == LAYOUTS[0] else 21}
    a, b = (np.asarray(x) for x in operands(along, F32, **sizes))
    assert "tiles_large of" in same(device, lambda a, b: jnp.einsum(along, a, b), a, b)


def test_terms_that_are_not_there_leave_minus_zero(device: Any) -> None:
    tiny = np.full((2, 3), 1e-30, np.float32)
    assert np.signbit(np.asarray(weft.jit(jnp.matmul)(tiny, -tiny.T))).all()  # an exact product that is rounded once
    same(device, lambda a, b: a @ b, tiny, -tiny.T)


def test_convolutions_keep_their_precision(device: Any) -> None:
    def convolved(precision: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", None, None, numbers, precision=precision)

    x, w = normal((2, 9, 9, 16), np.float16), normal((3, 3, 16, 24), np.float16)
    assert "tiles of" in same(device, convolved("highest"), x, w)
    with weft.default_device(device):
        found = np.asarray(weft.jit(convolved(None))(x, w)).astype(np.float32)
        wide = [v.astype(np.float32) for v in (x, w)]
        assert "mma" in weft.jit(convolved(None)).lower(x, w).compile().as_text("plan")
        assert "mma" in weft.jit(convolved("high")).lower(*wide).compile().as_text("plan")
    assert "tiles of" in same(device, convolved(None), *wide)
    np.testing.assert_allclose(found, np.asarray(weft.jit(convolved(None))(*wide)), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_results_are_rounded_once_where_they_are_stored(device: Any, dtype: np.dtype) -> None:
    wide = weft.jit(lambda a, b: jnp.einsum("bmk,bkn->bmn", a, b, preferred_element_type=np.float32))
    for k, n in ((40, 72), (40, 71), (21, 33)):
        a, b = operands("bmk,bkn->bmn", dtype, m=70, n=n, k=k)
        with weft.default_device(device):
            for function in (jnp.matmul, lambda a, b: (-jnp.matmul(a, b) + 1).astype(np.float32), jnp.matmul):
                compiled = weft.jit(function).lower(a, b).compile()
                assert "float32" not in str(compiled.as_text("plan")).split("gemm")[1].split("\n")[0]
                sums = np.asarray(wide(a, b)).astype(dtype)
                wanted = sums if function is jnp.matmul else (-sums + np.ones((), dtype)).astype(np.float32)
                np.testing.assert_array_equal(np.asarray(weft.jit(function)(a, b)), wanted)
            assert weft.jit(jnp.matmul).lower(a, b).compile().as_text("plan").count("launch") == 1
    with weft.default_device(device):
        x, y = normal((5, 600), dtype), normal((600,), dtype)
        assert weft.jit(jnp.matmul).lower(x, y).compile().as_text("plan").count("launch") == 1
    assert "vector of" in same(device, jnp.matmul, x, y)
    assert "tiles of" in same(device, lambda a, b: jnp.matmul(a, b, precision="highest"), a, b)


def test_products_within_a_loop_that_is_one_kernel(device: Any) -> None:
    a, x = normal((40, 40), np.float16), normal((40, 72), np.float16)

    def step(x: Any, _: Any) -> Any:
        return (jnp.matmul(a, x) / 8).astype(np.float16), None

    loop = weft.jit(lambda x: lax.scan(step, x, None, length=3)[0])
    with weft.default_device(device):
        found = loop(x)
        assert loop.lower(x).compile().as_text("plan").count("launch loop of 1 block") == 1
        alone = x
        for _ in range(3):
            exact = np.asarray(a, np.float64) @ np.asarray(alone, np.float64) / 8
            alone = weft.jit(step)(alone, None)[0]
            np.testing.assert_allclose(np.asarray(alone, np.float64), exact, rtol=2**-10, atol=2**-12)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(alone))


@functools.cache
def module(
    source: np.dtype, form: str, cpu: int, a_along: bool = True, b_along: bool = True, stored: Any = None
) -> str:
    result = F32 if source.itemsize == 2 else source
    product = grid_products.Product(source, result, 1, 1, 1, 1, a_along, b_along, form, stored or result)
    on = target.gpu(cpu)
    assert on is not None
    return llvm.emit_assembly(kernel.text_of(product, on), on)


@pytest.mark.parametrize(
    ("source", "along", "cpu"),
    [
        (HALVES[0], (True, True), 90),
        (HALVES[1], (False, False), 80),
        (F32, (True, True), 80),
        (F32, (False, False), 90),
    ],
)
def test_kernels_assemble_without_spills(source: np.dtype, along: tuple[bool, bool], cpu: int) -> None:
    ptxas.needed()
    text = module(source, "tensor", cpu, *along)
    for name, found in ptxas.assemble(text, f"sm_{cpu}").items():
        assert (found.spill_stores, found.stack_bytes) == (0, 0), name
    assert text.count("cp.async.cg") > 8 and "ldmatrix" in text


def counted(source: np.dtype, form: str, entry: str, along: tuple[bool, bool], sizes: tuple[int, int, int]) -> Counts:
    """What the machine counts of a block of a product of matrices."""
    m, n, k = sizes
    rows = ((m, k if along[0] else 1, n),), ((n, 1 if along[1] else k),)
    summed = ((k, 1 if along[0] else m, n if along[1] else 1),)
    gemm = Gemm("", "", (0, 0, -1), (0, 0, -1), (0, 0, -1), *rows, summed, ((1, 0, 0, 0),), True, (m, n, False))
    params, _ = grid_products.launches(grid_products.Product(source, F32, 1, 1, 1, 1, *along, form, F32), gemm)
    a, b = (Buffer.of(RNG.standard_normal(size).astype(F32).astype(source)) for size in (m * k, n * k))
    words, made = np.frombuffer(params, np.int64).tolist(), Module(module(source, form, 90, *along))
    return made.launch(entry, 1, 256, a, b, Buffer(4 * m * n), Buffer(16), *words, 0, 0, shared=96 << 10, counted=1)


@pytest.mark.parametrize(("source", "along"), [(HALVES[0], (True, True)), (F32, (False, False))])
def test_tensor_cores_wait_for_nothing_else(source: np.dtype, along: tuple[bool, bool]) -> None:
    m, n, k = 128, 256, 192
    counts = counted(source, "tensor", "mma_large", along, (m, n, k))
    sets = 8 * (2 * k * source.itemsize // grid_products.STEP + 1)  # of words that warps load: one is never multiplied
    words_alone = sets * 16 * (not along[0], along[1]).count(True) if source == F32 else 0
    assert counts.shared_passes == 4 * (counts.shared_accesses - words_alone) + words_alone  # no bank is met twice
    products = counts.slots[PIPES.index("tensor")]
    assert products == (m // 16) * (n // 8) * k * source.itemsize // 32
    longer = counted(source, "tensor", "mma_large", along, (m, n, 2 * k))  # what begin and end take does not grow
    assert products / RATES["tensor"] > (longer.issued - counts.issued) / ISSUE


def test_products_of_float32_are_mostly_multiplications() -> None:
    counts = counted(F32, "tiles", "tiles_large", (True, True), (128, 128, 512))
    assert counts.slots[PIPES.index("fma")] > 0.7 * counts.issued
    assert counts.shared_passes <= 4 * counts.shared_accesses


# instructions, in the machine

DECLARATIONS = """
@shared = external addrspace(3) global [0 x i8], align 16
declare void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3), ptr addrspace(1), i32)
declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""


def copied(nbytes: int, after: str, turned: int = 0) -> np.ndarray:
    """32 threads copy 16 bytes each of their own, and read those of thread ``turned`` further on."""
    body = f"""{DECLARATIONS}
define ptx_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = mul i32 %t, 16
  %from = getelementptr i8, ptr addrspace(1) %p, i32 %at
  %to = getelementptr i8, ptr addrspace(3) @shared, i32 %at
  call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) %to, ptr addrspace(1) %from, i32 {nbytes})
  call void @llvm.nvvm.cp.async.commit.group()
  {after}
  %next = add i32 %t, {turned}
  %in = and i32 %next, 31
  %there = mul i32 %in, 16
  %q = getelementptr i8, ptr addrspace(3) @shared, i32 %there
  %x = load <4 x i32>, ptr addrspace(3) %q, align 16
  %r = getelementptr i8, ptr addrspace(1) %o, i32 %at
  store <4 x i32> %x, ptr addrspace(1) %r, align 16
  ret void
}}
"""
    out = Buffer(512)
    Module(ptx(body)).launch("k", 1, 32, Buffer.of(np.arange(128, dtype=np.int32)), out, shared=512)
    assert out.is_written(), "what was not waited for was read"
    return out.read((32, 4), np.int32)


WAIT = "call void @llvm.nvvm.cp.async.wait.group(i32 0)\n"
BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"


def test_copies_behind_a_threads_back() -> None:
    given = np.arange(128, dtype=np.int32).reshape(32, 4)
    np.testing.assert_array_equal(copied(16, WAIT), given)
    np.testing.assert_array_equal(copied(16, WAIT + BARRIER, 1), np.roll(given, -1, 0))
    np.testing.assert_array_equal(copied(8, WAIT), given * [1, 1, 0, 0])
    np.testing.assert_array_equal(copied(0, WAIT), given * 0)


def test_copies_that_are_read_too_early() -> None:
    with pytest.raises(AssertionError, match="not waited for"):
        copied(16, "")
    with pytest.raises(AssertionError, match="not waited for"):
        copied(16, "call void @llvm.nvvm.cp.async.wait.group(i32 1)\n")
    with pytest.raises(MachineError, match="byte 16 of shared memory was written"):
        copied(16, WAIT, 1)
    with pytest.raises(MachineError, match="with nothing in between"):
        copied(16, BARRIER + WAIT, 1)


# epilogues: what becomes of a product's elements, in its kernel


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X, W, B, R = floats(70, 65), floats(65, 75), floats(75), floats(70, 75)
FUSED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "relu of a bias": (lambda x, w, b: nn.relu(x @ w + b), (X, W, B)),
    "scale and residual": (lambda x, w, r: x @ w * 0.5 + r, (X, W, R)),
    "tanh, converted": (lambda x, w, b: jnp.tanh(x @ w + b).astype(np.float16), (X[:9], W, B)),
    "gelu": (lambda x, w, b: nn.gelu(x @ w + b), (X[:9, :30], W[:30], B)),
    "a batch": (lambda x, w, r, b: jnp.einsum("bij,bjk->bik", x, w) * r + b[:, None],
                (floats(3, 17, 9), floats(3, 9, 21), floats(3, 17, 21), floats(3, 21))),
    "a vector": (lambda x, w, b: nn.relu(x @ w + b), (X[0], W, B)),
    "several chains": (lambda x, w, b: nn.relu(x @ w + b), (floats(5, 1030), floats(1030, 40), floats(40))),
    "turned": (lambda x, w, b: (x @ w).T + b, (X, W, floats(70))),
    "reshaped": (lambda x, w, b: nn.relu((x @ w).reshape(7, 10, 75) + b), (X, W, floats(10, 75))),
    "a mask": (lambda x, w: jnp.where(jnp.arange(75) <= jnp.arange(70)[:, None], x @ w, -1e9), (X, W)),
    "integers": (lambda x, w, b: x @ w + b > 3, tuple((x * 9).astype(np.int32) for x in (X, W, B))),
    "complex numbers": (lambda x, w, b: (x @ w + b).real, (X[:20] + 1j * X[1:21], W + 0j, B)),
    "over an operand that dies": (lambda x, w: jnp.sin(x @ w) + jnp.cos(x), (X[:65], W[:, :65])),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_what_becomes_of_a_product_is_written_where_its_elements_are(device: Any, name: str) -> None:
    function, args = FUSED[name]
    plan = beside_the_cpu.launches(device, function, *args)
    assert plan.count("  launch ") == 1 and "on its points" in plan


APART: dict[str, Any] = {
    "a result": lambda x, w, b: (x @ w + b, x @ w),
    "shifted": lambda x, w, b: (x @ w)[1:] + (x @ w)[:-1] * b,
    "summed": lambda x, w, b: (x @ w + b).sum(1),
    "costly": lambda x, w, b: jnp.sin(jnp.cos(jnp.tanh(jnp.log1p(jnp.exp(jnp.arctan(jnp.sinh(x @ w))))))) ** b,
    "read in another order": lambda x, w, b: (x @ w) + (x @ w).T[:70, :70].sum() + b,
}


@pytest.mark.parametrize("name", APART)
def test_what_is_no_epilogue_is_a_kernel(device: Any, name: str) -> None:
    assert "on its points" not in beside_the_cpu.launches(device, APART[name], X, W, B)


def test_what_a_kernel_has_no_room_for_is_no_epilogue(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "GPU_WORDS", 20)
    assert "on its points" not in beside_the_cpu.launches(device, FUSED["relu of a bias"][0], X[:8], W[:, :9], B[:9])


@pytest.mark.parametrize("dtype", [*HALVES, np.float32], ids=str)
@pytest.mark.parametrize("large", [False, True])
def test_epilogues_of_tensor_cores(device: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, large: bool) -> None:
    """The bits of the product followed by a kernel; also of large tiles, and of large ones without tensor cores."""
    if large:
        monkeypatch.setattr(grid_products, "GPU_TILES", 1)
    m, n = (256, 512) if large and dtype != np.float32 else (128, 128) if large else (70, 72)
    x, w, b = (jnp.asarray(floats(*shape), dtype) for shape in ((m, 32), (32, n), (n,)))
    one = weft.jit(lambda x, w, b: nn.relu(x @ w + b))
    with weft.default_device(device):
        plan = one.lower(x, w, b).compile().as_text("plan")
        apart = weft.jit(lambda x, w: x @ w)(x, w)
        assert "on its points" in plan and ("_large" in plan) is large
        assert beside_the_cpu.same(one(x, w, b), weft.jit(lambda c, b: nn.relu(c + b))(apart, b))


def test_products_with_epilogues_have_no_sizes(device: Any) -> None:
    function = weft.jit(lambda x, w, b: nn.relu(x @ w + b))
    with weft.default_device(device):
        for rows, columns in ((20, 30), (21, 31), (33, 17), (40, 50)):
            args = X[:rows], W[:, :columns], B[:columns]
            before = weft.compiler.stats()["kernels_built"]
            found = np.asarray(function(*args))
            assert beside_the_cpu.same(
                found, weft.jit(lambda c, b: nn.relu(c + b))(weft.jit(jnp.matmul)(*args[:2]), B[:columns])
            )
        assert weft.compiler.stats()["kernels_built"] == before


@pytest.mark.parametrize("dtype", [HALVES[0], np.float32], ids=str)
@pytest.mark.parametrize("large", [False, True])
def test_an_epilogue_is_written_over_what_is_donated(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, large: bool
) -> None:
    """Each element by the thread that reads it; the addresses of a training step stay the same."""
    if large:
        monkeypatch.setattr(grid_products, "GPU_TILES", 1)
    m, n = (256, 512) if large and dtype != np.float32 else (128, 128) if large else (70, 66)
    w, x, y = (jnp.asarray(RNG.standard_normal(shape), dtype) for shape in ((m, n), (33, m), (33, n)))

    def step(w: Any, x: Any, y: Any) -> Any:
        return w - jnp.asarray(0.25, dtype) * (x.T @ y)

    with weft.default_device(device):
        compiled = weft.jit(step, donate_argnums=0).lower(w, x, y).compile()
        assert "output 0: donated 0" in compiled.as_text("plan") and "on its points" in compiled.as_text("plan")
        given = weft.device_put(np.asarray(w), device)
        pointer, wanted = given.unsafe_buffer_pointer(), weft.jit(step)(w, x, y)
        found = compiled(given, x, y)
    assert given.is_deleted() and found.unsafe_buffer_pointer() == pointer
    assert beside_the_cpu.exactly(found, wanted)


def test_what_is_donated_and_read_elsewhere_is_not_written_over(device: Any) -> None:
    w, v = floats(40, 40), floats(40, 40)
    for function in (
        lambda w, v: w - 0.5 * (w.T @ v),  # multiplied too
        lambda w, v: (w - 0.5 * (v.T @ v), w + 1),  # read later
        lambda w, v: w.T - 0.5 * (v.T @ v),  # other elements
        lambda w, v: (w - 0.5 * (v.T @ v))[::-1],  # stored elsewhere
    ):
        with weft.default_device(device):
            found = weft.jit(function, donate_argnums=0)(weft.device_put(w, device), weft.device_put(v, device))
        wanted = weft.jit(function)(w, v)
        for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(wanted), strict=True):
            assert beside_the_cpu.exactly(one, other)
