"""The option ``explicit_x64_dtypes``: with ``allow`` dtypes of 64 bits that are asked for by name are given, as in JAX.

JAX raises for some of the functions (its own constants are narrowed there); here they give the values of x64 mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

pytestmark = pytest.mark.oracle

FLOATS = np.array([1.5, 2.5, 3.0])
LARGE = np.array([1, 2, 2**40])
SQUARE = np.array([[2.0, 0.5], [0.5, 3.0]])


@pytest.fixture(autouse=True)
def _allowed() -> Iterator[None]:
    jax.config.update("jax_explicit_x64_dtypes", "allow")
    with weft.explicit_x64_dtypes("allow"):
        yield
    jax.config.update("jax_explicit_x64_dtypes", "warn")


def wide(x: Any, dtype: str = "float64") -> Any:
    return x.numpy.asarray(FLOATS, dtype=dtype)


def large(x: Any) -> Any:
    return x.numpy.asarray(LARGE, dtype="int64")


def square(x: Any) -> Any:
    return x.numpy.asarray(SQUARE, dtype="float64")


# functions of the library, ``jax`` or ``weft``
CASES: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: x.numpy.array([1, 2], "float64"),
    "a host array is narrowed": lambda x: x.numpy.asarray(FLOATS),
    "a Python type is not by name": lambda x: x.numpy.zeros(3, float),
    "zeros": lambda x: x.numpy.zeros(3, "int64"),
    "zeros in a program": lambda x: x.jit(lambda: x.numpy.zeros(3, "float64"))(),
    "full": lambda x: x.numpy.full(2, 0.1, "float64"),
    "full of a large integer": lambda x: x.numpy.full(2, 2**40, "int64"),
    "arange": lambda x: x.numpy.arange(0, 1, 0.25, "float64"),
    "linspace": lambda x: x.numpy.linspace(0, 1, 4, dtype="float64"),
    "eye": lambda x: x.numpy.eye(2, dtype="float64"),
    "ones_like": lambda x: x.numpy.ones_like(wide(x)),
    "astype": lambda x: x.numpy.ones(3).astype("complex128"),
    "scalar type": lambda x: x.numpy.float64(3),
    "iota": lambda x: x.lax.iota("int64", 3),
    "convert_element_type": lambda x: x.lax.convert_element_type(x.numpy.ones(3), "int64"),
    "bitcast": lambda x: x.lax.bitcast_convert_type(wide(x), "int64"),
    "view": lambda x: wide(x).view("int64"),
    "with a Python scalar": lambda x: wide(x) + 0.25,
    "with float32": lambda x: wide(x) * x.numpy.ones(3),
    "with an integer": lambda x: wide(x) / large(x),
    "with a host array": lambda x: wide(x) + FLOATS,
    "int64 with float32": lambda x: large(x) + x.numpy.ones(3),
    "int64 and uint64": lambda x: large(x) + large(x).astype("uint64"),
    "uint32 and int32": lambda x: x.numpy.uint32(1) + x.numpy.int32(1),
    "integers": lambda x: (large(x) // 2, large(x) % 3, large(x) << 1, -large(x), large(x) ** 2),
    "complex": lambda x: wide(x, "complex128") * 2j,
    "sums": lambda x: (wide(x).sum(), large(x).sum(), wide(x).mean(), wide(x).std(), large(x).cumsum()),
    "dtype of a sum": lambda x: x.numpy.ones(3, "int8").sum(dtype="int64"),
    "products": lambda x: (wide(x) @ wide(x), x.numpy.dot(large(x), large(x)), x.numpy.outer(wide(x), large(x))),
    "preferred_element_type": lambda x: x.numpy.dot(
        x.numpy.ones(3), x.numpy.ones(3), preferred_element_type="float64"
    ),
    "where": lambda x: x.numpy.where(wide(x) > 2, wide(x), 0),
    "select": lambda x: x.numpy.select([wide(x) > 2], [wide(x)], 0),
    "clip": lambda x: x.numpy.clip(large(x), 0, 5),
    "concatenate": lambda x: x.numpy.concatenate([wide(x), x.numpy.ones(2)]),
    "a list of scalars": lambda x: x.numpy.array([wide(x)[0], 1.0]),
    "masked": lambda x: wide(x)[wide(x) > 2],
    "updated": lambda x: wide(x).at[0].set(0.1),
    "unique": lambda x: x.numpy.unique(large(x)),
    "sorted": lambda x: (x.numpy.sort(wide(x)), x.numpy.median(wide(x)), x.numpy.interp(wide(x), wide(x), wide(x))),
    "padded": lambda x: x.numpy.pad(wide(x), 1, mode="mean"),
    "functions": lambda x: (x.numpy.sin(wide(x)), x.numpy.log2(wide(x)), x.nn.softmax(wide(x))),
    "special functions": lambda x: (x.scipy.special.gammaln(wide(x)), x.scipy.special.erfinv(wide(x) / 10)),
    "windows": lambda x: x.lax.reduce_window(wide(x), 0.0, x.lax.add, (2,), (1,), "VALID"),
    "linear algebra": lambda x: (
        x.numpy.linalg.inv(square(x)), x.numpy.linalg.cholesky(square(x)), x.scipy.linalg.expm(square(x))
    ),
    "fourier": lambda x: x.numpy.fft.rfft(wide(x)),
    "random": lambda x: x.random.uniform(x.random.key(0), (2,), "float64"),
    "integers at random": lambda x: x.random.randint(x.random.key(0), (2,), 0, 1000, "int64"),
    "one_hot": lambda x: x.nn.one_hot(x.numpy.array([0, 1]), 3, dtype="float64"),
    "grad": lambda x: x.grad(lambda y: (y**2).sum())(wide(x)),
    "grad through a cast": lambda x: x.grad(lambda y: (y.astype("float64") ** 2).sum())(x.numpy.ones(3)),
    "hessian": lambda x: x.hessian(lambda y: (y**3).sum())(wide(x)),
    "vmap": lambda x: x.vmap(lambda y: x.numpy.where(y > 2, y, 0.1))(wide(x)),
    "scan": lambda x: x.lax.scan(lambda c, y: (c + y, c * y), x.numpy.float64(0), wide(x)),
    "fori_loop": lambda x: x.jit(lambda y: x.lax.fori_loop(0, 3, lambda i, c: c + i, y))(large(x)),
    "eval_shape": lambda x: x.numpy.zeros(1, x.eval_shape(lambda: x.numpy.zeros(3, "float64")).dtype),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_asked_for_by_name_is_given(name: str) -> None:
    found, expected = weft.tree.leaves(CASES[name](weft)), jax.tree.leaves(CASES[name](jax))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type), name
        np.testing.assert_allclose(ours, theirs, rtol=1e-7 if ours.dtype.itemsize < 8 else 1e-9, err_msg=name)


def test_what_jax_cannot_do_there_has_the_values_of_x64_mode() -> None:
    functions: list[Callable[[Any], Any]] = [
        lambda x: (x.numpy.geomspace(1, 10, 4, dtype="float64"), wide(x).argmax().astype("int8")),
        lambda x: (
            x.numpy.log10(wide(x)),
            x.scipy.special.gammainc(wide(x), wide(x)),
            x.scipy.stats.norm.cdf(wide(x), 0, 1),
        ),
        lambda x: (x.numpy.frexp(wide(x)), x.lax.clamp(x.numpy.float64(0), wide(x), x.numpy.float64(2))),
        lambda x: x.random.normal(x.random.key(0), (3,), "float64"),
    ]
    for function in functions:
        narrow = weft.tree.leaves(function(weft))
        with weft.enable_x64(), jax.enable_x64():
            expected = jax.tree.leaves(function(jax))
        for ours, theirs in zip(narrow, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_large_integer_keeps_its_value() -> None:
    assert int(wnp.int64(2**40)) == int(wnp.array(2**40, "int64")) == 2**40  # JAX gives 0
    assert float(wnp.float64(0.1)) == 0.1 == float(weft.jit(lambda: wnp.array(0.1, "float64"))())


def test_arrays_of_64_bits_that_are_used_elsewhere_are_read_whole() -> None:
    x = wnp.asarray(FLOATS, dtype="float64")
    with weft.explicit_x64_dtypes("warn"):
        for product in (lax.dot(x, x), weft.jit(lambda y: lax.dot(y, y))(x), wnp.dot(x, x)):
            assert float(product) == 17.5
        assert x[x > 2].dtype == np.float64
    assert weft.jit(lambda y: y + 1)(x).dtype == np.float64
    with weft.explicit_x64_dtypes("warn"):
        assert weft.jit(lambda y: y + 1)(x).dtype == np.float32  # as in JAX: another option, another program


@pytest.mark.parametrize("transform", ["hessian", "jacobian", "jacfwd", "jacrev"])
def test_derivatives_of_such_arrays_keep_their_dtype(transform: str) -> None:
    def derivative(module: Any, x: Any) -> Any:
        return getattr(module, transform)(lambda y: (module.numpy.sin(y) * y[::-1]).sum())(x)

    ours, theirs = wnp.asarray([1.0, 2.0], dtype="float64"), jax.numpy.asarray([1.0, 2.0], dtype="float64")
    expected = derivative(jax, theirs)
    with weft.explicit_x64_dtypes("warn"):  # in JAX too, which warns of its own unit vectors
        found = derivative(weft, ours)
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)
