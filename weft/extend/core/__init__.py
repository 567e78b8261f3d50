"""weft.extend.core: programs as data, and the primitives that they are made of, under JAX's names.

What libraries read and build programs with: ``Jaxpr``, ``Var``, ``Literal``, ``Primitive``, and questions about the
trace that is going on. ``weft.extend.core.primitives`` has weft's primitives by JAX's names.
"""

from typing import TYPE_CHECKING, Any

from weft._base import lazy, unbuilt

_NAMES = lazy.Names(
    "weft.extend.core",
    {
        "_base.api": "ensure_compile_time_eval",
        "core.avals": "get_aval typeof",
        "core.axis_names": "NamedAxisEffect",
        "core.programs.check": "check_jaxpr",
        "core.effects": "Effect Effects no_effects",
        "core.programs.eval": "eval_jaxpr jaxpr_as_fun",
        "core.programs.jaxpr": """
            Atom ClosedJaxpr DebugInfo DropVar Jaxpr JaxprEqn Literal Var jaxprs_in_params subjaxprs
        """,
        "core.primitive": "Primitive",
        "core.tracing.trace": "eval_context",
        "core.tracing.tracer": "Tracer concrete_or_error is_concrete",
        "errors": "InconclusiveDimensionOperation JaxprTypeError",
        "extend.core.building": "gensym new_jaxpr_eqn",
        "extend.core.calls": "CallPrimitive call call_impl call_p closed_call_p",
        "extend.core.tracing": """
            OpaqueTraceState Trace TraceTag axis_frame find_top_trace get_axis_env get_opaque_trace_state
            nonempty_axis_env_DO_NOT_USE set_current_trace take_current_trace trace_state_clean
            unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE
            unsafe_get_axis_names_DO_NOT_USE""",
        "extend.core.types": """
            AbstractToken AbstractValue ParamDict ShapedArray Token Value abstract_token array_types
            aval_mapping_handlers is_constant_dim is_constant_shape mapped_aval max_dim min_dim
            primal_dtype_to_tangent_dtype pytype_aval_mappings raise_to_shaped shaped_abstractify unmapped_aval
            valid_jaxtype""",
    },
    renamed={"NamedAxisEffect": "NamedAxis"},
)


def __getattr__(name: str) -> Any:
    if name == "primitives":
        return lazy.submodule("weft.extend.core.primitives")
    return _NAMES.find(name) if name in _NAMES else unbuilt.missing("weft.extend.core", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules, "primitives"})
