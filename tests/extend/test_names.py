"""The names of the modules that libraries are built on: what JAX has there is in weft's modules too."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from tests.extend.libraries import WEFT, same_with_both

# names of JAX that are not in weft's modules: MLIR's and XLA's own data, and what JAX itself announces to remove
NOT_THERE = {
    "core": {
        "JaxprPpContext", "JaxprPpSettings", "OutputType", "concretization_function_error", "custom_typechecks",
        "literalable_types", "no_axis_name", "trace_ctx",
    },
    "interpreters.ad": set(),
    "interpreters.batching": set(),
    "interpreters.xla": {"Backend"},
    "interpreters.mlir": {
        "AxisContext", "ConstantHandler", "DEVICE_TO_DEVICE_TYPE", "LoweringParameters", "LoweringResult", "Mesh",
        "MeshAxisName", "RECV_FROM_HOST_TYPE", "SEND_TO_HOST_TYPE", "SPMDAxisContext", "ShapePolyLoweringState",
        "ShardingContext", "ir_tree_registry", "ir_type_handlers", "lowerable_effects",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "module",
    [
        "core", "extend.core", "extend.core.primitives", "extend.linear_util", "extend.source_info_util", "api_util",
        "interpreters.ad", "interpreters.batching", "interpreters.mlir", "interpreters.partial_eval",
        "interpreters.xla",
    ],
)  # fmt: skip
def test_every_public_name_of_jax_is_there(module: str) -> None:
    theirs, ours = sys.modules[f"jax.{module}"], sys.modules[f"weft.{module}"]
    names = {name for name in dir(theirs) if not name.startswith("_") and not _is_import(getattr(theirs, name))}
    missing = {name for name in names if not hasattr(ours, name)}
    assert missing == NOT_THERE.get(module, set()) & names


def _is_import(value: Any) -> bool:
    return isinstance(value, types.ModuleType) or type(value).__name__ == "_Feature"


def test_primitives_are_the_objects_that_programs_hold() -> None:
    primitives, lax = WEFT.extend.core.primitives, WEFT.lax
    closed = WEFT.make_jaxpr(WEFT.jit(lambda x: lax.sin(x) + 1))(1.0)
    assert closed.eqns[0].primitive is primitives.jit_p
    inner = closed.eqns[0].params["jaxpr"].eqns
    assert [eqn.primitive for eqn in inner] == [primitives.sin_p, primitives.add_p]
    assert all(isinstance(p, WEFT.extend.core.Primitive) for p in (primitives.jit_p, primitives.scan_p, lax.sin_p))
    with pytest.raises(ImportError):
        exec("from weft.extend.core.primitives import xla_pmap_p")


def test_types_and_questions_about_them() -> None:
    def program(jax: Any) -> Any:
        core, jexc = jax.core, jax.extend.core
        aval = core.ShapedArray((2, 3), np.dtype("float32"))
        ints = core.ShapedArray([4], np.dtype("int32"), weak_type=True)

        def shapes(*types: Any) -> list[Any]:
            return [[list(t.shape), str(t.dtype), bool(t.weak_type)] for t in types]

        with pytest.raises(TypeError):
            jax.api_util.shaped_abstractify("text")

        class Described:
            shape, dtype = (3,), np.dtype("float64")

        return [
            shapes(jexc.mapped_aval(3, 1, aval), jexc.mapped_aval(9, None, aval), jexc.unmapped_aval(5, 0, ints)),
            shapes(ints.strip_weak_type().to_tangent_aval(), aval.to_tangent_aval(), ints.strip_weak_type()),
            [isinstance(aval, core.AbstractValue), issubclass(core.ShapedArray, core.AbstractValue)],
            [jexc.valid_jaxtype(x) for x in (1.0, np.ones(2), "a", None)],
            [str(jexc.primal_dtype_to_tangent_dtype(np.dtype(d))) for d in ("float16", "int8", "bool")],
            shapes(jax.api_util.shaped_abstractify(Described()), jax.api_util.shaped_abstractify(2)),
            str(aval.str_short(short_dtypes=True)), [core.max_dim(2, 3), core.min_dim(2, 3)],
            isinstance(jax.numpy.ones(1), jax.Array), str(jexc.AbstractToken()),
        ]  # fmt: skip

    same_with_both(program)


def test_descriptions_of_arrays_stand_for_them() -> None:
    """Anything with a shape and a dtype in eval_shape, make_jaxpr and linear_transpose; results may be descriptions."""

    def program(jax: Any) -> Any:
        class Described:
            shape, dtype = (3,), np.dtype("float32")

        struct = jax.ShapeDtypeStruct((2, 3), np.dtype("float32"))
        made = jax.eval_shape(lambda x, y: (y.sum(), x, struct), Described(), struct)
        aval = jax.core.ShapedArray((3,), np.dtype("float32"))
        return [
            [[list(s.shape), str(s.dtype)] for s in made],
            str(jax.make_jaxpr(lambda x: x * 2)(Described())),
            jax.linear_transpose(lambda x: 3 * x, aval)(jax.numpy.ones(3)),
            list(jax.typeof(struct).shape),
        ]

    same_with_both(program)
    with pytest.raises(TypeError, match="describes an array and has no values"):
        WEFT.jit(lambda: WEFT.ShapeDtypeStruct((2,), "float32"))()


def test_questions_about_the_trace() -> None:
    def program(jax: Any) -> Any:
        jexc = jax.extend.core
        before, seen = jexc.get_opaque_trace_state(convention="flax"), []

        def look(x: Any) -> Any:
            seen.append([
                jexc.get_opaque_trace_state() == before, jexc.get_opaque_trace_state() == jexc.get_opaque_trace_state(),
                jexc.unsafe_am_i_under_a_jit_DO_NOT_USE(), jexc.unsafe_am_i_under_a_vmap_DO_NOT_USE(),
                list(jexc.unsafe_get_axis_names_DO_NOT_USE()), jexc.nonempty_axis_env_DO_NOT_USE(),
                jexc.find_top_trace((x,)) is x._trace if isinstance(x, jax.core.Tracer) else None,
            ])  # fmt: skip
            return x * 2.0

        look(1.0)
        jax.jit(look)(1.0)
        jax.grad(look)(1.0)
        jax.vmap(look, axis_name="i")(jax.numpy.ones(2))
        jax.vmap(jax.jit(look))(jax.numpy.ones(2))
        with jexc.take_current_trace() as trace, jexc.set_current_trace(trace):
            seen.append(jexc.get_opaque_trace_state() == before)
        return seen

    same_with_both(program)


def test_a_trace_of_ones_own_sees_every_operation() -> None:
    """A library's interpreter by tracing: it counts operations, also of calls, and passes them on."""

    def program(jax: Any) -> Any:
        core, jexc = jax.core, jax.extend.core
        counts: dict[str, int] = {}

        class CountTracer(core.Tracer):
            def __init__(self, trace: Any, value: Any) -> None:
                super().__init__(trace, jax.typeof(value))
                self.value = value

            def full_lower(self) -> Any:
                return self

        class CountTrace(core.Trace):
            def __init__(self, parent: Any) -> None:
                super().__init__()
                self.parent_trace = parent

            def process_primitive(self, primitive: Any, tracers: Any, params: Any) -> Any:
                counts[primitive.name] = counts.get(primitive.name, 0) + 1
                values = [t.value if isinstance(t, CountTracer) else t for t in tracers]
                with jexc.set_current_trace(self.parent_trace):
                    out = primitive.bind(*values, **params)
                if primitive.multiple_results:
                    return [CountTracer(self, x) for x in out]
                return CountTracer(self, out)

            def process_custom_jvp_call(
                self, primitive: Any, fun: Any, jvp: Any, tracers: Any, *, symbolic_zeros: bool
            ) -> Any:
                with jexc.set_current_trace(self):
                    return fun.call_wrapped(*tracers)

        def counted(f: Any, *args: Any) -> Any:
            with jexc.take_current_trace() as parent:
                trace = CountTrace(parent)
                with jexc.set_current_trace(trace):
                    out = f(*[CountTracer(trace, x) for x in args])
            return out.value

        @jax.custom_jvp
        def f(x: Any) -> Any:
            return jax.lax.exp(x)

        f.defjvp(lambda p, t: (f(*p), t[0]))
        x = jax.numpy.array([1.0, 2.0])

        def g(x: Any) -> Any:
            return jax.lax.sin(x) * jax.lax.cos(x) + jax.jit(lambda v: v * 2.0)(x)

        made = [counted(g, x), jax.jit(lambda x: counted(g, x))(x), counted(f, x)]
        return [made, {name: count for name, count in counts.items() if name in ("sin", "cos", "exp")}]

    same_with_both(program)


