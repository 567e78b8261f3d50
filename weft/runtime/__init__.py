"""The native layer: arrays, avals, pytrees, dispatch, kernels and the pool, written in C++.

Everything public in ``weft.runtime._native`` is re-exported here; no other module imports ``_native``. What a
function accepts is checked natively: bad input raises, it never crashes the interpreter. The figures of the machine are
handed down here, before anything runs.
"""

from __future__ import annotations

from weft._base.target_model import runtime_figures
from weft.runtime._native import *
from weft.runtime._native import cpu_maker, set_figures

set_figures(runtime_figures(cpu_maker()))
