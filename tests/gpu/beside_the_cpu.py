"""Programs on a GPU beside the same on the CPU: the same bits, and which steps the plan has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp

Equal = Callable[[Any, Any], bool]
NO_STEPS_OF_THE_HOST = {
    "launch",
    "copy",
    "fill",
    "output",
    "temporary",
    "residuals:",
}  # first words of the lines of a plan


def same(left: Any, right: Any) -> bool:
    """Whether all bits are the same, signed zeros included, but for those of NaN."""
    left, right = (np.atleast_1d(np.ascontiguousarray(x)) for x in (left, right))
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.tobytes() == right.tobytes():
        return True
    if left.dtype.kind == "c":
        left, right = (x.view(f"f{x.itemsize // 2}") for x in (left, right))
    with np.errstate(invalid="ignore"):
        nan = (left != left) & (right != right)
    bits = np.dtype(f"u{left.itemsize}")
    return bool(np.all(nan | (left.view(bits) == right.view(bits))))


def exactly(left: Any, right: Any) -> bool:
    """Whether all bits are the same, those of NaN included."""
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """Where two results differ, for whoever sees no more than this line."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{found.shape} for {wanted.dtype}{wanted.shape}"
    size = found.dtype.itemsize
    bits = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) for x in (found, wanted)]
    positions = np.flatnonzero((bits[0] != bits[1]).any(1))
    at = int(positions[0]) if len(positions) else 0
    return f"{len(positions)} of {found.size} elements differ, first {at}: {found.flat[at]!r} for {wanted.flat[at]!r}"


def check(device: Any, function: Callable[..., Any], args: tuple[Any, ...], equal: Equal = same) -> Any:
    """Runs a program on the CPU and on the GPU; gives the compiled one of the latter."""
    wanted = weft.tree.leaves(weft.jit(function)(*args))
    with weft.default_device(device):
        found = weft.tree.leaves(weft.jit(function)(*args))
        compiled = weft.jit(function).lower(*args).compile()
    assert [x.device for x in found] == [device] * len(found)
    for x, y in zip(found, wanted, strict=True):
        if jnp.issubdtype(x.dtype, weft.dtypes.prng_key):
            x, y = weft.random.key_data(x), weft.random.key_data(y)
        assert equal(x, y), _difference(np.asarray(x), np.asarray(y))
    return compiled


def launches(device: Any, function: Callable[..., Any], *args: Any, equal: Equal = same) -> str:
    """``check`` of a program without steps of the host; gives its plan."""
    plan = check(device, function, args, equal).as_text("plan")
    words = {line.split()[0] for line in plan.splitlines() if line.startswith("  ") and line[2:3] != " "}
    assert {word for word in words if len(word) > 2} <= NO_STEPS_OF_THE_HOST, plan  # others are names of buffers
    return plan
