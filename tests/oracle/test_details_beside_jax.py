"""Options, operands and errors that few programs use: the same values, dtypes and kinds of error as JAX's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft
from tests.oracle import differential

# expressions over keys ks key<fry>[3], x f32[2,3], t f32[2,3,4], w f32[2,4], i i8[4], c c64[3], P = one row of padding
VALUES = """
jnp.floor_divide(c, c)
c // 2j
nn.standardize(x, algorithm='stable')
nn.standardize(x, algorithm='two_pass')
nn.one_hot([[0, 1], [2, 0]], 3, axis=0)
random.truncated_normal(ks[0], -1, 1, (3,), complex)
random.categorical(ks[0], w, axis=0, shape=(3, 2))
random.key_data(jnp.tile(ks, (2, 2)))
random.key_data(J.vmap(lambda k: jnp.tile(k, 2))(ks))
ks == ks[1]
ks != ks[::-1]
lax.eq(ks, ks[1])
jnp.isclose(ks, ks)
jnp.allclose(ks, ks[:1])
jnp.array_equal(ks, ks)
jnp.array_equiv(ks, ks[0])
ks == 3
ks < ks
jnp.isclose(ks, 1.0)
[random.key_data(random.fold_in(ks[0], n)) for n in (2**31, 2**32 - 2, 2**32 - 1)]
random.fold_in(ks[0], 2**32)
random.fold_in(ks[0], -1)
i.at[0].set(300)
i.at[0].add(300)
i.at[:2].set([300, -300])
i.astype(jnp.uint8).at[0].min(-1)
i.astype(jnp.uint32).at[0].set(-5)
i.astype(jnp.int32).at[0].set(2**31)
jnp.average(t, axis=(0, 2), weights=w, keepdims=True)
jnp.average(t, axis=(2, 0), weights=w.T, returned=True)
jnp.average(t, axis=1, weights=w)
jnp.average(t, weights=w)
jnp.trapezoid(x, dx=jnp.array([1.0, 2.0]))
jnp.trapezoid(x.T, dx=jnp.array([1.0, 2.0]), axis=0)
jnp.trapezoid(x, dx=jnp.full((2, 2), 2.0))
jnp.quantile(x, jnp.array([0.0, 0.3, 1.0]), axis=1, weights=jnp.array([1.0, 2, 3]), method='inverted_cdf')
jnp.quantile(t, 0.4, axis=(0, 2), method='inverted_cdf')
jnp.nanquantile(x.at[0, 1].set(jnp.nan), 0.5, weights=x, method='inverted_cdf')
jnp.quantile(x, 0.3, weights=x)
jnp.quantile(x, 0.3, weights=w, method='inverted_cdf')
[jnp.searchsorted(jnp.sort(c), c + d, side=s) for d in (0, 0.5j) for s in ('left', 'right')]
[jnp.searchsorted(jnp.sort(c), c, method=m) for m in ('sort',)]
[c.view(d) for d in (jnp.float32, jnp.uint8, jnp.complex64)]
[jnp.arange(16, dtype=jnp.uint8).reshape(2, 8).view(d) for d in (jnp.complex64,)]
x.view(jnp.complex64)
c[0].view(jnp.float32)
[a.byteswap() for a in (i, c, jnp.arange(3, dtype=jnp.int16))]
x.byteswap(inplace=True)
[jnp.r_[s, x[0], x[1]] for s in ('0', '-1', '0,2', '0,2,0', '1,2,0', '0,3,1', 'r', 'c')]
[jnp.c_[s, x[0], x[1]] for s in ('0', '1', '0,2', '0,2,-1')]
jnp.r_['0,3', x, x[:1]]
jnp.r_['foo', x]
jnp.r_['0,1,2,3', x]
jnp.pad(x, ((1, 1), (0, 2)), P, value=7)
[jnp.pad(a, 2, 'median') for a in (x, i)]
jnp.pad(x, 1, 'nonsense')
[jnp.zeros(s) for s in (np.array(3), np.array([2, 3]), jnp.array(3), np.int64(3), [2, np.int8(3)])]
[jnp.full(np.array(3), 2), jnp.broadcast_to(1, np.array(2)), jnp.tile(x, np.array([2, 2])), jnp.tile(x, np.array(2))]
[x.reshape(np.array([3, 2])), jnp.reshape(x, np.array(6)), jnp.arange(np.array(3))]
[jnp.squeeze(x[None, :, None], axis=a) for a in (np.array(0), np.array([0, 2]), jnp.array([0, 2]))]
[jnp.expand_dims(x, np.array([0, 2])), jnp.moveaxis(x, np.array([0]), np.array([1])), jnp.flip(x, np.array([0]))]
[jnp.roll(x, np.array([1]), np.array([0])), jnp.sum(x, axis=np.array([0, 1])), jnp.transpose(x, np.array([1, 0]))]
[jnp.split(x, 3.0, axis=1), jnp.array_split(x, 2.0), jnp.hsplit(x, 3.0), jnp.split(x, np.array(2))]
jnp.split(x, [1.0, 2.0])
[jnp.packbits(i.reshape(2, 2), axis=a, bitorder=o) for a in (None, 0) for o in ('little',)]
jnp.unpackbits(i.astype(jnp.uint8).reshape(2, 2), axis=0)
[random.key_data(f(2, ks.dtype)) for f in (jnp.zeros, jnp.ones)]
[random.key_data(f(ks)) for f in (jnp.zeros_like, jnp.ones_like, jnp.empty_like)]
random.key_data(jit(lambda k: jnp.full((2, 2), 7, k.dtype))(ks))
lax.convert_element_type(ks, int)
random.rademacher(ks[0], (4,), bool)
lax.select_n(i[:3], *[jnp.full(3, k) for k in range(4)])
[lax.select_n(np.array([0, 5, -1]).astype(d), *jnp.eye(3)) for d in ('int16', 'uint8', 'uint32')]
[jnp.mgrid[()], *jnp.ogrid[()]]
[jnp.stack(x, dtype=int), jnp.stack(x, axis=1, dtype='bfloat16'), jnp.stack(x)]
jnp.ravel_multi_index((i, i), (2, 300), mode='ignore', dtype='int16')
[jnp.unravel_index(n, jnp.array([2, 3])) for n in (5, np.int8(5), np.uint8(1))]
"""


def _fill(row: Any, width: Any, axis: int, options: dict[str, Any]) -> Any:
    low, high = (int(n) for n in width)
    row = row.at[:low].set(options["value"] + axis)
    return row.at[len(row) - high :].set(-options["value"])


def _evaluated(J: Any, expression: str) -> Any:
    names = {
        "J": J, "jit": J.jit, "jnp": J.numpy, "lax": J.lax, "nn": J.nn, "random": J.random, "np": np,
        "P": _fill, "ks": J.random.split(J.random.key(3), 3), "x": J.numpy.arange(6.0).reshape(2, 3) ** 2,
        "t": J.numpy.arange(24.0).reshape(2, 3, 4) % 7, "w": J.numpy.arange(8.0).reshape(2, 4) + 1,
        "i": J.numpy.array([1, -2, 100, 0], J.numpy.int8),
        "c": J.numpy.array([1.5 + 2j, -3.5 - 1j, 0.25 - 0.5j], J.numpy.complex64),
    }  # fmt: skip
    try:
        with warnings.catch_warnings(), J.numpy_rank_promotion("raise" if "packbits" in expression else "allow"):
            warnings.simplefilter("ignore")
            return J.tree.leaves(eval(expression, names))
    except Exception as error:
        return error


@pytest.mark.oracle
def test_values_and_errors() -> None:
    for expression in VALUES.strip().splitlines():
        expected = _evaluated(differential.namespace("jax"), expression)
        found = _evaluated(differential.namespace("weft"), expression)
        if isinstance(expected, Exception):
            assert type(found).__name__ == type(expected).__name__, f"{expression}: {expected!r}, found {found!r}"
            continue
        assert not isinstance(found, Exception), f"{expression}: {found!r}"
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), expression
            own, other = (np.asarray(a).astype(complex) for a in (mine, theirs))
            np.testing.assert_allclose(own, other, rtol=2e-5, atol=1e-6, err_msg=expression)


@pytest.mark.oracle
@pytest.mark.parametrize("expression", ["jnp.size([1, 2])", "jnp.ndim((1, 2))", "jnp.shape([1])", "c.astype(float)"])
def test_deprecated_calls_say_so(expression: str) -> None:
    for name in ("jax", "weft"):
        J = differential.namespace(name)
        with pytest.warns(DeprecationWarning, match="requires ndarray or scalar|Casting from complex to real dtypes"):
            eval(expression, {"jnp": J.numpy, "c": J.numpy.ones(2, "complex64")})


def test_start_indices_from_the_end_of_an_axis_beyond_their_type() -> None:
    lax, x = weft.lax, np.arange(300)
    for start in (np.int8(-3), np.int16(-3)):
        assert lax.dynamic_slice(x, [start], (2,)).tolist() == [297, 298]
        assert weft.jit(lambda i: lax.dynamic_slice(x, [i], (2,)))(start).tolist() == [297, 298]
        assert weft.jit(lambda i: lax.dynamic_update_slice(x, x[:1], [i]))(start)[297] == 0
        assert weft.jit(lambda i: weft.numpy.asarray(x)[i])(start) == 297


def test_a_dot_algorithm_of_types_is_no_error() -> None:
    algorithm = weft.lax.DotAlgorithm(np.float32, np.float32, np.float32)
    found = weft.lax.dot(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), precision=algorithm)
    np.testing.assert_array_equal(found, np.full((2, 2), 3.0))


def test_the_padding_of_a_word_is_python_integers() -> None:
    pads = weft.lax.padtype_to_pads(np.array([8, 7]), np.array([3, 3]), np.array([2, 2]), "SAME_LOWER")
    assert pads == [(1, 0), (1, 1)]
    assert {type(n) for pair in pads for n in pair} == {int}
