"""A job of two processes whose programs have guards: they pass where values are good, and name what is bad."""

from __future__ import annotations

import warnings

import numpy as np

import weft
import weft.numpy as jnp
from weft.sharding import AxisType, NamedSharding, PartitionSpec

warnings.simplefilter("error")
weft.distributed.initialize()
mesh = weft.make_mesh((2,), ("x",), (AxisType.Auto,))
values = np.arange(8.0, dtype=np.float32)
cut = NamedSharding(mesh, PartitionSpec("x"))
x = weft.make_array_from_callback((8,), cut, lambda index: values[index])

# An exchange stands among steps that have guards, and moves them.
assert float(weft.jit(lambda x, i: x[i] * 2, checks=("nan", "overflow"))(x, 3)) == 6.0
found = weft.jit(lambda x, i: jnp.log(x[i] + 1.0) + jnp.sqrt(x).sum(), checks=("nan", "overflow"))(x, 3)
assert np.allclose(float(found), np.log(4.0) + np.sqrt(values).sum())
try:
    weft.jit(lambda x, i: jnp.log(x[i] - 4.0) + jnp.sqrt(x).sum(), checks="nan")(x, 3)  # on both processes alike
except weft.errors.CheckError as error:
    assert (error.primitive, [float(np.asarray(v)) for v in error.operands]) == ("log", [-1.0]), error
else:
    raise AssertionError("the NaN was not found")
for asked in ("index", "all"):
    try:
        weft.jit(lambda x, i: x[i], checks=asked)(x, 3)
    except NotImplementedError as error:
        assert "indices are not checked in arrays across processes" in str(error), error
    else:
        raise AssertionError("indices in parts of arrays are not checked")
with weft.debug_nans(True):
    try:
        jnp.log(x - 9.0)
    except FloatingPointError as error:
        assert f"in the part that process {weft.process_index()} has" in str(error), error
    else:
        raise AssertionError("the NaN was not found")
print("checked", weft.process_index(), flush=True)
