"""Programs of several steps at other sizes: NumPy's results at every size, whatever the compiler knew at the first."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import config, lax
from weft.compiler import pipeline
from weft.compiler.sizes import other_sizes
from weft.core.caches.store import PROGRAMS

SIZES = [
    (50, 40),
    (51, 40),
    (52, 40),
    (64, 40),
    (40, 40),
    (2, 40),
    (53, 1),
    (54, 10),
    (1, 40),
    (55, 41),
    (300, 40),
    (10, 9),
]


def _loss(xp, x, w, v):
    return xp.mean((xp.tanh(x @ w) @ v) ** 2)


def _log_likelihood(xp, x, w, v, labels):
    z = xp.tanh(x @ w) @ v
    z = z - z.max(1, keepdims=True)
    chosen = xp.take_along_axis(z, labels[:, None], 1)[:, 0]
    return -(chosen - xp.log(xp.exp(z).sum(1))).mean()


# of x f32[n,m], w f32[m,8], v f32[8,3], labels i32[n]
PROGRAMS_OF_XP = {
    "layers": lambda xp, x, w, v, labels: xp.tanh(x @ w + 1) @ v,
    "loss": lambda xp, x, w, v, labels: _loss(xp, x, w, v),
    "likelihood": lambda xp, x, w, v, labels: _log_likelihood(xp, x, w, v, labels),
    "standard scores": lambda xp, x, w, v, labels: (x - x.mean(0)) / (x.std(0) + 1),
    "covariance": lambda xp, x, w, v, labels: (x - x.mean(0)).T @ (x - x.mean(0)) / (max(len(x), 2) - 1),
    "differences": lambda xp, x, w, v, labels: x[1:] - x[:-1],
    "from the middle": lambda xp, x, w, v, labels: x[x.shape[0] // 2 :] * 2,
    "from the end": lambda xp, x, w, v, labels: x[-1] + x[::-1],
    "sorted": lambda xp, x, w, v, labels: xp.sort(x, 0)[:1] * x.sum(),
    "order": lambda xp, x, w, v, labels: xp.take_along_axis(x, xp.argsort(x, 1), 1),
    "distances": lambda xp, x, w, v, labels: ((x[:, None] - x[None, :9]) ** 2).sum(-1),
    "rows by index": lambda xp, x, w, v, labels: x[xp.minimum(labels, x.shape[0] - 1)],
    # what is known of these differs between sizes
    "first positions": lambda xp, x, w, v, labels: xp.where(xp.arange(x.shape[0]) < 52, 1.0, 2.0) * x.sum(1),
    "least of two": lambda xp, x, w, v, labels: (
        x * xp.minimum(xp.asarray(1 / x.shape[0], np.float32), np.float32(0.0195))
    ),
    "a fixed row": lambda xp, x, w, v, labels: x[min(51, x.shape[0] - 1)],
    "rows of a count": lambda xp, x, w, v, labels: x[xp.minimum(xp.arange(60), x.shape[0] - 1)],
    "numbers near an extent": lambda xp, x, w, v, labels: (x.sum(0) / 51 + x.mean(0)) @ w,
    "halves": lambda xp, x, w, v, labels: xp.concatenate([x[::2], x[1::2]]).sum(1),
    "flat": lambda xp, x, w, v, labels: x.reshape(-1).cumsum() @ xp.ones(x.size, np.float32) / x.size,
}


def operands(n, m):
    draw = np.random.default_rng(n * 1000 + m)
    x, w, v = [draw.normal(size=shape).astype(np.float32) for shape in ((n, m), (m, 8), (8, 3))]
    return x, w, v, draw.integers(0, 3, n).astype(np.int32)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", PROGRAMS_OF_XP)
def test_results(name, checked):
    """With the option ``check`` what is trusted is compared with what the compiler makes."""
    function = PROGRAMS_OF_XP[name]
    jitted = weft.jit(lambda *args: function(jnp, *args))
    with config.context("check", checked):
        for sizes in SIZES:
            args = operands(*sizes)
            np.testing.assert_allclose(jitted(*args), function(np, *args), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("function", [_loss, _log_likelihood])
def test_gradients_of_a_batch(function):
    """The gradient of a mean over a batch is compiled for one size of batches, and again where a guard asks for it."""
    few = 3 if function is _loss else 4
    gradient = weft.jit(weft.grad(lambda w, v, x, *rest: function(jnp, x, w, v, *rest), (0, 1)))
    weft.clear_caches()
    with config.context("check", False):
        counts = []
        for n in (60, 61, 62, 100, 33):
            x, w, v, labels = operands(n, 40)
            got = gradient(w, v, x, *(labels,)[: few - 3])
            counts.append(_compiled())
            step = 1e-2
            for number, (values, ours) in enumerate(zip((w, v), got, strict=True)):
                changed = values.astype(np.float64)
                ends = []
                for sign in (1, -1):
                    changed = values.astype(np.float64)
                    changed[0, 0] += sign * step
                    both = (changed, v) if number == 0 else (w, changed)
                    ends.append(function(np, x, *both, *(labels,)[: few - 3]))
                np.testing.assert_allclose(ours[0, 0], (ends[0] - ends[1]) / (2 * step), rtol=2e-2, atol=2e-4)
    assert counts[0] == counts[1] == counts[2] == 1 and counts[-1] <= 2


def _compiled():
    return sum(type(v) is pipeline.Program for v in PROGRAMS.entries.values())


def test_many_operands():
    """The extents of all operands together are more than any array could have."""
    jitted = weft.jit(lambda *args: [x * 2 for x in args])
    with config.context("check", False):
        for n in (90, 91, 92):
            before = _compiled()
            got = jitted(*[np.full((n, 100 + k), k, np.float32) for k in range(9)])
            assert all((x == 2 * k).all() for k, x in enumerate(got))
        assert _compiled() == before


def test_a_wrong_guess_is_dropped():
    """Constants that happen to be an extent of the first program are no extents in the next."""
    jitted = weft.jit(lambda x, w: (jnp.reshape(x, (-1, 2)) @ w).sum(0))
    w = np.ones((2, 2), np.float32)
    with config.context("check", False):
        for n in (4, 8, 40, 44, 48):
            x = np.arange(n, dtype=np.float32)
            np.testing.assert_allclose(jitted(x, w), (x.reshape(-1, 2) @ w).sum(0))


def test_families_stay_small():
    jitted = weft.jit(lambda x: jnp.sort(x)[:3] * x.sum())
    weft.clear_caches()
    with config.context("check", False):
        for n in range(20, 60):
            jitted(np.arange(n, dtype=np.float32))
    found = [v for v in PROGRAMS.entries.values() if type(v) is other_sizes.Family]
    assert len([v for v in PROGRAMS.entries.values() if getattr(v, "compile_new", None) is not None]) == 39
    assert all(len(family.members) <= 1 for family in found)


@weft.jit
def _least(x, number):
    return jnp.minimum(number, 0.0195) * x


def test_numbers_of_extents_in_inner_functions():
    """What an inner function does with a number that follows from an extent is seen."""
    jitted = weft.jit(lambda x: _least(x, 1 / x.shape[0]) + _least(x, x.sum()))
    with config.context("check", False):
        for n in (50, 51, 52, 60, 40):
            x = np.full(n, 0.01, np.float32)
            np.testing.assert_allclose(jitted(x), min(1 / n, 0.0195) * x + min(x.sum(), 0.0195) * x, rtol=1e-5)


# jitted functions of x f32[n,4] and indices u8[20], which are outside of small arrays
OF_INDICES = {
    "at most": (
        lambda x, indices: jnp.take(x[1:] + x[:-1], indices, axis=0, mode="clip"),
        lambda x, indices: (x[1:] + x[:-1])[np.minimum(indices, len(x) - 2)],
    ),
    "none outside": (
        lambda x, indices: (x * 2).at[indices].get(mode="fill", fill_value=9, wrap_negative_indices=False),
        lambda x, indices: np.where(indices[:, None] < len(x), (x * 2)[np.minimum(indices, len(x) - 1)], 9),
    ),
    "backwards": (
        lambda x, indices: (x[::-1] * 2).at[indices].get(mode="fill", fill_value=9, wrap_negative_indices=False),
        lambda x, indices: np.where(indices[:, None] < len(x), (x[::-1] * 2)[np.minimum(indices, len(x) - 1)], 9),
    ),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("name", OF_INDICES)
def test_bounds_of_indices(name, dtype):
    """The largest index follows from an extent, and is the largest of its dtype where the array has more rows."""
    function, expected = OF_INDICES[name]
    jitted = weft.jit(function)
    indices = np.random.default_rng(0).integers(0, 256, 20).astype(dtype)
    for n in (300, 301, 302, 100, 200, 40):
        x = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
        np.testing.assert_array_equal(jitted(x, indices), expected(x, indices.astype(np.int32)), err_msg=str(n))


def test_bounds_that_equal_an_extent():
    """The largest index is another extent at the first two sizes: a literal of the program."""
    jitted = weft.jit(lambda x, indices: x.at[indices + indices.shape[0]].get(mode="clip"))
    for n, m in ((21, 20), (22, 21), (100, 20), (200, 30), (5, 30), (5, 600)):
        x, indices = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32), np.arange(m, dtype=np.int32)
        np.testing.assert_array_equal(jitted(x, indices), x[np.minimum(indices + m, n - 1)], err_msg=str((n, m)))


@weft.jit
def _less(x, number):
    return (x - lax.convert_element_type(number, x.dtype)).cumsum()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32])
def test_extents_of_other_dtypes(dtype):
    """Extents that a dtype does not hold become other numbers."""
    jitted = weft.jit(lambda x: _less(x, np.int32(x.shape[0])))
    for n in (100, 101, 102, 200, 300, 301, 127, 128):
        x = np.arange(n).astype(dtype) % 7
        expected = np.cumsum(x - np.int32(n).astype(dtype), dtype=dtype)
        np.testing.assert_array_equal(jitted(x), expected, err_msg=str(n))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.bool_, jnp.bfloat16, np.complex64])
def test_numbers_of_extents_in_other_dtypes(dtype):
    """Extents that a narrow dtype does not hold, in sums and products."""
    jitted = weft.jit(
        lambda x: (x.real.astype(np.float32) / x.shape[0], jnp.sort(x.real)[:1], x + np.asarray(x.shape[0], dtype))
    )
    with config.context("check", False):
        for n in (100, 101, 126, 127, 128, 129, 257, 300):
            if dtype in (np.int8, np.uint8) and n > np.iinfo(dtype).max:
                continue
            x = (np.arange(n) % 3).astype(dtype)
            shares, least, total = jitted(x)
            np.testing.assert_allclose(np.asarray(shares), x.real.astype(np.float32) / n, rtol=1e-5)
            np.testing.assert_array_equal(np.asarray(total), x + np.asarray(n, dtype))
            assert least[0] == 0
