"""Programs: avals, primitives, traces, and jaxprs with their printer and checker.

These are internals of weft, and also the module that JAX's users know as ``jax.core``. What JAX has there and builds on
transformations is found in ``weft.extend.core`` when it is named.
"""

import time
from typing import Any

from weft._base import lazy
from weft.core import tangents
from weft.core.avals import get_aval, host_aval, is_masked, is_valid, typeof
from weft.core.effects import Effect, Effects, no_effects
from weft.core.primitive import Primitive, registry
from weft.core.programs.check import check_jaxpr
from weft.core.programs.eval import eval_jaxpr, jaxpr_as_fun
from weft.core.programs.jaxpr import (
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
from weft.core.programs.printer import print_eqn, print_jaxpr
from weft.core.tracing.trace import (
    DynamicJaxprTrace,
    DynamicJaxprTracer,
    eval_context,
    install_evaluate,
    is_tracing,
    literal_value,
    scalar,
    set_current,
    trace_to_jaxpr,
    wide,
)
from weft.core.tracing.tracer import Tracer, concrete_or_error, is_concrete
from weft.errors import InconclusiveDimensionOperation, JaxprTypeError
from weft.runtime import ShapedArray

LOADED_NS = time.time_ns()  # source files changed later than this are not the code that this process runs

_TANGENTS = tangents  # imported for the methods that it gives to types

# JAX's names that later modules define
_NAMES = lazy.Names(
    "weft.core",
    {
        "_base.api": "ensure_compile_time_eval",
        "extend.core": """
            AbstractToken AbstractValue CallPrimitive OpaqueTraceState ParamDict Token Trace TraceTag Value
            abstract_token aval_mapping_handlers axis_frame call call_impl call_p closed_call_p find_top_trace gensym
            get_axis_env get_opaque_trace_state is_constant_dim is_constant_shape mapped_aval max_dim min_dim
            new_jaxpr_eqn nonempty_axis_env_DO_NOT_USE primal_dtype_to_tangent_dtype pytype_aval_mappings
            raise_to_shaped set_current_trace shaped_abstractify take_current_trace trace_state_clean unmapped_aval
            unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE unsafe_get_axis_names_DO_NOT_USE
            valid_jaxtype""",
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)
