"""Library calls: batches on threads, LAPACK's own threads, bad instructions, interrupts, stored programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.runtime import machine_code
from weft import lax, runtime
from weft.compiler.plans.instructions import Library, NewOutput


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = runtime.Pool.get_threads()
    runtime.Pool.set_threads(request.param)
    yield request.param
    runtime.Pool.set_threads(before)


def definite(*shape: int) -> np.ndarray:
    a = np.random.default_rng(0).normal(size=shape)
    return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(np.float32)


@pytest.mark.parametrize("shape", [(100, 20, 20), (3, 90, 90), (200, 200)], ids=str)
def test_batches_on_threads(shape: tuple[int, ...], threads: int) -> None:
    a = definite(*shape)
    weft.block_until_ready(lax.linalg.cholesky(a))
    before = runtime.lapack_threads()
    np.testing.assert_allclose(lax.linalg.cholesky(a), np.linalg.cholesky(a), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lax.linalg.eigh(a)[1], np.linalg.eigvalsh(a), rtol=1e-4)
    assert runtime.lapack_threads() == before  # as whoever else uses the library has set it


def test_calls_from_several_python_threads() -> None:
    a = definite(20, 40, 40)
    expected, found = np.linalg.cholesky(a), []
    given = [threading.Thread(target=lambda: found.append(np.asarray(lax.linalg.cholesky(a)))) for _ in range(4)]
    for thread in given:
        thread.start()
    for thread in given:
        thread.join(60)
    assert len(found) == 4
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


def _executable(*fields: Any, size: int = 9) -> Any:
    kind = machine_code.aval((size,))
    return runtime.Executable(1, [NewOutput(kind.nbytes, kind)], [], 0, [Library(*fields)], "call", (kind,))


OPERAND, RESULT = (0, 0, -1), (1, 0, -1)
BAD = [
    (("no", "f", 1, (3,), (OPERAND,), (RESULT,)), "no library routine no"),
    (("potrf", "i", 1, (3,), (OPERAND,), (RESULT,)), "no library routine potrf"),
    (("potrf", "f", 0, (3,), (OPERAND,), (RESULT,)), "without a matrix"),
    (("potrf", "f", 1, (3, 3), (OPERAND,), (RESULT,)), "number of sizes"),
    (("potrf", "f", 1, (-3,), (OPERAND,), (RESULT,)), "negative or too large"),
    (("potrf", "f", 1, (2**40,), (OPERAND,), (RESULT,)), "negative or too large"),
    (("potrf", "f", 1, (3,), (OPERAND, OPERAND), (RESULT,)), "number of operands"),
    (("potrf", "f", 1, (4,), (OPERAND,), (RESULT,)), "accesses byte"),
    (("potrf", "f", 2, (3,), (OPERAND,), (RESULT,)), "accesses byte"),
]


@pytest.mark.parametrize(("fields", "text"), BAD, ids=[text for _, text in BAD])
def test_bad_instructions(fields: tuple[Any, ...], text: str) -> None:
    weft.block_until_ready(lax.linalg.lu(np.eye(2, dtype=np.float32)))  # the compiler has said where LAPACK is
    with pytest.raises((ValueError, TypeError), match=text):
        _executable(*fields)


def test_an_interrupt_is_seen_between_matrices() -> None:
    a = definite(400, 150, 150)
    weft.block_until_ready(lax.linalg.svd(a[:2]))
    started = time.perf_counter()
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            weft.block_until_ready(lax.linalg.svd(a))
    timer.join()
    assert time.perf_counter() - started < 20
    np.testing.assert_allclose(lax.linalg.cholesky(a[:2]), np.linalg.cholesky(a[:2]), rtol=1e-3, atol=1e-3)


def test_vectors_that_nobody_reads_are_not_computed() -> None:
    a = definite(30, 30)
    text = weft.jit(weft.numpy.linalg.eigvalsh).lower(a).as_text("plan")
    both = weft.jit(weft.numpy.linalg.eigh).lower(a).as_text("plan")
    assert "(30, 1, 0, 30, 0)" in text and "(30, 1, 0, 30, 1)" in both
    np.testing.assert_allclose(weft.numpy.linalg.eigvalsh(a), np.linalg.eigvalsh(a), rtol=1e-4)


PROGRAM = """
import numpy as np, sys, weft, weft.numpy as jnp
f = weft.jit(lambda a, b: jnp.linalg.solve(a, b))
a = np.float32([[2, 1], [1, 3]])
print(np.asarray(f(a, np.float32([3, 4]))).tolist(), "scipy" in sys.modules)
"""


def test_stored_programs_find_the_library(tmp_path: Path) -> None:
    """In a new process, and without importing SciPy."""
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_CHECK": "0"}
    for _ in range(3):
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
        )
        assert found.stdout.split("\n")[0] == "[1.0, 1.0] False"
