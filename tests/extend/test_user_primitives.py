"""Primitives of one's own: the same source gives the same results with JAX and with weft, under all transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.extend.libraries import WEFT, same_with_both
from weft.core.caches import fingerprint
from weft.extend.core import Primitive
from weft.interpreters import ad, batching, mlir, xla


def make_multiply_add(lib: Any) -> Any:
    """x * y + z with every rule written out."""
    ad, batching, mlir = lib.interpreters.ad, lib.interpreters.batching, lib.interpreters.mlir
    p = lib.extend.core.Primitive("multiply_add")
    bind = p.bind

    def typing(x: Any, y: Any, z: Any) -> Any:
        assert x.shape == y.shape == z.shape
        return lib.core.ShapedArray(x.shape, x.dtype)

    def jvp(primals: Any, tangents: Any) -> Any:
        x, y, z = primals
        tx, ty, tz = map(ad.instantiate_zeros, tangents)
        return bind(x, y, z), bind(tx, y, bind(x, ty, tz))

    def transpose(ct: Any, x: Any, y: Any, z: Any) -> Any:
        ct_z = ct if ad.is_undefined_primal(z) else None
        if ad.is_undefined_primal(x):
            return bind(ct, y, lib.numpy.zeros_like(y)), None, ct_z
        if ad.is_undefined_primal(y):
            return None, bind(x, ct, lib.numpy.zeros_like(x)), ct_z
        return None, None, ct_z

    def batch(values: Any, dims: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(values, dims, strict=True) if d is not None)
        return bind(*[batching.bdim_at_front(x, d, size) for x, d in zip(values, dims, strict=True)]), 0

    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(typing)
    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = transpose
    batching.primitive_batchers[p] = batch
    mlir.register_lowering(p, mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False))
    return bind


def test_multiply_add_under_every_transformation() -> None:
    def program(jax: Any) -> Any:
        multiply_add, lax = make_multiply_add(jax), jax.lax

        def f(a: Any, b: Any) -> Any:
            return multiply_add(a, a, b)

        x, y = jax.numpy.array([2.0, 3.0]), jax.numpy.array([10.0, 20.0])
        custom = jax.custom_vjp(lambda a: f(a, a))
        custom.defvjp(lambda a: (f(a, a), a), lambda a, ct: (multiply_add(a, ct, ct),))
        return {
            "jit": jax.jit(f)(2.0, 10.0),
            "jvp": jax.jit(lambda a, b: jax.jvp(f, (a, b), (1.0, 1.0)))(2.0, 10.0),
            "grad": jax.grad(f)(2.0, 10.0),
            "both": jax.jit(jax.grad(f, argnums=(0, 1)))(2.0, 10.0),
            "hessian": jax.hessian(f)(2.0, 10.0),
            "vmap": jax.vmap(f, in_axes=(0, None), out_axes=0)(x, 1.0),
            "mapped": jax.jit(jax.vmap(jax.grad(f)))(x, y),
            "scan": lax.scan(lambda c, e: (multiply_add(c, e, e), f(c, e)), 1.0, x),
            "scan_grad": jax.grad(lambda v: lax.scan(lambda c, e: (multiply_add(c, e, e), c), v, x)[0])(1.0),
            "while": lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, f(s[1], s[1])), (0, 1.0)),
            "cond": jax.jit(lambda p, a: lax.cond(p, f, lambda a, b: a - b, a, a))(True, 3.0),
            "cond_grad": jax.grad(lambda a: lax.cond(a > 0, f, lambda a, b: a - b, a, a))(3.0),
            "cond_vmap": jax.vmap(lambda p, a: lax.cond(p, f, lambda a, b: a - b, a, a))(x > 2, x),
            "checkpoint": jax.grad(jax.checkpoint(f))(2.0, 10.0),
            "custom": jax.jit(jax.vmap(jax.grad(custom)))(x),
            "texts": [
                str(jax.make_jaxpr(f)(2.0, 10.0)),
                str(jax.make_jaxpr(jax.grad(f))(2.0, 10.0)),
                str(jax.make_jaxpr(jax.vmap(f))(x, y)),
            ],
        }

    found = same_with_both(program)
    np.testing.assert_array_equal(found["grad"], 4.0)  # d(a * a + b) / da
    assert "multiply_add" in found["texts"][0]


def test_a_primitive_with_several_results() -> None:
    """sin and cos at once, with a parameter; the linear rule uses a primitive with ``deflinear2``."""

    def program(jax: Any) -> Any:
        ad, batching, mlir, jnp = jax.interpreters.ad, jax.interpreters.batching, jax.interpreters.mlir, jax.numpy
        p = jax.extend.core.Primitive("sincos")
        p.multiple_results = True
        turn_p = jax.extend.core.Primitive("turn")

        def both(x: Any, *, factor: float) -> Any:
            return [jnp.sin(x) * factor, jnp.cos(x) * factor]

        p.def_impl(both)
        p.def_abstract_eval(lambda x, *, factor: [jax.core.ShapedArray(x.shape, x.dtype)] * 2)
        mlir.register_lowering(p, mlir.lower_fun(both, multiple_results=True))
        turn_p.def_impl(lambda t: -t)
        turn_p.def_abstract_eval(lambda t: jax.core.ShapedArray(t.shape, t.dtype))
        mlir.register_lowering(turn_p, mlir.lower_fun(lambda t: -t, multiple_results=False))
        ad.deflinear2(turn_p, lambda ct, _: (turn_p.bind(ct),))
        batching.defvectorized(turn_p)

        def jvp(primals: Any, tangents: Any, *, factor: float) -> Any:
            s, c = p.bind(*primals, factor=factor)
            (t,) = tangents
            if type(t) is ad.Zero:
                return [s, c], [ad.Zero.from_primal_value(s), ad.Zero.from_primal_value(c)]
            return [s, c], [t * c, turn_p.bind(t * s)]

        ad.primitive_jvps[p] = jvp
        batching.primitive_batchers[p] = lambda xs, ds, **params: (p.bind(*xs, **params), [ds[0], ds[0]])
        x = jnp.arange(3.0)

        def f(x: Any) -> Any:
            s, c = p.bind(x, factor=2.0)
            return s + 3 * c

        return {
            "eager": p.bind(x, factor=2.0),
            "jit": jax.jit(lambda x: p.bind(x, factor=2.0))(x),
            "one": jax.jit(lambda x: p.bind(x, factor=2.0)[1])(x),
            "grad": jax.jit(jax.grad(lambda x: f(x).sum()))(x),
            "vmap": jax.vmap(jax.grad(f))(x),
            "jacobian": jax.jacrev(f)(x),
            "hessian": jax.hessian(lambda x: f(x).sum())(x),
        }

    same_with_both(program)


def test_short_ways_to_state_derivatives() -> None:
    """defjvp, defjvp2, defbilinear, rules taken over from other primitives, and broadcasting batchers."""

    def program(jax: Any) -> Any:
        ad, batching, mlir = jax.interpreters.ad, jax.interpreters.batching, jax.interpreters.mlir

        def make(name: str, function: Any) -> Any:
            p = jax.extend.core.Primitive(name)
            p.def_impl(function)
            p.def_abstract_eval(
                lambda *types: jax.core.ShapedArray(
                    jax.numpy.broadcast_shapes(*[t.shape for t in types]), types[0].dtype
                )
            )
            mlir.register_lowering(p, mlir.lower_fun(function, multiple_results=False))
            return p

        cube_p = make("cube", lambda x: x * x * x)
        ad.defjvp(cube_p, lambda t, x: t * 3 * x * x)
        batching.defvectorized(cube_p)
        root_p = make("root", lambda x: x**0.5)
        ad.defjvp2(root_p, lambda t, out, x: t * 0.5 / out)
        times_p = make("times", lambda x, y: x * y)
        ad.defbilinear(times_p, lambda ct, x, y: times_p.bind(ct, y), lambda ct, x, y: times_p.bind(x, ct))
        batching.defbroadcasting(times_p)
        sine_p = make("sine", lambda x: jax.numpy.sin(x))
        ad.primitive_jvps[sine_p] = lambda ps, ts, **_: ad.primitive_jvps[jax.lax.sin_p](ps, ts, accuracy=None)
        total_p = jax.extend.core.Primitive("total")
        total_p.def_abstract_eval(
            lambda x, *, axes: jax.core.ShapedArray([n for d, n in enumerate(x.shape) if d not in axes], x.dtype)
        )
        mlir.register_lowering(total_p, mlir.lower_fun(lambda x, *, axes: x.sum(axes), multiple_results=False))
        batching.defreducer(total_p)
        x, y = jax.numpy.array([2.0, 3.0]), jax.numpy.array([[4.0, 5.0], [6.0, 7.0]])
        return [
            jax.grad(cube_p.bind)(2.0), jax.vmap(jax.grad(cube_p.bind))(x), jax.jit(jax.grad(root_p.bind))(4.0),
            jax.grad(lambda a, b: times_p.bind(times_p.bind(a, b), a), argnums=(0, 1))(2.0, 5.0),
            jax.jit(jax.vmap(times_p.bind, in_axes=(0, None)))(x, 2.0),
            jax.vmap(times_p.bind, in_axes=(1, 1))(y, y), jax.jit(jax.vmap(times_p.bind, in_axes=(None, 1)))(x, y),
            jax.grad(sine_p.bind)(1.0), jax.jit(jax.vmap(lambda v: total_p.bind(v, axes=(0,)), in_axes=1))(y),
            cube_p in ad.primitive_jvps, cube_p in ad.primitive_transposes, jax.lax.sin_p in ad.primitive_jvps,
        ]  # fmt: skip

    same_with_both(program)


def test_batchers_that_know_the_axis() -> None:
    """A rule gets size and name of the axis, and runs even if no operand is mapped; unmapped results are allowed."""

    def program(jax: Any) -> Any:
        batching, mlir = jax.interpreters.batching, jax.interpreters.mlir
        seen: list[Any] = []
        p = jax.extend.core.Primitive("any_of_all")
        p.def_impl(lambda x: jax.numpy.any(x))
        p.def_abstract_eval(lambda x: jax.core.ShapedArray((), x.dtype))
        mlir.register_lowering(p, mlir.lower_fun(lambda x: jax.numpy.any(x), multiple_results=False))

        def rule(size: int, name: Any, trace: Any, values: Any, dims: Any) -> Any:
            seen.append((size, name, tuple(dims)))
            return p.bind(*values), None

        batching.axis_primitive_batchers[p] = rule
        x = jax.numpy.array([False, True, False])
        made = [
            jax.vmap(p.bind, axis_name="i")(x),
            jax.jit(jax.vmap(p.bind, out_axes=None, axis_name="i"))(x),
            jax.vmap(lambda _: p.bind(True), axis_name="i")(x),
        ]
        fancy_p = jax.extend.core.Primitive("axis_size")
        fancy_p.def_impl(lambda x: x)
        fancy_p.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))
        batching.fancy_primitive_batchers[fancy_p] = lambda axis, xs, ds: (xs[0] * axis.size, ds[0])
        return [made, seen, jax.vmap(fancy_p.bind)(jax.numpy.ones(3))]

    same_with_both(program)


def test_a_callback_in_a_lowering_is_a_step_of_the_program() -> None:
    """emit_python_callback, as equinox's noinline uses it; what must be kept alive may be handed over."""

    def program(jax: Any) -> Any:
        mlir = jax.interpreters.mlir
        p = jax.extend.core.Primitive("on_the_host")
        p.multiple_results = True
        p.def_abstract_eval(lambda x: [jax.core.ShapedArray(x.shape, x.dtype)])

        def lowering(ctx: Any, x: Any) -> Any:
            def call(value: Any) -> Any:
                return (np.asarray(value) * 2,)

            outs, _, keepalive = mlir.emit_python_callback(
                ctx, call, None, [x], ctx.avals_in, ctx.avals_out, has_side_effect=False, sharding=None
            )
            ctx.module_context.add_keepalive(keepalive)
            return outs

        mlir.register_lowering(p, lowering)
        return jax.jit(lambda x: p.bind(x)[0] + 1)(jax.numpy.arange(3.0))

    same_with_both(program)