def test_values_of_a_trace_of_ones_own_under_the_trace_around_it() -> None:
    """haiku's interpreter evaluates functions with rules on its own values while the enclosing trace is current."""
    core, jexc = WEFT.core, WEFT.extend.core
    seen: list[str] = []

    class Tracer(core.Tracer):
        def __init__(self, trace: Any, value: Any) -> None:
            super().__init__(trace, WEFT.typeof(value))
            self.value = value

    class Trace(core.Trace):
        def __init__(self, parent: Any) -> None:
            super().__init__()
            self.parent_trace = parent

        def process_primitive(self, primitive: Any, tracers: Any, params: Any) -> Any:
            seen.append(primitive.name)
            values = [t.value if isinstance(t, Tracer) else t for t in tracers]
            out = primitive.bind_with_trace(self.parent_trace, values, [core.typeof(x) for x in values], params)
            return WEFT.tree_util.tree_map(lambda x: Tracer(self, x), out)

    def f(x: Any) -> Any:
        with jexc.take_current_trace() as parent:
            mine = Tracer(Trace(parent), x)
            with jexc.set_current_trace(parent):
                return WEFT.lax.mul(WEFT.lax.sin(mine), mine).value

    np.testing.assert_allclose(WEFT.jit(f)(2.0), np.sin(2.0) * 2.0, rtol=1e-6)
    assert seen == ["sin", "mul"]


