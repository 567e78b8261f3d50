"""Arguments for which weft once differed from JAX: values beside NumPy, and the classes of errors that JAX raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import dtypes, errors, lax, random

X, KEY = np.arange(3, dtype=np.float32), random.key(0)

RAISES: list[tuple[Any, tuple[type[Exception], ...]]] = [
    (lambda: jnp.mean(X, axis=1), (IndexError, ValueError)),
    (lambda: jnp.split(X, 3, axis=1), (IndexError, ValueError)),
    (lambda: lax.dynamic_index_in_dim(X, 0, 1), (IndexError, ValueError)),
    (lambda: jnp.polyval(2, X), (IndexError,)),
    (lambda: jnp.vecdot(X, 1.0), (IndexError, ValueError)),
    (lambda: jnp.linalg.cholesky(np.ones((2, 3))), (TypeError, ValueError)),
    (lambda: jnp.linalg.eigh(np.ones((2, 3))), (TypeError, ValueError)),
    (lambda: random.uniform(KEY, (), minval=X), (TypeError, ValueError)),
    (lambda: random.randint(KEY, (), 0, np.array([3, 4])), (ValueError,)),
    (lambda: random.fold_in(KEY, np.array([1, 2])), (TypeError,)),
    (lambda: random.categorical(KEY, np.array([True, False])), (ValueError,)),
    (lambda: jnp.array(X, dtype=X), (ValueError,)),
    (lambda: jnp.zeros(3, dtype=X), (ValueError,)),
    (lambda: dtypes.itemsize_bits(None), (ValueError,)),
    (lambda: dtypes.itemsize_bits(dtypes.float0), (ValueError,)),
    (lambda: jnp.copy(X + jnp.ones(3), order="C"), (NotImplementedError,)),
    (lambda: jnp.tril_indices(-1), (TypeError,)),
    (lambda: jnp.triu_indices(3, m=2.5), (TypeError,)),
    (lambda: jnp.argwhere(X, fill_value=[1, 2, 3]), (ValueError,)),
    (lambda: jnp.nonzero(X, size=-1), (TypeError,)),
    (lambda: jnp.unique(X, size=2.0), (TypeError,)),
    (lambda: jnp.fill_diagonal(np.eye(2), 1), (NotImplementedError,)),
    (lambda: jnp.broadcast_shapes((-1,), (1,)), (TypeError,)),
    (lambda: jnp.clip(max=3), (ValueError,)),
    (lambda: jnp.cov(X, dtype="int32"), (ValueError,)),
    (lambda: weft.scipy.linalg.expm(np.eye(2, dtype=np.float16)), (TypeError,)),
    (lambda: weft.scipy.special.multigammaln(2.0, [1, 2]), (TypeError,)),
    (lambda: jnp.convolve(X, X, precision="nonsense"), (ValueError,)),
    (lambda: jnp.correlate(X, X, precision=7), (ValueError,)),
    (lambda: weft.scipy.signal.convolve(X, X, precision="nonsense"), (ValueError,)),
    (lambda: weft.scipy.signal.correlate(X, X, precision=("high",)), (ValueError,)),
    (lambda: weft.scipy.signal.convolve2d(X[None], X[None], precision="nonsense"), (ValueError,)),
    (lambda: weft.scipy.signal.correlate2d(X[None], X[None], "same", precision="nonsense"), (ValueError,)),
    (lambda: weft.image.resize(X[None], (1, 2), "linear", precision="nonsense"), (ValueError,)),
    (lambda: weft.scipy.stats.multinomial.logpmf(X, 3, X / 3), (ValueError,)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RAISES)))
def test_classes_of_errors(number: int) -> None:
    call, classes = RAISES[number]
    with pytest.raises(classes[0]) as caught:
        call()
    assert all(isinstance(caught.value, each) for each in classes)
    assert not isinstance(caught.value, errors.InternalError)


def test_values_and_types() -> None:
    np.testing.assert_allclose(weft.nn.logmeanexp(X, where=True), np.log(np.mean(np.exp(X))), rtol=1e-6)
    rows = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(weft.nn.logmeanexp(rows, 1, where=np.array([True, False, True])), [1, 1], rtol=1e-6)
    found = jnp.cov(jnp.asarray(X, "bfloat16"), aweights=X)
    np.testing.assert_allclose(found, np.cov(X, aweights=X), rtol=1e-5)
    assert found.dtype == np.float32
    drawn = random.randint(KEY, (2, 3), 0, np.array([1, 2, 3]))
    assert drawn.shape == (2, 3)
    assert np.all(np.asarray(drawn) < [1, 2, 3])
    assert weft.scipy.special.comb(3, 2, repetition=True) == pytest.approx(6, rel=1e-5)
    assert weft.scipy.special.comb(0, 0, repetition=True) == 1
    assert not weft.nn.softplus(np.arange(3)).weak_type
    assert jnp.round(1.25, 1).weak_type
    assert weft.scipy.fft.dctn(np.arange(3), axes=()).dtype == np.int32
    np.testing.assert_allclose(weft.scipy.fft.idctn(weft.scipy.fft.dctn(X, axes=0), axes=0), X, atol=1e-6)
    for result in (lax.linalg.lu(np.eye(2)), lax.linalg.hessenberg(np.eye(2)), lax.linalg.tridiagonal(np.eye(2))):
        assert type(result) is list


def test_equal_elements_of_an_unstable_descending_sort_are_reversed() -> None:
    x = jnp.array([True, False, True, True])  # as in JAX, where the ascending order is read backwards
    assert jnp.argsort(x, stable=False, descending=True).tolist() == [3, 2, 0, 1]
    assert jnp.argsort(x, descending=True).tolist() == [0, 2, 3, 1]