# -- what JAX does not do: an impl is enough --------------------------------------------------------------------------


def test_an_impl_alone_is_a_host_step_under_jit() -> None:
    """weft calls the impl as a step of the program; in loops once for each iteration, and never if nobody reads it."""
    calls: list[float] = []
    p = Primitive("recorded")

    def impl(x: Any, *, by: float) -> Any:
        calls.append(float(x))
        return np.asarray(x) + np.float32(by)

    p.def_impl(impl)
    p.def_abstract_eval(lambda x, *, by: weft.core.ShapedArray(x.shape, x.dtype))
    assert float(p.bind(jnp.float32(1.0), by=1.0)) == 2.0
    assert float(weft.jit(lambda x: p.bind(x, by=1.0) * 10)(2.0)) == 30.0
    assert calls == [1.0, 2.0]
    looped = weft.jit(lambda x: weft.lax.fori_loop(0, 3, lambda i, s: p.bind(s, by=1.0), x))
    assert float(looped(5.0)) == 8.0
    assert calls[2:] == [5.0, 6.0, 7.0]
    weft.jit(lambda x: (p.bind(x, by=1.0), x)[1])(9.0)
    assert 9.0 not in calls


def test_an_impl_that_uses_weft() -> None:
    p = Primitive("norm_of")
    p.def_impl(lambda x: jnp.sqrt(jnp.sum(x * x)))
    p.def_abstract_eval(lambda x: weft.core.ShapedArray((), x.dtype))
    assert float(weft.jit(lambda x: p.bind(x) + 1)(jnp.array([3.0, 4.0]))) == 6.0


