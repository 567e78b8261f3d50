"""What does not fit raises where it is written: with the path of the array, the user's function and its line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.lax as lax
import weft.numpy as jnp
from weft.experimental.pallas import tpu, triton

A = np.arange(8, dtype=np.int32)
OUT = weft.ShapeDtypeStruct((8,), "int32")
both = pytest.mark.parametrize("interpret", [False, True])


def copy(x: Any, o: Any) -> None:
    o[...] = x[...]


def two_numbers() -> tuple[int, int]:
    return 0, 0


def spec(*args: Any, **options: Any) -> pl.BlockSpec:
    return pl.BlockSpec(*args, **options)


CALLS: dict[str, tuple[Any, type[Exception], str]] = {
    "returns something": (
        lambda: pl.pallas_call(lambda x, o: 0, OUT)(A),
        ValueError, r"in the pallas_call <lambda> at .*test_errors\.py:\d+ should return None.* It returned 0",
    ),
    "another reference in the state of a loop": (
        lambda: pl.pallas_call(lambda x, o: lax.fori_loop(0, 2, lambda i, refs: refs[::-1], (x, o)) and None, OUT)(A),
        TypeError, r"given the reference Ref\{int32\[8\]\} in its state, and must return it at the same place",
    ),
    "too few parameters": (
        lambda: pl.pallas_call(lambda x: None, OUT)(A), TypeError, "takes 1 positional argument but 2 were given",
    ),
    "captures an array": (
        lambda: pl.pallas_call(lambda x, o: o.set(jnp.asarray(A)), OUT)(A),
        ValueError, r"The kernel function .*test_errors\.py:\d+ captures constants \[i32\[8\]\]\. You should pass them",
    ),
    "in_specs is no sequence": (
        lambda: pl.pallas_call(copy, OUT, in_specs=spec((4,), lambda: 0)), ValueError, "`in_specs` must be a tuple or",
    ),
    "a spec too many": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec()] * 2)(A),
        ValueError, "`in_specs` and `inputs` do not match.*a tuple of length 2 but `inputs` is a tuple of len",
    ),
    "a word for an axis that is none": (
        lambda: pl.pallas_call(copy, OUT, compiler_params=tpu.CompilerParams(dimension_semantics=("paralel",))),
        ValueError, r"dimension_semantics has 'paralel': say one of \['parallel', ",
    ),
    "a reference given twice": (
        lambda: (lambda ref: pl.pallas_call(lambda x, y, o: None, OUT)(ref, ref))(weft.new_ref(jnp.asarray(A))),
        ValueError, r"only one reference to a mutable array.*appeared at both operand 0 and operand 1",
    ),
    "einshape of a group of unknown sizes": (
        lambda: tpu.einshape("(ab)->ab", A), ValueError, r"splits a dimension of 8 into \['a', 'b'\]: give the siz",
    ),
    "einshape of sizes that do not divide": (lambda: tpu.einshape("(ab)->ab", A, a=3), ValueError, "by the sizes"),
    "einshape of another rank": (lambda: tpu.einshape("ab->ba", A), ValueError, "has 2 dimensions, the array has 1"),
    "einshape without an arrow": (lambda: tpu.einshape("a", A), ValueError, "an equation has one '->'"),
    "einshape of an unknown name": (lambda: tpu.einshape("a->ab", A), ValueError, "has 'b' on the right alone"),
    "einshape of parentheses": (lambda: tpu.einshape("(a->a", A), ValueError, r"the parentheses of '\(a' do not match"),
    "einshape that sums": (lambda: tpu.einshape("a->", A), NotImplementedError, "each dimension once on either side"),
    "roll by less than nothing": (lambda: tpu.roll(A, -1, 0), ValueError, "shift must be non-negative, got -1"),
    "roll along no axis": (lambda: tpu.roll(A, 1, 1), ValueError, "axis is out of range: 1"),
    "a stride without an axis": (lambda: tpu.roll(A, 1, 0, stride=1), ValueError, "give stride and stride_axis"),
    "a stride along the axis": (
        lambda: tpu.roll(A, 1, 0, stride=1, stride_axis=0), ValueError, "the stride is along another axis than 0",
    ),
    "a result of keys": (
        lambda: (lambda key: pl.pallas_call(copy, weft.ShapeDtypeStruct((), key.dtype))(key))(weft.random.key(0)),
        NotImplementedError, r"a kernel has no results.*of key<fry>.*weft\.random\.key_data",
    ),
    "a word of InterpretParams that is none": (
        lambda: pl.pallas_call(copy, OUT, interpret=tpu.InterpretParams(out_of_bounds_reads="rasie")),
        ValueError, r"out_of_bounds_reads is one of \('raise', 'uninitialized'\), got 'rasie'",
    ),
    "a spec for a tree": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec(), spec()])(A, {"a": A}),
        ValueError, r"1 mismatches, including:\n    \* at \[1\], `in_specs` is a pytree leaf but `inputs` is a dict",
    ),
    "specs of results": (
        lambda: pl.pallas_call(copy, [OUT, OUT], out_specs=[spec()])(A),
        ValueError, "`out_specs` and `out_shape` do not match.*a tuple of length 1 but `out_shape` is a tuple of len",
    ),
    "index map of too many parameters": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec((4,), lambda i, j: 0)])(A),
        TypeError, "missing 2 required positional arguments: 'i' and 'j'",
    ),
    "index map of too many results": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[{"one": spec((4,), two_numbers)}])({"one": A}),
        ValueError, r"Index map function two_numbers at .*test_errors\.py:\d+ for args\[0\]\['one'\] must return 1",
    ),
    "index map of floats": (
        lambda: pl.pallas_call(copy, OUT, grid=1, in_specs=[spec((4,), lambda i: 5.0)])(A),
        ValueError, r"for args\[0\] must return integer scalars\. Output\[0\] has type .*float32",
    ),
    "index map of an array": (
        lambda: pl.pallas_call(copy, OUT, grid=1, in_specs=[spec((4,), lambda i: jnp.arange(4))])(A),
        ValueError, r"must return integer scalars\. Output\[0\] has type int32\[4\]",
    ),
    "index map that captures": (
        lambda: pl.pallas_call(copy, OUT, grid=1, in_specs=[spec((4,), lambda i: jnp.asarray(A)[i])])(A),
        ValueError, r"Index map function .* for args\[0\] must not capture constants: \[i32\[8\]\]",
    ),
    "block of another rank": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec((1, 1), lambda: (0, 0))])(A),
        ValueError, r"Block shape for args\[0\] \(= \(1, 1\)\) must have the same number of dimensions as the",
    ),
    "block of a result of another rank": (
        lambda: pl.pallas_call(copy, [OUT], out_specs=[spec((1, 1), lambda: 0)])(A),
        ValueError, r"Block shape for outputs\[0\]",
    ),
    "block without elements": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec((0,), lambda: 0)])(A), ValueError, "has an extent of 0",
    ),
    "alias of no input": (
        lambda: pl.pallas_call(copy, OUT, input_output_aliases={2: 0})(A),
        ValueError, r"the mapping '2:0' with input index 2 outside the range \[0, 1\)",
    ),
    "alias of no output": (
        lambda: pl.pallas_call(copy, OUT, input_output_aliases={0: 1})(A),
        ValueError, r"the mapping '0:1' with output index 1 outside the range \[0, 1\)",
    ),
    "alias of another type": (
        lambda: pl.pallas_call(copy, weft.ShapeDtypeStruct((8,), "float32"), input_output_aliases={0: 0})(A),
        ValueError, r"'0:0' referring to input\[0\] with abstract value int32\[8\] and to output\[0\] with a diff",
    ),
    "grid twice": (
        lambda: pl.pallas_call(copy, OUT, grid=2, grid_spec=pl.GridSpec(grid=2)), ValueError, "If `grid_spec` is spec",
    ),
    "negative grid": (lambda: pl.pallas_call(copy, OUT, grid=-1), ValueError, "must not be negative, got -1"),
    "grid of floats": (lambda: pl.pallas_call(copy, OUT, grid=(1.5,)), TypeError, "an extent of the grid is an int"),
    "no shape": (lambda: pl.pallas_call(copy, "f32"), TypeError, "out_shape has the shape and dtype of a result"),
    "scratch of nothing": (
        lambda: pl.pallas_call(copy, OUT, scratch_shapes=[3])(A), TypeError, r"scratch_shapes\[0\] asks for 3",
    ),
    "bounded slice": (
        lambda: pl.pallas_call(copy, OUT, in_specs=[spec((pl.BoundedSlice(8),), lambda: pl.ds(0, 8))])(A),
        ValueError, r"Unsupported block dimension of args\[0\]: BoundedSlice\(8\) is for emit_pipeline",
    ),
    "indirect block": (
        lambda: pl.pallas_call(copy, OUT, out_specs=spec((pl.Indirect(8),), lambda: 0))(A),
        ValueError, r"Unsupported block dimension of outputs: Indirect\(8\)",
    ),
    "map before shape": (lambda: spec(lambda i: i, (4,)), TypeError, "block_shape comes before index_map"),
    "block of text": (lambda: spec(("4",), lambda i: i), TypeError, "an entry of block_shape is an int, None"),
    "program_id outside": (lambda: pl.program_id(0), ValueError, "pallas.program_id is called in code outside of a ke"),
    "program_id of no axis": (
        lambda: pl.pallas_call(lambda o: o.set(pl.program_id(1)), weft.ShapeDtypeStruct((), "int32"), grid=1)(),
        ValueError, r"axis must be in \[0, 1\)",
    ),
    "index outside": (
        lambda: pl.pallas_call(lambda x, o: o.set(x[8]), weft.ShapeDtypeStruct((), "int32"))(A),
        ValueError, r"Out of bound indexer: idx=8, dim=8",
    ),
    "slice outside": (
        lambda: pl.pallas_call(lambda x, o: o.set(x[pl.ds(5, 4)]), weft.ShapeDtypeStruct((4,), "int32"))(A),
        ValueError, "Out of bound slice: start=5, size=4, stride=1, dim=8",
    ),
    "value of another shape": (
        lambda: pl.pallas_call(lambda x, o: o.set(x[0:2]), OUT)(A), ValueError, "Invalid shape for `swap`",
    ),
    "other without a mask": (
        lambda: pl.pallas_call(lambda x, o: o.set(triton.load(x, other=1)), OUT)(A), ValueError, "there is no mask",
    ),
    "mask of numbers": (
        lambda: pl.pallas_call(lambda x, o: o.set(triton.load(x, mask=x[...])), OUT)(A), TypeError, "array of booleans",
    ),
    "mask of another shape": (
        lambda: pl.pallas_call(lambda x, o: o.set(triton.load(x, mask=x[0:3] > 0)), OUT)(A),
        ValueError, r"`mask` of shape \(3,\) does not broadcast to the shape of the access, \(8,\)",
    ),
    "bits of floats": (
        lambda: pl.pallas_call(lambda o: triton.atomic_xor(o, 0, 1.0), weft.ShapeDtypeStruct((2,), "float32"))(),
        TypeError, r"\[atomic_xor\] takes integers and booleans",
    ),
    "assembly": (
        lambda: triton.elementwise_inline_asm("x", args=[], constraints="", pack=1, result_shape_dtypes=[]),
        NotImplementedError, r"pallas\.triton\.elementwise_inline_asm",
    ),
    "another core": (
        lambda: pl.pallas_call(lambda o, s: pl.semaphore_signal(s, core_index=1), OUT,
                               scratch_shapes=[tpu.SemaphoreType.REGULAR])(),
        NotImplementedError, "semaphore_signal to another core",
    ),
    "another device": (
        lambda: pl.pallas_call(lambda o, s: pl.semaphore_signal(s, device_id=1), OUT,
                               scratch_shapes=[tpu.SemaphoreType.REGULAR])(),
        ValueError, r"\[device_id\] 1: outside of shard_map there is one device, of number 0",
    ),
    "a name of Mosaic": (
        lambda: pl.tpu.matmul_pop(0), NotImplementedError, r"weft\.experimental\.pallas\.tpu\.matmul_pop is not built",
    ),
    "a name of Mosaic GPU": (
        lambda: __import__("weft.experimental.pallas.mosaic_gpu", fromlist=["wgmma"]).wgmma(),
        NotImplementedError, r"weft\.experimental\.pallas\.mosaic_gpu\.wgmma is not built",
    ),
    "step of a loop": (lambda: pl.loop(0, 4, step=0), ValueError, "`step` must be above 0, got 0"),
    "fetched arguments": (
        lambda: pl.pallas_call(copy, OUT, grid_spec=tpu.PrefetchScalarGridSpec(2))(A),
        TypeError, "2 arguments are fetched before the kernel runs, but the call has 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_errors(name: str) -> None:
    run, kind, text = CALLS[name]
    with pytest.raises(kind, match=re.compile(text, re.DOTALL)):
        run()


def test_an_error_in_a_kernel_points_at_its_line() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = lax.add(x[...], jnp.ones(3, "int32"))  # the wrong line

    with pytest.raises(TypeError) as caught:
        pl.pallas_call(kernel, OUT)(A)
    assert any("the wrong line" in str(entry.statement) for entry in caught.traceback)


def test_captured_tracers_are_refused() -> None:
    @weft.jit
    def f(x: Any) -> Any:
        y = x + 1
        return pl.pallas_call(lambda x, o: o.set(x[...] + y), OUT)(x)

    with pytest.raises(ValueError, match=r"captures constants \[i32\[8\]\]"):
        f(A)
