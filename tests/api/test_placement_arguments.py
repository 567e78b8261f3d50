"""Every public function with an ``out_sharding``, ``sharding`` or ``device`` argument checks what it is given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.initializers
import weft.numpy as wnp
from weft import lax

X = np.ones(4, np.float32)
KEY = weft.random.key(0)
SHARDING = weft.sharding.SingleDeviceSharding(weft.devices()[0])
IMAGE, RAGGED = np.ones((1, 1, 4, 4), np.float32), np.ones((2, 4), np.float32)
CONTRACTED = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
NAMES = ("device", "out_sharding", "sharding")
MODULES = {
    "lax": lax, "numpy": wnp, "random": weft.random, "nn.initializers": weft.nn.initializers,
}  # fmt: skip
# operands of the functions that do not take one array, by "module.name"
OPERANDS: dict[str, tuple[Any, ...]] = {
    "lax.broadcast": (X, (2,)), "lax.broadcast_in_dim": (X, (2, 4), (1,)), "lax.dot": (X, X),
    "lax.broadcasted_iota": (np.int32, (2, 3), 0), "lax.dot_general": (X, X, (((0,), (0,)), ((), ()))),
    "numpy.bincount": (X.astype(np.int32),),
    "lax.empty": ((2,), np.float32), "lax.full": ((2,), 1.0), "lax.full_like": (X, 1.0),
    "lax.reduce": (X, np.float32(0), lax.add, (0,)), "lax.reduce_sum": (X, (0,)), "lax.reshape": (X, (2, 2)),
    "numpy.astype": (X, np.int32), "numpy.broadcast_to": (X, (2, 4)), "numpy.dot": (X, X), "numpy.matmul": (X, X),
    "numpy.einsum": ("i,i->", X, X), "numpy.full": ((2,), 1.0), "numpy.full_like": (X, 1.0), "numpy.eye": (2,),
    "numpy.arange": (3,), "numpy.linspace": (0.0, 1.0, 3), "numpy.repeat": (X, 2), "numpy.reshape": (X, (2, 2)),
    "numpy.tensordot": (X, X, 1), "numpy.empty": ((2,),), "numpy.ones": ((2,),), "numpy.zeros": ((2,),),
    "random.categorical": (KEY, X), "random.pareto": (KEY, 1.0), "random.randint": (KEY, (2,), 0, 9),
    "random.rayleigh": (KEY, 1.0), "random.truncated_normal": (KEY, -1.0, 1.0), "random.triangular": (KEY, 0, 1, 2),
    "random.ball": (KEY, 3), "random.beta": (KEY, 2.0, 3.0), "random.chisquare": (KEY, 3.0), "random.t": (KEY, 3.0),
    "random.dirichlet": (KEY, X), "random.double_sided_maxwell": (KEY, 0.0, 1.0), "random.f": (KEY, 3.0, 4.0),
    "random.gamma": (KEY, 2.0), "random.generalized_normal": (KEY, 2.0), "random.geometric": (KEY, 0.5),
    "random.loggamma": (KEY, 2.0), "random.permutation": (KEY, X), "random.poisson": (KEY, 2.0),
    "random.wald": (KEY, 2.0), "random.multivariate_normal": (KEY, X, np.diag(X)),
    "random.orthogonal": (KEY, 2),
    "lax.conv_general_dilated": (IMAGE, IMAGE, (1, 1), "SAME"),
    "lax.ragged_dot": (RAGGED, np.ones((1, 4, 3), np.float32), np.array([2], np.int32)),
    "lax.ragged_dot_general": (RAGGED, np.ones((1, 4, 3), np.float32), np.array([2], np.int32), CONTRACTED),
    "lax.rng_bit_generator": (np.zeros(4, np.uint32), (3,)),
    "nn.initializers.ones": (KEY, (2,)), "nn.initializers.zeros": (KEY, (2,)), "numpy.percentile": (X, 50),
}  # fmt: skip


def _functions() -> Iterator[tuple[str, Any, str]]:
    for path, module in MODULES.items():
        for name in dir(module):
            function = getattr(module, name)
            if name.startswith("_") or isinstance(function, type) or not callable(function):
                continue
            try:
                parameters = inspect.signature(function).parameters
            except ValueError:
                continue
            yield from ((f"{path}.{name}", function, option) for option in NAMES if option in parameters)


CASES = list(_functions())


def _operands(path: str) -> tuple[Any, ...]:
    return OPERANDS.get(path, (KEY,) if path.startswith("random.") else (X,))


def test_there_are_such_functions() -> None:
    assert len(CASES) > 60
    assert set(OPERANDS) - {path for path, _, _ in CASES} <= {"random.triangular", "numpy.percentile"}


@pytest.mark.parametrize(("path", "function", "option"), CASES, ids=[f"{path}-{o}" for path, _, o in CASES])
def test_placement(path: str, function: Any, option: str) -> None:
    operands = _operands(path)
    expected = function(*operands)
    for accepted in (None, SHARDING):
        found = function(*operands, **{option: accepted})
        assert weft.tree.map(weft.typeof, found) == weft.tree.map(weft.typeof, expected)
    for refused in ("cpu", 5, [SHARDING]):
        with pytest.raises((TypeError, ValueError), match=option) as caught:
            function(*operands, **{option: refused})
        assert repr(refused) in str(caught.value)