def test_effects_keep_a_primitive_without_readers() -> None:
    class Seen(weft.extend.core.Effect):
        pass

    seen, effect = [], Seen()
    p = Primitive("seen")
    p.multiple_results = True
    p.def_impl(lambda x: [seen.append(int(x)), []][1])
    p.def_effectful_abstract_eval(lambda x: ([], {effect}))
    f = weft.jit(lambda x: [p.bind(x), p.bind(x + 1), x][2])
    f(3)
    weft.effects_barrier()
    assert seen == [3, 4]
    assert effect in weft.make_jaxpr(f)(3).effects


def test_apply_primitive_is_an_impl_for_what_has_a_lowering() -> None:
    p = Primitive("doubled")
    p.def_impl(lambda *args, **params: xla.apply_primitive(p, *args, **params))
    p.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x + x, multiple_results=False))
    assert float(p.bind(4.0)) == 8.0


def test_keys_may_go_in_and_come_out() -> None:
    p = Primitive("draw")
    p.def_abstract_eval(lambda key: weft.core.ShapedArray((), np.dtype("float32")))
    mlir.register_lowering(p, mlir.lower_fun(lambda key: weft.random.normal(key), multiple_results=False))
    inside = Primitive("draw_by_seed")
    inside.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(
        inside, mlir.lower_fun(lambda x: x + weft.random.normal(weft.random.key(3)), multiple_results=False)
    )
    expected = weft.random.normal(weft.random.key(3))
    assert float(weft.jit(p.bind)(weft.random.key(3))) == float(expected)
    assert float(weft.jit(inside.bind)(0.0)) == float(expected)
    assert float(inside.bind(0.0)) == float(expected)


