"""Verifies a partitioned program (WEFT_CHECK=1): the programs of all devices together give what the whole one gives.

Both run in NumPy on made-up arguments, the local program under ``vmap`` over the axes of the mesh. The bits are equal,
except where a sum was split, or where a matrix product or convolution of another shape adds in another order.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.batching.vmap import vmap
from weft.compiler.checks import reference_interpreter, verify
from weft.compiler.passes import inline
from weft.core import axis_names
from weft.core.programs.check import check_jaxpr
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tracing.trace import trace_to_jaxpr
from weft.errors import InternalError
from weft.partitioning import by_vmap

STAGE = "partition"
_BOUNDS = {2: 3e-2, 4: 1e-4, 8: 1e-10}  # relative to the largest element, by bytes of a number


def verified(partitioned: Any) -> None:
    """Raise InternalError if the local program is not well typed, or gives other results than the whole one."""
    with axis_names.bound(tuple(partitioned.sizes.items())):
        try:
            check_jaxpr(partitioned.local)
        except TypeError as error:
            raise InternalError(f"the program is not well typed: {error}", stage=STAGE) from error
    whole = partitioned.whole
    devices = len(by_vmap.all_coordinates(partitioned.sizes))
    touched = verify.elements(whole) + devices * verify.elements(partitioned.local)
    if touched < verify.FEW_ELEMENTS and verify.is_pure(whole):
        _compare(partitioned)


def _compare(partitioned: Any) -> None:
    whole = inline.inline(partitioned.whole)
    args = list(verify.arguments(whole))
    wanted = reference_interpreter.interpret(whole, args)
    program = under_vmap(partitioned)
    sizes = partitioned.sizes
    shards = [by_vmap.stacked(x, spec, sizes) for x, spec in zip(args, partitioned.in_specs, strict=True)]
    outs = reference_interpreter.interpret(program, shards)
    for number, (want, out, spec) in enumerate(zip(wanted, outs, partitioned.out_specs, strict=True)):
        try:
            found = by_vmap.joined(out, want.shape, spec, sizes)
        except ValueError as error:
            raise InternalError(f"result {number}: {error}", stage=STAGE) from error
        if not same(want, found, partitioned.is_exact):
            raise InternalError(f"result {number} changed: {want.ravel()[:4]} became {found.ravel()[:4]}", stage=STAGE)


def under_vmap(partitioned: Any) -> ClosedJaxpr:
    """The programs of all devices as one, whose inputs and results have a leading dimension for each axis."""
    local, sizes = partitioned.local, partitioned.sizes
    function: Any = functools.partial(eval_jaxpr, local.jaxpr, local.consts)
    for name, size in list(sizes.items())[::-1]:
        function = vmap(function, axis_name=name, axis_size=size)
    leading = tuple(sizes.values())
    avals = [v.aval.update(shape=(*leading, *v.aval.shape)) for v in local.jaxpr.invars]
    return inline.inline(trace_to_jaxpr(lambda *args: function(*args), avals, of_program=True)[0])


def same(want: np.ndarray, found: np.ndarray, is_exact: bool) -> bool:
    """Equal bit for bit, or nearly so if that is all that can be asked."""
    if is_exact or want.dtype.kind in "biu":
        return verify.same_bits(want, found)
    bound = _BOUNDS[want.dtype.itemsize // (2 if want.dtype.kind == "c" else 1)]
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    left, right = want.astype(wide), found.astype(wide)
    finite = np.abs(left[np.isfinite(left)])
    return np.allclose(left, right, rtol=bound, atol=bound * float(finite.max(initial=0.0)), equal_nan=True)
