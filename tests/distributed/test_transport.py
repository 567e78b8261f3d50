"""Messages, collectives and multihost_utils between two and three processes, and the arithmetic of their sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.distributed import jobs
from weft import lax, runtime


@jobs.needs_mpi
@pytest.mark.parametrize(("processes", "piece"), [(2, 2**30), (3, 50_000)])
def test_every_rank_has_what_numpy_says(processes: int, piece: int) -> None:
    """With ``piece`` bytes in the largest message, as messages of more than 1 GiB are cut."""
    done = jobs.run("transport_program.py", piece, processes=processes)
    assert done.status == 0 and "checked 11" in done.out, str(done)


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, 1e-7, -6e-8, 3.0e-5, 1 / 3]
TYPES = ["int8", "uint8", "int32", "uint64", "bool", "float16", "bfloat16", "float32", "float64", "complex64"]


def operand(dtype: np.dtype, parts: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, (parts, 1000), dtype, endpoint=True)
    if dtype.kind == "b":
        return generator.integers(0, 2, (parts, 1000)).astype(bool)
    ordinary = generator.standard_normal((parts, 1000))
    ordinary[:, :600] = np.asarray(SPECIAL)[generator.integers(0, len(SPECIAL), (parts, 600))]
    with np.errstate(over="ignore", invalid="ignore"):
        return (ordinary + 1j * ordinary[::-1] if dtype.kind == "c" else ordinary).astype(dtype)


@pytest.mark.parametrize("combine", ["sum", "max", "min"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("parts", [1, 3, 300])
def test_sums_over_ranks_have_the_bits_of_reduce_sum(name: str, combine: str, parts: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if (dtype.kind == "b" and combine == "sum") or (dtype.kind == "c" and combine != "sum"):
        return
    x = operand(dtype, parts)
    out = np.empty(x.shape[1:], dtype)
    rows = tuple(row.view(np.uint8) for row in x)
    runtime.mpi_reduce_parts(name, combine, rows, out.view(np.uint8))
    with weft.enable_x64(dtype.itemsize == 8 and dtype.kind != "c"):
        kind = "and" if dtype.kind == "b" and combine == "min" else "or" if dtype.kind == "b" else combine
        expected = np.asarray(getattr(lax, f"reduce_{kind}")(x, (0,)))
    assert expected.dtype == dtype
    nan = np.zeros(out.shape, bool) if dtype.kind in "iub" else np.isnan(expected)
    assert dtype.kind in "iub" or (np.isnan(out) == nan).all()
    assert out[~nan].tobytes() == expected[~nan].tobytes()


def test_what_is_not_reduced_between_processes() -> None:
    out = np.zeros(8, np.uint8)
    for name, combine in (("complex64", "max"), ("bool", "sum"), ("float8_e4m3fn", "sum"), ("float32", "prod")):
        with pytest.raises(NotImplementedError, match=name):
            runtime.mpi_reduce_parts(name, combine, (out,), out)
    with pytest.raises(ValueError, match="same size"):
        runtime.mpi_reduce_parts("float32", "sum", (np.zeros(4, np.uint8),), out)


def test_without_a_job_nothing_is_sent() -> None:
    for start in (lambda: runtime.mpi_isend(b"x", 0, 0), lambda: runtime.mpi_irecv(bytearray(1), 0, 0)):
        with pytest.raises(RuntimeError, match="initialize"):
            start()
