"""NumPy beside weft: memory that NumPy may write is never part of a value, and what NumPy has that weft has not."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

ONES = np.ones(3, np.float32)


def test_what_is_written_to_a_numpy_array_later_changes_nothing() -> None:
    a = np.ones(3, np.float32)
    scaled = weft.jit(lambda x: (x * a).sum())
    compiled = weft.jit(lambda x: x + 1).lower(a).compile()
    results = [weft.jit(lambda x: x)(a), jnp.asarray(a), weft.device_put(a), jnp.reshape(a, (3, 1)), compiled(a) - 1]
    assert float(scaled(ONES)) == 3
    _, pullback = weft.vjp(lambda x: (x * x).sum(), a)
    _, pushforward = weft.linearize(lambda x: (x * x).sum(), a)
    a[...] = 7
    assert float(scaled(ONES)) == 3
    assert [np.ravel(result).tolist() for result in results] == [[1, 1, 1]] * len(results)
    assert pullback(np.float32(1))[0].tolist() == [2, 2, 2]
    assert float(pushforward(ONES)) == 6


def test_masked_arrays_are_refused_where_the_mask_would_be_lost() -> None:
    masked = np.ma.masked_array(np.arange(1.0, 4.0), np.array([False, True, False]))
    uses: list[Callable[[], Any]] = [
        lambda: jnp.asarray(masked),
        lambda: weft.jit(lambda x: x)(masked),
        lambda: jnp.ones(3) + masked,
        lambda: weft.grad(lambda x: x.sum())(masked),
        lambda: jnp.sin(masked),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"masked arrays are not supported .* arr\.filled\(\)"):
            use()
    assert jnp.array(masked).tolist() == [1, 2, 3]  # a copy of the data, as in JAX


@pytest.mark.parametrize("kind", ["i4", "i8", "u8", "f8", "c16", "f2"])
def test_arrays_of_the_other_byte_order_get_the_dtype_of_their_native_twins(kind: str) -> None:
    native = np.arange(5).astype(kind)
    swapped = native.astype(native.dtype.newbyteorder())
    assert jnp.asarray(swapped).dtype == jnp.asarray(native).dtype
    np.testing.assert_array_equal(jnp.asarray(swapped), native)


@weft.jit
def squared(x: Any) -> Any:
    return x * x


class Model:
    @staticmethod
    @weft.jit
    def halved(x: Any) -> Any:
        return x / 2


def test_jitted_functions_are_pickled_by_the_name_that_they_decorate() -> None:
    for function in (squared, Model.halved, jnp.sin):
        assert pickle.loads(pickle.dumps(function)) is function
    wrapped = weft.jit(pathlib.Path.exists, static_argnums=0)  # another object than what has the name
    again = pickle.loads(pickle.dumps(wrapped))
    assert again is not wrapped and again.__wrapped__ is pathlib.Path.exists
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(weft.jit(lambda x: x))


POOL = """
import concurrent.futures, multiprocessing
import weft, weft.numpy as jnp

@weft.jit
def squared(x):
    return x * x

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        print(*[float(y.sum()) for y in pool.map(squared, [jnp.ones(3), jnp.arange(3.0)])])
"""


def test_a_decorated_function_and_arrays_go_to_another_process(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    environment = {**os.environ, "WEFT_CHECK": "0"}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["3.0", "5.0"], done.stderr
