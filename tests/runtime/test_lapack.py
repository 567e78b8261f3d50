"""Where LAPACK comes from: NumPy's copy (64-bit integers), or SciPy's (32-bit), each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
from weft import runtime
{before}
import weft.numpy as jnp
from weft.scipy import linalg

rng = np.random.default_rng(0)
for dtype in (np.float32, np.complex64):
    a = rng.normal(size=(9, 7)).astype(dtype)
    square = a[:7]
    definite = square @ square.conj().T + np.eye(7, dtype=dtype)
    q, r, order = linalg.qr(a, pivoting=True)  # an array of integers comes back
    np.testing.assert_allclose(q @ r, a[:, order], atol=1e-4)
    assert sorted(order.tolist()) == list(range(7)) and order.tolist() != list(range(7))
    p, l, u = linalg.lu(a)
    np.testing.assert_allclose(p @ l @ u, a, atol=1e-4)
    assert np.asarray(p).tolist() != np.eye(9).tolist()
    t, z = linalg.schur(square)
    np.testing.assert_allclose(z @ t @ z.conj().T, square, atol=1e-4)
    w, v = jnp.linalg.eigh(definite)  # the size of the workspace of integers is asked for
    np.testing.assert_allclose(v * w @ v.conj().T, definite, atol=1e-3)
    x, s, y = jnp.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(x * s @ y, a, atol=1e-4)
    np.testing.assert_allclose(jnp.linalg.solve(square, a[:7, 0]), np.linalg.solve(square, a[:7, 0]), atol=1e-2)
    indefinite = jnp.linalg.cholesky(-definite)  # a failure is told by an integer
    assert np.isnan(indefinite).any()
assert runtime.lapack_threads() >= 1
"""
WITHOUT_SCIPY = """
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "scipy":
            raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
sys.meta_path.insert(0, Nothing())
"""
AFTERWARDS = """
from weft.scipy import signal
try:
    signal.welch(np.ones(64), window="hann")
except ModuleNotFoundError as error:
    assert "pip install scipy" in str(error), error
else:
    raise AssertionError("a window by name came from nowhere")
assert not any(name.startswith("scipy") for name in sys.modules)
"""
OF_SCIPY = """
from weft.compiler.plans import libraries
from weft._base import lazy
files = [file for file in lazy.lapack_files() if "scipy" in file]
assert len(files) == 1, files
runtime.set_lapack_finder(lambda: ["/no/such/file", *files])
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "program",
    [PROGRAM.format(before=WITHOUT_SCIPY) + AFTERWARDS, PROGRAM.format(before=OF_SCIPY)],
    ids=["NumPy's", "SciPy's"],
)
def test_linear_algebra(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_CHECK", raising=False)  # whose references are SciPy's
    done = _run(program)
    assert done.returncode == 0, done.stderr


def test_no_lapack_is_a_clear_error() -> None:
    program = """
import weft, weft.numpy as jnp, numpy as np
from weft import runtime
from weft.compiler.plans import libraries  # which sets weft's own finder
runtime.set_lapack_finder(lambda: ["/no/such/file"])
try:
    jnp.linalg.cholesky(np.eye(30, dtype=np.float32))
except ImportError as error:
    assert "pip install" in str(error) and "/no/such/file" in str(error), error
else:
    raise AssertionError("found a LAPACK")
"""
    done = _run(program)
    assert done.returncode == 0, done.stderr
