"""Programs of GPUs at other sizes than before: numbers only, no compilation, no machine code, the bits of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import driver, native_build
from weft import config
from weft.compiler import pipeline

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
SIZES = [(50, 70), (110, 130), (60, 90), (40, 230), (300, 50), (33, 2100), (20, 70)]  # no row is unrolled


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the programs that the compiler made for a GPU, where it makes none to compare."""
    names, own = list[str](), pipeline.compile_new

    def noting(closed: Any, name: str, donated: Any, copied: Any, within: Any, like: Any) -> Any:
        names.extend([name] if within.device else [])
        return own(closed, name, donated, copied, within, like)

    monkeypatch.setattr(pipeline, "compile_new", noting)
    with config.context("check", False):
        yield names


def _descent(x: Any) -> Any:
    return weft.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(jnp.ones((x.shape[1], 3)))


PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {  # and how many the compiler has to see
    "elements": (lambda x: jnp.sin(x) * 2 + 1, 1),
    "rows": (lambda x: weft.nn.softmax(x), 1),
    "sum": (lambda x: (x * x).sum(), 1),
    "columns": (lambda x: x - x.sum(0), 1),
    "argmax": (lambda x: x.argmax(1), 1),
    "running": (lambda x: jnp.cumsum(x, 0) + x[:1], 2),
    "product": (lambda x: x @ x.T, 2),
    "gradient": (_descent, 5),  # long sides are cut, and tall ones
}


def at(device: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Values, on the CPU and on a device."""
    values = np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32)
    return weft.device_put(values, weft.devices("cpu")[0]), weft.device_put(values, device)


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_sizes_are_not_compiled(device: Any, compiled: list[str], name: str) -> None:
    function, n_seen = PROGRAMS[name]
    weft.clear_caches()
    jitted = weft.jit(function)
    for number, shape in enumerate(SIZES):
        here, there = at(device, shape)
        driver.calls()
        before = pipeline.stats()["kernels_built"], len(compiled)
        found = jitted(there)
        after = pipeline.stats()["kernels_built"], len(compiled)
        counts = driver.calls()
        assert found.device is device and np.asarray(found).tobytes() == np.asarray(jitted(here)).tobytes()
        if number >= n_seen and shape != (33, 2100):  # of long rows a GPU may have other kernels
            assert after == before and "cuLinkComplete" not in counts and "cuModuleLoadDataEx" not in counts, (
                shape,
                compiled,
            )


def test_eager_operations_at_other_sizes_are_not_compiled(device: Any, compiled: list[str]) -> None:
    for number, shape in enumerate(SIZES):
        _, x = at(device, shape)
        del compiled[:]
        found = jnp.maximum(x + x, 0).sum(1)
        assert np.array_equal(np.asarray(found), np.asarray(jnp.maximum(at(device, shape)[0] * 2, 0).sum(1)))
        assert not number or not compiled


def test_they_are_what_the_compiler_makes(device: Any) -> None:
    with config.context("check", True):  # it compares
        for function, _ in PROGRAMS.values():
            jitted = weft.jit(lambda x, function=function: function(x))
            for shape in SIZES[:5]:
                here, there = at(device, shape)
                assert np.asarray(jitted(there)).tobytes() == np.asarray(jitted(here)).tobytes()


def test_a_size_that_takes_more_memory_of_its_blocks_runs_again_after_one_that_takes_less(device: Any) -> None:
    """All sizes launch one entry, and what the driver allows it is what it was told last."""
    f = weft.jit(lambda x: weft.nn.softmax(x, -1) * 2)
    for n in (16_000, 13_000, 16_000):  # of 65 and of 53 KB
        here, there = at(device, (2, n))
        assert np.asarray(f(there)).tobytes() == np.asarray(f(here)).tobytes()
