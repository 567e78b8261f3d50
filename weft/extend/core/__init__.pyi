"""The names of weft.extend.core, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any as _Any

from weft._base.api import ensure_compile_time_eval as ensure_compile_time_eval
from weft.core.avals import get_aval as get_aval, typeof as typeof
from weft.core.axis_names import NamedAxis
from weft.core.effects import Effect as Effect, Effects as Effects, no_effects as no_effects
from weft.core.primitive import Primitive as Primitive
from weft.core.programs.check import check_jaxpr as check_jaxpr
from weft.core.programs.eval import eval_jaxpr as eval_jaxpr, jaxpr_as_fun as jaxpr_as_fun
from weft.core.programs.jaxpr import (
    Atom as Atom, ClosedJaxpr as ClosedJaxpr, DebugInfo as DebugInfo, DropVar as DropVar, Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn, Literal as Literal, Var as Var, jaxprs_in_params as jaxprs_in_params, subjaxprs as subjaxprs
)
from weft.core.tracing.trace import eval_context as eval_context
from weft.core.tracing.tracer import (
    Tracer as Tracer, concrete_or_error as concrete_or_error, is_concrete as is_concrete
)
from weft.errors import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation, JaxprTypeError as JaxprTypeError
)
from weft.extend.core import primitives as primitives
from weft.extend.core.building import gensym as gensym, new_jaxpr_eqn as new_jaxpr_eqn
from weft.extend.core.calls import (
    CallPrimitive as CallPrimitive, call as call, call_impl as call_impl, call_p as call_p,
    closed_call_p as closed_call_p
)
from weft.extend.core.tracing import (
    OpaqueTraceState as OpaqueTraceState, Trace as Trace, TraceTag as TraceTag, axis_frame as axis_frame,
    find_top_trace as find_top_trace, get_axis_env as get_axis_env, get_opaque_trace_state as get_opaque_trace_state,
    nonempty_axis_env_DO_NOT_USE as nonempty_axis_env_DO_NOT_USE, set_current_trace as set_current_trace,
    take_current_trace as take_current_trace, trace_state_clean as trace_state_clean,
    unsafe_am_i_under_a_jit_DO_NOT_USE as unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE as unsafe_get_axis_names_DO_NOT_USE
)
from weft.extend.core.types import (
    AbstractToken as AbstractToken, AbstractValue as AbstractValue, ParamDict as ParamDict,
    ShapedArray as ShapedArray, Token as Token, Value as Value, abstract_token as abstract_token,
    array_types as array_types, aval_mapping_handlers as aval_mapping_handlers, is_constant_dim as is_constant_dim,
    is_constant_shape as is_constant_shape, mapped_aval as mapped_aval, max_dim as max_dim, min_dim as min_dim,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype, pytype_aval_mappings as pytype_aval_mappings,
    raise_to_shaped as raise_to_shaped, shaped_abstractify as shaped_abstractify, unmapped_aval as unmapped_aval,
    valid_jaxtype as valid_jaxtype
)
NamedAxisEffect = NamedAxis

def __getattr__(name: str) -> _Any: ...