def test_a_program_with_a_primitive_of_ones_own_is_not_looked_up_on_disk() -> None:
    """Another process may give the primitive another rule, so that no text says what the function computes."""
    p = _typed("of_this_process")
    digest = fingerprint.fingerprint(weft.make_jaxpr(lambda x: p.bind(x) * 2)(1.0))
    assert not fingerprint.holds_everywhere(digest)


def test_two_primitives_of_one_name_are_two() -> None:
    def make(factor: float) -> Primitive:
        p = Primitive("scaled")
        p.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
        mlir.register_lowering(p, mlir.lower_fun(lambda x: x * factor, multiple_results=False))
        return p

    two, three = make(2.0), make(3.0)
    assert [float(weft.jit(p.bind)(5.0)) for p in (two, three)] == [10.0, 15.0]
    assert "scaled" not in weft.core.registry


# -- missing and wrong rules ------------------------------------------------------------------------------------------


def _typed(name: str) -> Primitive:
    p = Primitive(name)
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
    return p


def test_missing_rules_are_named_with_the_way_to_register_them() -> None:
    p = _typed("bare")
    with pytest.raises(NotImplementedError, match=r"Differentiation rule for 'bare'.*ad\.primitive_jvps\[bare_p\]"):
        weft.grad(p.bind)(1.0)
    with pytest.raises(NotImplementedError, match=r"Batching rule for 'bare'.*batching\.primitive_batchers\[bare_p\]"):
        weft.vmap(p.bind)(jnp.ones(2))
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), p.bind(*tangents))
    with pytest.raises(NotImplementedError, match=r"Transpose rule.*'bare'.*ad\.primitive_transposes\[bare_p\]"):
        weft.grad(p.bind)(1.0)
    q = Primitive("untyped")
    with pytest.raises(NotImplementedError, match=r"Abstract evaluation for 'untyped'.*untyped_p\.def_abstract_eval"):
        weft.jit(q.bind)(1.0)
    with pytest.raises(NotImplementedError, match=r"Evaluation rule for 'untyped'.*def_impl.*register_lowering"):
        q.bind(1.0)
    q.def_abstract_eval(lambda x: weft.core.ShapedArray(x.shape, x.dtype))
    with pytest.raises(NotImplementedError, match=r"'untyped' not found for platform cpu.*register_lowering"):
        weft.jit(q.bind)(1.0)


