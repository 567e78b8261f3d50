"""The native layer: arrays, avals, pytrees, dispatch, kernels and the pool, written in C++.

Everything public in ``weft.runtime._native`` is re-exported here; no other module imports ``_native``. What a
function accepts is checked natively: bad input raises, it never crashes the interpreter.
"""

from __future__ import annotations

from weft.runtime._native import *