def test_objects_that_say_how_they_become_arrays() -> None:
    """``__jax_array__`` is asked where a function takes anything like an array; elsewhere the error says what to do."""

    def program(jax: Any) -> Any:
        jnp = jax.numpy

        class Boxed:
            def __jax_array__(self) -> Any:
                return jnp.arange(3.0)

        boxed, x = Boxed(), jnp.ones(3)
        for refused in (lambda: jax.jit(lambda v: v)(boxed), lambda: jax.lax.sin(boxed), lambda: jax.typeof(boxed)):
            with pytest.raises(ValueError, match=r"Triggering __jax_array__\(\) during abstractification"):
                refused()
        return [
            jnp.asarray(boxed), jnp.array([boxed, x]), x + boxed, x ** boxed, x < boxed, jnp.stack([boxed, x]),
            jnp.concatenate([x, boxed]), x.at[:].set(boxed), jnp.zeros_like(boxed), list(jnp.shape(boxed)),
            isinstance(boxed, jax.Array),
        ]  # fmt: skip

    same_with_both(program)


def test_types_of_ones_own_are_refused_by_name() -> None:
    hijax = pytest.importorskip("weft.experimental.hijax")
    with pytest.raises(NotImplementedError, match="mine"):
        hijax.HiPrimitive("mine").bind(1.0)
    for name in ("HiType", "MutableHiType"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(hijax, name)("mine")
    assert hijax.Zero is WEFT.interpreters.ad.Zero


def test_generators_of_random_bits() -> None:
    def program(jax: Any) -> Any:
        random, made = importlib.import_module(f"{jax.__name__}.extend.random"), []
        pair = jax.numpy.array([1, 2], np.uint32)
        for shape in ((3,), (2, 2), (0,)):
            made.append(random.threefry_2x32(pair, jax.numpy.arange(np.prod(shape), dtype=np.uint32).reshape(shape)))
        for impl in (random.threefry_prng_impl, random.rbg_prng_impl):
            made.append(jax.random.key_data(random.seed_with_impl(impl, 3)))
        return [*made, jax.random.key_data(random.random_seed(jax.numpy.arange(2), random.threefry_prng_impl))]

    same_with_both(program)