def test_wrong_rules_say_what_they_gave() -> None:
    p = _typed("wrong")
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), jnp.ones(3))
    with pytest.raises(TypeError, match=r"jvp rule of 'wrong'.*float32\[3\].*float32\[\]"):
        weft.jvp(p.bind, (1.0,), (1.0,))
    mlir.register_lowering(p, mlir.lower_fun(lambda x: jnp.stack([x, x]), multiple_results=False))
    with pytest.raises(TypeError, match=r"lowering of 'wrong' gives float32\[2\].*promises float32\[\]"):
        weft.jit(p.bind)(1.0)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: (x, x), multiple_results=True))
    with pytest.raises(TypeError, match=r"lowering of 'wrong' gives 2 results.*1"):
        weft.jit(p.bind)(jnp.float32(2.0))
    q = Primitive("many")
    q.def_abstract_eval(lambda x: [weft.core.ShapedArray(x.shape, x.dtype)])
    with pytest.raises(TypeError, match=r"many_p\.multiple_results = True"):
        weft.jit(q.bind)(1.0)
    with pytest.raises(TypeError, match=r"\[primitive_jvps\] the key of a rule is a primitive"):
        ad.primitive_jvps["sin"] = lambda *_: None  # type: ignore[index] - the mistake tested


def test_mlir_by_hand_raises_and_names_the_primitive() -> None:
    p = _typed("by_hand")
    mlir.register_lowering(p, lambda ctx, x: [mlir.ir_constant(np.float32(1.0))])
    with pytest.raises(
        NotImplementedError, match=r"lowering of 'by_hand' builds MLIR by hand.*mlir\.ir_constant.*lower_fun"
    ):
        weft.jit(p.bind)(1.0)
    mlir.register_lowering(p, lambda ctx, x: [mlir.ir.RankedTensorType.get([2], mlir.ir.F32Type.get())])
    with pytest.raises(NotImplementedError, match=r"'by_hand'.*ir\.F32Type\.get"):
        weft.jit(p.bind)(2.0)
    mlir.register_lowering(p, lambda ctx, x: 1 / 0, platform="tpu")  # for another platform: never used
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False), platform="cpu")
    assert float(weft.jit(p.bind)(3.0)) == 3.0
    with pytest.raises(NotImplementedError, match="unknown platform abacus"):
        mlir.register_lowering(p, lambda ctx, x: x, platform="abacus")
    with pytest.raises(NotImplementedError, match="sin is an operation of weft's own"):
        mlir.register_lowering(WEFT.lax.sin_p, lambda ctx, x: x)


def test_a_rule_of_wefts_own_can_be_replaced_and_restored() -> None:
    cos_p = WEFT.lax.cos_p
    before = ad.primitive_jvps[cos_p]
    slope = weft.grad(jnp.cos)(1.0)
    ad.primitive_jvps[cos_p] = lambda ps, ts, **params: (cos_p.bind(*ps, **params), ts[0] * 5.0)
    try:
        assert float(weft.grad(jnp.cos)(1.0)) == 5.0
        ad.primitive_jvps[cos_p] = before
        assert float(weft.grad(jnp.cos)(1.0)) == float(slope)
    finally:
        del ad.primitive_jvps[cos_p]
    assert float(weft.grad(jnp.cos)(1.0)) == float(slope)


def test_rules_of_primitives_that_are_not_built_yet_may_be_registered() -> None:
    stub = WEFT.lax.stage_p
    assert isinstance(stub, Primitive) and stub not in ad.primitive_jvps
    ad.primitive_jvps[stub] = rule = lambda *_: None
    assert ad.primitive_jvps[stub] is rule
    del ad.primitive_jvps[stub]
    assert "sin" not in ad.primitive_jvps


def test_replaced_batching_rules_and_their_deletion() -> None:
    p = _typed("mapped_twice")
    batching.primitive_batchers[p] = lambda xs, ds: (xs[0] * 2, ds[0])
    assert weft.vmap(p.bind)(jnp.ones(2)).tolist() == [2.0, 2.0]
    del batching.primitive_batchers[p]
    with pytest.raises(NotImplementedError, match="Batching rule"):
        weft.vmap(p.bind)(jnp.ones(2))
