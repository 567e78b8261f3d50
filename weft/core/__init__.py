"""Programs: avals, primitives, traces, and jaxprs with their printer and checker."""

import time

from weft.core.avals import get_aval, is_masked, is_valid, typeof
from weft.core.effects import Effect, Effects, no_effects
from weft.core.jaxpr import (
    Atom,
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    jaxprs_in_params,
    subjaxprs,
)
from weft.core.primitive import Primitive, registry
from weft.core.printer import print_eqn, print_jaxpr
from weft.core.trace import (
    DynamicJaxprTrace,
    DynamicJaxprTracer,
    Trace,
    eval_context,
    install_evaluate,
    is_tracing,
    set_current,
    trace_to_jaxpr,
)
from weft.core.tracer import Tracer, concrete_or_error, is_concrete

LOADED_NS = time.time_ns()  # source files changed later than this are not the code that this process runs
